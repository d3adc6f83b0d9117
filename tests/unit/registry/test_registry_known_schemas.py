"""What counts as the same schema when a program registers it again or looks it up, and what is put beside it (F1)."""

import json
from typing import Any

import pytest

from moldau.registry import decisions, lookups
from moldau.registry.body import read_config, read_schema
from moldau.registry.errors import RestError
from moldau.registry.records import NUMBER_MAX, SchemaKey, encode_key
from moldau.registry.state import next_number
from support.registry import Ledger, record

OLD = record("Flight", ("number", "int"))
NEW = record("Flight", ("number", "int"), ("gate", "string", ""))
OWNER = {"properties": {"owner": "ops"}}


def refused(code: int, act: Any) -> str:
    """The message of the error that this has to end with."""
    with pytest.raises(RestError) as caught:
        act()
    assert caught.value.code == code, caught.value.message
    return caught.value.message


def configure(ledger: Ledger, subject: str | None, **fields: Any) -> None:
    """Set a configuration."""
    ledger.carry_out(decisions.set_config(ledger.state, subject, read_config(fields)))


def find(ledger: Ledger, subject: str, schema: object, **fields: Any) -> int:
    """The version that is found by its schema."""
    body = read_schema({"schema": json.dumps(schema), **fields})
    return lookups.find(ledger.state, subject, body, normalize=False, deleted=False).version


def test_an_old_program_gets_its_old_version_whatever_metadata_came_later() -> None:
    """It registers what it knows at each start; a later version with metadata must not turn that into a third version, and a fourth."""
    ledger = Ledger()
    first = ledger.register("a", OLD)
    second = ledger.register("a", NEW, metadata=OWNER)
    written = len(ledger.records)
    assert ledger.register("a", OLD) == first
    assert ledger.register("a", NEW) == second, "what the latest version has beside it stays"
    assert len(ledger.records) == written


def test_an_imported_version_that_exists_is_returned_in_every_mode() -> None:
    ledger = Ledger()
    ledger.carry_out(decisions.set_mode(ledger.state, "a", "IMPORT", force=False))
    assert ledger.register("a", OLD, id=7, version=3) == 7
    ledger.carry_out(decisions.set_mode(ledger.state, "a", "READWRITE", force=False))
    written = len(ledger.records)
    assert ledger.register("a", OLD, id=7, version=3) == 7
    assert ledger.register("a", OLD, id=7) == 7
    assert len(ledger.records) == written
    refused(42205, lambda: ledger.register("a", OLD, id=7, version=4))
    refused(42205, lambda: ledger.register("a", OLD, id=8, version=3))


def test_the_last_id_does_not_end_registrations(caplog: pytest.LogCaptureFixture) -> None:
    """One record of any writer with 2147483647: ids and versions continue at numbers that were not given yet."""
    ledger = Ledger()
    assert ledger.register("a", OLD) == 1
    ledger.carry_out(decisions.set_mode(ledger.state, "a", "IMPORT", force=True))
    ledger.register("a", NEW, id=NUMBER_MAX, version=NUMBER_MAX)
    ledger.carry_out(decisions.set_mode(ledger.state, "a", None, force=False))
    third = record("Other", ("z", "long"))
    assert [ledger.register(subject, third, force=True) for subject in "ab"] == [2, 2], "one schema has one id all the same"
    assert [each.version for each in ledger.state.versions("a")] == [1, 2, NUMBER_MAX]
    assert ledger.register("b", record("More"), force=True) == 3
    assert [each.getMessage() for each in caplog.records if "ids continue" in each.getMessage()] == [
        "registry ids continue below the highest: context=. next=2 reason=a record has id 2147483647, the last possible one"
    ], "logged once"
    assert ledger.compacted().next_id(".") == 4


def test_an_id_that_was_deleted_for_good_is_not_given_again_in_the_gap() -> None:
    ledger = Ledger()
    for number in (1, 2, 3):
        assert ledger.register(f"s{number}", record(f"R{number}")) == number
    ledger.carry_out(decisions.set_mode(ledger.state, "last", "IMPORT", force=False))
    ledger.register("last", record("Last"), id=NUMBER_MAX, version=1)
    for permanent in (False, True):
        for subject in ("s3", "last"):
            ledger.carry_out(decisions.delete_subject(ledger.state, subject, permanent=permanent))
    assert ledger.register("new", record("New")) == 4


@pytest.mark.parametrize(
    ("used", "following"),
    [
        ([], 1), ([1, 2], 3), ([7], 8), ([NUMBER_MAX], 1), ([1, 2, 9, NUMBER_MAX], 10), ([5, NUMBER_MAX - 1, NUMBER_MAX], 6),
    ],
)  # fmt: skip
def test_the_next_number(used: list[int], following: int) -> None:
    assert next_number(used) == following


def test_an_avro_schema_with_its_references_put_in_is_the_one_that_has_references() -> None:
    """A program holds the whole schema; who registered it held the parts."""
    ledger = Ledger()
    point = record("Point", ("x", "int"))
    ledger.register("point", point)
    line = ledger.register("line", record("Line", ("from", "Point")), references=[{"name": "Point", "subject": "point", "version": 1}])
    whole = record("Line", ("from", point))
    assert ledger.register("line", whole) == line
    assert find(ledger, "line", whole) == 1
    refused(40403, lambda: find(ledger, "line", record("Line", ("from", record("Point", ("x", "long"))))))


def test_a_reference_to_the_latest_version_that_another_registry_stored_is_followed() -> None:
    ledger = Ledger()
    ledger.register("point", record("Point", ("x", "int")))
    value = {
        "subject": "line",
        "version": 1,
        "id": 2,
        "references": [{"name": "Point", "subject": "point", "version": -1}],
        "schema": '{"type":"array","items":"Point"}',
    }
    ledger.write([(encode_key(SchemaKey("line", 1)), json.dumps(value).encode())])
    text = lookups.formatted(ledger.state, ledger.state.versions("line")[0], "resolved")
    assert text is not None
    assert '"name":"Point"' in text


def test_defaults_and_overrides_stand_around_what_a_schema_has_itself() -> None:
    """default < its own, else the latest version's < override: by the name of each tag, property and rule."""
    ledger = Ledger()

    def rule(name: str, expr: str) -> dict[str, Any]:
        return {"name": name, "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": expr}

    configure(
        ledger,
        "a",
        defaultMetadata={"properties": {"owner": "nobody", "tier": "3"}, "sensitive": ["s"]},
        overrideMetadata={"properties": {"site": "JFK"}, "tags": {"f": ["PII"]}},
        defaultRuleSet={"domainRules": [rule("first", "true"), rule("second", "default")]},
        overrideRuleSet={"domainRules": [rule("third", "override")]},
    )
    schema_id = ledger.register("a", OLD, metadata=OWNER, ruleSet={"domainRules": [rule("second", "own")]})
    stored = ledger.state.versions("a")[0]
    assert stored.metadata == {
        "tags": {"f": ["PII"]},
        "properties": {"owner": "ops", "site": "JFK", "tier": "3"},
        "sensitive": ["s"],
    }
    assert stored.rule_set == {"domainRules": [rule("first", "true"), rule("second", "own"), rule("third", "override")]}
    written = len(ledger.records)
    assert ledger.register("a", OLD) == schema_id
    assert ledger.register("a", OLD, metadata=OWNER) == schema_id
    assert len(ledger.records) == written
    assert find(ledger, "a", OLD) == 1
    assert find(ledger, "a", OLD, metadata=OWNER) == 1


def test_new_defaults_make_a_new_version_of_a_text_that_is_there() -> None:
    ledger = Ledger()
    assert ledger.register("a", OLD) == 1
    configure(ledger, None, overrideMetadata=OWNER)
    configure(ledger, "a", compatibility="NONE")
    assert ledger.register("a", OLD) == 2
    assert ledger.state.versions("a")[-1].metadata == OWNER


def test_the_latest_version_is_never_a_deleted_one() -> None:
    ledger = Ledger()
    ledger.register("a", OLD)
    ledger.register("a", NEW)
    ledger.carry_out(decisions.delete_version(ledger.state, "a", 2, permanent=False))
    assert lookups.version(ledger.state, "a", -1, deleted=True).version == 1
    refused(40407, lambda: decisions.delete_version(ledger.state, "a", -1, permanent=True))
    ledger.carry_out(decisions.delete_version(ledger.state, "a", -1, permanent=False))
    refused(40401, lambda: lookups.version(ledger.state, "a", -1, deleted=False))
    refused(40402, lambda: lookups.version(ledger.state, "a", -1, deleted=True))
    refused(40402, lambda: decisions.delete_version(ledger.state, "a", -1, permanent=True))


def test_what_the_default_context_does_not_have_is_found_in_the_others() -> None:
    """A client that knows names without contexts reads what a linked cluster put into one; it writes nothing there."""
    ledger = Ledger()
    ledger.register("b", NEW)
    ledger.register(":.fleet:a", OLD)
    assert lookups.version(ledger.state, "a", 1, deleted=False).subject == ":.fleet:a"
    assert lookups.version(ledger.state, "a", -1, deleted=False).subject == ":.fleet:a"
    assert find(ledger, "a", OLD) == 1
    assert lookups.by_id(ledger.state, 1, "a").subject == ":.fleet:a", "id 1 of the default context is another schema"
    refused(40401, lambda: lookups.version(ledger.state, ":.tower:a", 1, deleted=False))
    refused(40401, lambda: find(ledger, "a", NEW))
    refused(40402, lambda: lookups.compatibility(ledger.state, "a", 1, read_schema({"schema": json.dumps(OLD)}), normalize=False))


def test_an_id_leads_to_the_living_version_of_two_that_have_it() -> None:
    ledger = Ledger()
    ledger.carry_out(decisions.set_mode(ledger.state, "a", "IMPORT", force=False))
    for version in (1, 2):
        ledger.register("a", OLD, id=7, version=version)
    ledger.carry_out(decisions.delete_version(ledger.state, "a", 2, permanent=False))
    assert ledger.state.holders(".", 7) == {"a": 1}
    assert [each.version for each in lookups.holders_of(ledger.state, 7, None, deleted=False)] == [1]


def test_a_verdict_ends_with_the_rule_it_was_made_by() -> None:
    ledger = Ledger()
    ledger.register("a", OLD)
    configure(ledger, "a", compatibility="FULL", validateFields=True)
    message = refused(409, lambda: ledger.register("a", record("Flight", ("number", "string"))))
    assert message.endswith("{validateFields: 'true', compatibility: 'FULL'}]")
