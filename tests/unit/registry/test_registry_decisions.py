"""What is decided about registrations, deletions and settings, over a list of records instead of a broker (F1)."""

import json
from typing import Any

import pytest

from moldau.registry import decisions, lookups
from moldau.registry.body import read_config, read_mode, read_schema
from moldau.registry.errors import RestError
from moldau.registry.records import ClearSubjectKey, SchemaKey, SchemaVersion, encode_key, encode_schema, guid
from moldau.registry.scopes import config_in_scope, mode_in_scope
from support.registry import Ledger, record

FLIGHT = record("Flight", ("number", "int"))
FLIGHT_2 = record("Flight", ("number", "int"), ("gate", "string", ""))
FLIGHT_3 = record("Flight", ("number", "int"), ("gate", "string", ""), ("late", "boolean", False))

ODD_RULES: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "1st"},
    {"name": "a b"},
    {"name": "n" * 257},
    {"doc": {"a": 1}},
    {"kind": "WISH"},
    {"mode": "UPGRADE"},
    {"mode": "WRITE", "onFailure": "DLQ,NONE"},
    {"disabled": "yes"},
]


def refused(code: int, act: Any) -> str:
    """The message of the error that this has to end with."""
    with pytest.raises(RestError) as caught:
        act()
    assert caught.value.code == code, caught.value.message
    return caught.value.message


# Registering


def test_one_schema_has_one_id_in_all_subjects_and_is_written_once_in_each() -> None:
    ledger = Ledger()
    assert ledger.register("a", FLIGHT) == 1
    assert ledger.register("b", FLIGHT) == 1
    written = len(ledger.records)
    assert ledger.register("a", FLIGHT) == 1
    assert len(ledger.records) == written
    assert ledger.register("a", FLIGHT_2) == 2
    assert ledger.register("a", FLIGHT) == 1, "an older version is found too"
    assert ledger.state.holders(".", 1) == {"a": 1, "b": 1}


def test_contexts_give_ids_of_their_own_and_are_written_down_once() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    ledger.register("a", FLIGHT_2)
    assert ledger.register(":.fleet:a", FLIGHT_2) == 1
    assert ledger.register(":.fleet:b", FLIGHT_3) == 2
    assert ledger.state.all_contexts() == [".", ".fleet"]
    assert len(ledger.records) == 5, "two schemas, a context, two schemas"


def test_an_incompatible_schema_is_refused_with_the_place_at_fault() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    message = refused(409, lambda: ledger.register("a", record("Flight", ("number", "int"), ("gate", "string"))))
    assert 'incompatible with an earlier schema for subject "a"' in message
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    assert "/fields/1" in message
    assert ledger.register("a", record("Flight", ("number", "int"), ("gate", "string")), force=True) == 2


def test_the_nearest_level_counts() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    breaking = record("Flight", ("number", "string"))
    refused(409, lambda: ledger.register("a", breaking))
    ledger.carry_out(decisions.set_config(ledger.state, None, read_config({"compatibility": "none"})))
    ledger.carry_out(decisions.set_config(ledger.state, "a", read_config({"compatibility": "FULL"})))
    refused(409, lambda: ledger.register("a", breaking))
    ledger.carry_out(decisions.delete_config(ledger.state, "a"))
    assert ledger.register("a", breaking) == 2


def test_a_transitive_level_looks_at_every_living_version() -> None:
    ledger = Ledger()
    ledger.register("a", record("R", ("x", "int"), ("y", "int", 0)))
    ledger.register("a", record("R", ("x", "int")))
    third = record("R", ("x", "int"), ("y", "string", ""))
    ledger.carry_out(decisions.set_config(ledger.state, "a", {"compatibilityLevel": "BACKWARD_TRANSITIVE"}))
    refused(409, lambda: ledger.register("a", third))
    ledger.carry_out(decisions.delete_version(ledger.state, "a", 1, permanent=False))
    assert ledger.register("a", third) == 3


def test_a_compatibility_group_keeps_lines_of_versions_apart() -> None:
    ledger = Ledger()
    ledger.carry_out(decisions.set_config(ledger.state, "a", {"compatibilityGroup": "major"}))
    ledger.register("a", FLIGHT, metadata={"properties": {"major": "1"}})
    breaking = record("Flight", ("number", "string"))
    refused(409, lambda: ledger.register("a", breaking, metadata={"properties": {"major": "1"}}))
    assert ledger.register("a", breaking, metadata={"properties": {"major": "2"}}) == 2


def test_metadata_and_rules_make_another_schema_and_stay_until_others_come() -> None:
    ledger = Ledger()
    assert ledger.register("a", FLIGHT, metadata={"properties": {"owner": "ops"}}) == 1
    assert ledger.register("b", FLIGHT) == 2
    assert ledger.register("a", FLIGHT_2) == 3
    assert ledger.state.versions("a")[-1].metadata == {"properties": {"owner": "ops"}}
    rules = {"domainRules": [{"name": "r", "type": "CEL", "mode": "WRITE", "expr": "true"}]}
    assert ledger.register("a", "", ruleSet=rules) == 4, "the text stays too if only rules come"
    latest = ledger.state.versions("a")[-1]
    assert (latest.text, latest.rule_set) == (ledger.state.versions("a")[-2].text, rules)


def test_what_is_no_schema_is_refused() -> None:
    ledger = Ledger()
    assert "Invalid schema of type AVRO" in refused(42201, lambda: ledger.register("a", '{"type": "nope"}'))
    assert "Invalid schema type THRIFT" in refused(42201, lambda: ledger.register("a", "x", schemaType="THRIFT"))
    refused(42201, lambda: ledger.register("a", "  "))
    refused(42208, lambda: ledger.register("__GLOBAL", FLIGHT))
    refused(42201, lambda: ledger.register("a", FLIGHT, version=5))
    assert ledger.register("a", FLIGHT, version=1) == 1


def test_normalize_makes_texts_that_mean_the_same_one_schema() -> None:
    ledger = Ledger()
    spaced = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "int"}}]}'
    first = ledger.register("a", spaced, normalize=True)
    assert ledger.register("b", record("R", ("x", "int")), normalize=True) == first
    ledger.carry_out(decisions.set_config(ledger.state, None, {"normalize": True}))
    assert ledger.register("c", spaced) == first


# References


def test_references_are_resolved_down_to_the_last_and_minus_one_is_the_latest() -> None:
    ledger = Ledger()
    ledger.register("point", record("Point", ("x", "int")))
    ledger.register("line", record("Line", ("from", "Point")), references=[{"name": "Point", "subject": "point", "version": 1}])
    ledger.register(
        "path",
        record("Path", ("lines", {"type": "array", "items": "Line"})),
        references=[{"name": "Line", "subject": "line", "version": -1}],
    )
    path = ledger.state.versions("path")[0]
    assert path.references[0].version == 1
    assert lookups.referenced_by(ledger.state, "line", 1, deleted=False) == [path.id]
    message = refused(
        42201, lambda: ledger.register("x", record("X", ("p", "Nowhere")), references=[{"name": "N", "subject": "n", "version": 4}])
    )
    assert '"n" and version 4' in message


def test_what_others_refer_to_cannot_be_deleted() -> None:
    ledger = Ledger()
    ledger.register("point", record("Point", ("x", "int")))
    ledger.register("line", record("Line", ("from", "Point")), references=[{"name": "Point", "subject": "point", "version": 1}])
    message = refused(42206, lambda: decisions.delete_version(ledger.state, "point", 1, permanent=False))
    assert message == "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=point,version=1}."
    refused(42206, lambda: decisions.delete_subject(ledger.state, "point", permanent=False))
    ledger.carry_out(decisions.delete_subject(ledger.state, "line", permanent=False))
    ledger.carry_out(decisions.delete_subject(ledger.state, "point", permanent=False))
    refused(42206, lambda: decisions.delete_subject(ledger.state, "point", permanent=True))
    ledger.carry_out(decisions.delete_subject(ledger.state, "line", permanent=True))
    assert ledger.carry_out(decisions.delete_subject(ledger.state, "point", permanent=True)) == [1]


# Deleting


def test_a_deleted_version_is_gone_from_lists_but_its_id_still_finds_its_schema() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    ledger.register("a", FLIGHT_2)
    assert ledger.carry_out(decisions.delete_version(ledger.state, "a", 1, permanent=False)) == 1
    state = ledger.state
    assert lookups.version_numbers(state, "a", deleted=False, deleted_only=False, deleted_negative=False) == [2]
    assert lookups.version_numbers(state, "a", deleted=True, deleted_only=False, deleted_negative=False) == [1, 2]
    assert lookups.version_numbers(state, "a", deleted=False, deleted_only=False, deleted_negative=True) == [-1, 2]
    refused(40402, lambda: lookups.version(state, "a", 1, deleted=False))
    assert lookups.by_id(state, 1, None).version == 1
    refused(40406, lambda: decisions.delete_version(state, "a", 1, permanent=False))
    refused(40407, lambda: decisions.delete_version(state, "a", 2, permanent=True))
    ledger.carry_out(decisions.delete_version(state, "a", 1, permanent=True))
    refused(40403, lambda: lookups.by_id(state, 1, None))
    refused(40402, lambda: decisions.delete_version(state, "a", 1, permanent=True))
    refused(40401, lambda: decisions.delete_version(state, "b", 1, permanent=True))


def test_a_schema_that_comes_back_gets_a_new_version_and_its_old_id() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    ledger.register("a", FLIGHT_2)
    ledger.carry_out(decisions.delete_version(ledger.state, "a", 2, permanent=False))
    assert ledger.register("a", FLIGHT_2) == 2
    assert [(each.version, each.id, each.deleted) for each in ledger.state.versions("a")] == [(1, 1, False), (3, 2, False)]


def test_a_subject_goes_softly_first_then_for_good_with_its_settings() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    ledger.register("a", FLIGHT_2)
    ledger.carry_out(decisions.set_config(ledger.state, "a", {"compatibilityLevel": "FULL"}))
    ledger.carry_out(decisions.set_mode(ledger.state, "a", "READWRITE", force=False))
    state = ledger.state
    refused(40405, lambda: decisions.delete_subject(state, "a", permanent=True))
    assert ledger.carry_out(decisions.delete_subject(state, "a", permanent=False)) == [1, 2]
    refused(40404, lambda: decisions.delete_subject(state, "a", permanent=False))
    assert list(lookups.subjects(state, ":*:", deleted=False, deleted_only=False)) == []
    assert list(lookups.subjects(state, ":*:", deleted=False, deleted_only=True)) == ["a"]
    assert ledger.carry_out(decisions.delete_subject(state, "a", permanent=True)) == [1, 2]
    assert (state.subjects(), state.configs, state.modes) == ([], {}, {})
    refused(40401, lambda: decisions.delete_subject(state, "a", permanent=True))
    assert ledger.register("b", FLIGHT_3) == 3, "ids are not given twice"


def test_a_context_can_be_deleted_when_nothing_is_in_it() -> None:
    ledger = Ledger()
    ledger.register(":.fleet:a", FLIGHT)
    refused(42211, lambda: decisions.delete_context(ledger.state, ".fleet"))
    ledger.carry_out(decisions.delete_subject(ledger.state, ":.fleet:a", permanent=False))
    ledger.carry_out(decisions.delete_subject(ledger.state, ":.fleet:a", permanent=True))
    ledger.carry_out(decisions.delete_context(ledger.state, ".fleet"))
    assert ledger.state.all_contexts() == ["."]


def test_a_record_that_replaces_the_only_one_of_a_context_does_not_free_the_ids_that_were_given() -> None:
    """Messages carry them. A soft deletion rewrites the record of a version, and so may another registry, with another id."""
    ledger = Ledger()
    written = [SchemaVersion(":.c:a", number, number, f'"{kind}"') for number, kind in enumerate(("int", "long", "string"), 1)]
    ledger.write([(encode_key(SchemaKey(each.subject, each.version)), encode_schema(each)) for each in written])
    for number in (3, 2):
        ledger.write([(encode_key(SchemaKey(":.c:a", number)), None)])
    ledger.carry_out(decisions.delete_version(ledger.state, ":.c:a", 1, permanent=False))
    assert (ledger.state.id_max(".c"), ledger.state.next_id(".c")) == (3, 4)
    ledger.write([(encode_key(SchemaKey(":.c:a", 1)), encode_schema(SchemaVersion(":.c:a", 1, 2, '"long"')))])
    assert ledger.register(":.c:b", FLIGHT) == 4


# Modes


def test_where_nothing_may_be_changed_nothing_is() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    ledger.carry_out(decisions.set_mode(ledger.state, None, "READONLY", force=False))
    message = refused(42205, lambda: ledger.register("a", FLIGHT_2))
    assert message == "Subject a in context  is in read-only mode"
    assert ledger.register("a", FLIGHT) == 1, "a producer that starts again registers what is there"
    refused(42205, lambda: decisions.delete_subject(ledger.state, "a", permanent=False))
    refused(42205, lambda: decisions.set_config(ledger.state, "a", {}))
    ledger.carry_out(decisions.set_mode(ledger.state, "a", "READWRITE", force=False))
    assert ledger.register("a", FLIGHT_2) == 2


def test_schemas_are_imported_with_their_ids_and_versions() -> None:
    ledger = Ledger()
    refused(42205, lambda: ledger.register("a", FLIGHT, id=70))
    ledger.carry_out(decisions.set_mode(ledger.state, None, "IMPORT", force=False))
    refused(42205, lambda: ledger.register("a", FLIGHT))
    assert ledger.register("a", FLIGHT, id=70, version=3) == 70
    assert ledger.register("a", record("Other", ("x", "string")), id=71, version=9) == 71, "nothing is judged"
    message = refused(42205, lambda: ledger.register("b", FLIGHT_2, id=70))
    assert message == "Overwrite new schema with id 70 in context  is not permitted."
    ledger.carry_out(decisions.set_mode(ledger.state, None, "READWRITE", force=False))
    assert ledger.register("c", FLIGHT_3) == 72
    assert [each.version for each in ledger.state.versions("a")] == [3, 9]


def test_importing_needs_an_empty_place_unless_it_is_forced() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    message = refused(42205, lambda: decisions.set_mode(ledger.state, "a", "IMPORT", force=False))
    assert message == "Cannot import since found existing subjects"
    decisions.set_mode(ledger.state, "a", "IMPORT", force=True)
    ledger.carry_out(decisions.delete_subject(ledger.state, "a", permanent=False))
    decision = decisions.set_mode(ledger.state, "a", "IMPORT", force=False)
    assert [key for key, _ in decision.writes][:2] == [encode_key(SchemaKey("a", 1)), encode_key(ClearSubjectKey("a"))]
    ledger.carry_out(decision)
    assert ledger.state.subjects() == []
    assert mode_in_scope(ledger.state, "a") == "IMPORT"
    assert mode_in_scope(ledger.state, "b") == "READWRITE"


def test_modes_are_taken_back_one_by_one_or_all_of_a_context() -> None:
    ledger = Ledger()
    refused(40401, lambda: decisions.delete_mode(ledger.state, "a", recursive=False))
    for scope in (":.fleet:", ":.fleet:a", "b"):
        ledger.carry_out(decisions.set_mode(ledger.state, scope, "READONLY", force=False))
    assert ledger.carry_out(decisions.delete_mode(ledger.state, "b", recursive=False)) == {"mode": "READONLY"}
    assert mode_in_scope(ledger.state, ":.fleet:new") == "READONLY"
    ledger.carry_out(decisions.delete_mode(ledger.state, ":.fleet:", recursive=True))
    assert ledger.state.modes == {}


def test_settings_for_all_contexts_come_after_those_of_one() -> None:
    ledger = Ledger()
    ledger.carry_out(decisions.set_config(ledger.state, ":.__GLOBAL:", {"compatibilityLevel": "FULL", "normalize": True}))
    ledger.carry_out(decisions.set_config(ledger.state, ":.fleet:", {"compatibilityLevel": "NONE"}))
    assert config_in_scope(ledger.state, ":.fleet:a") == {"compatibilityLevel": "NONE", "normalize": True}
    assert config_in_scope(ledger.state, "a") == {"compatibilityLevel": "FULL", "normalize": True}


def test_a_configuration_changes_what_is_given_and_forgets_what_is_null() -> None:
    ledger = Ledger()
    ledger.carry_out(decisions.set_config(ledger.state, "a", read_config({"compatibility": "FULL", "alias": "b"})))
    answer = ledger.carry_out(decisions.set_config(ledger.state, "a", read_config({"alias": None, "normalize": True})))
    assert answer == {"compatibility": "FULL", "normalize": True}
    assert ledger.state.configs["a"] == {"compatibilityLevel": "FULL", "normalize": True}


@pytest.mark.parametrize(
    ("code", "read", "body"),
    [
        (42203, read_config, {"compatibility": "SIDEWAYS"}),
        (422, read_config, {"normalize": "yes"}),
        (422, read_config, {"alias": 4}),
        (422, read_config, {"defaultMetadata": {"tags": {"a": "b"}}}),
        (42210, read_config, {"overrideRuleSet": {"domainRules": [{"type": "CEL"}]}}),
        (42204, read_mode, {"mode": "SLOW"}),
        (422, read_mode, []),
        (422, read_schema, []),
        (422, read_schema, {"schema": {"type": "string"}}),
        (422, read_schema, {"schema": "x", "references": {"a": 1}}),
        (422, read_schema, {"schema": "x", "references": [{"name": "a"}]}),
        (422, read_schema, {"schema": "x", "id": "7"}),
        (422, read_schema, {"schema": "x", "id": 2**31}),
        (422, read_schema, {"schema": "x", "version": -7}),
        (422, read_schema, {"schema": "x", "metadata": {"properties": {"a": 1}}}),
        (422, read_schema, {"schema": "x", "metadata": {"sensitive": "a"}}),
        (422, read_schema, {"schema": "x", "ruleSet": {"domainRules": {"a": 1}}}),
        (42210, read_schema, {"schema": "x", "ruleSet": {"domainRules": [{"name": "r"}]}}),
        (42210, read_schema, {"schema": "x", "ruleSet": {"domainRules": [{"name": "r", "type": "a"}, {"name": "r", "type": "a"}]}}),
        (42210, read_schema, {"schema": "x", "ruleSet": {"domainRules": [{"name": "r", "type": "a", "params": [1]}]}}),
        *((42210, read_schema, {"schema": "x", "ruleSet": {"domainRules": [{"name": "r", "type": "a", **odd}]}}) for odd in ODD_RULES),
        (42210, read_schema, {"schema": "x", "ruleSet": {"migrationRules": [{"name": "r", "type": "a", "mode": "WRITE"}]}}),
        (422, read_schema, {"schema": "x", "ruleSet": {"enableAt": 1}}),
    ],
)
def test_bodies_of_another_shape_are_refused_by_name(code: int, read: Any, body: Any) -> None:
    refused(code, lambda: read(body))


# Looking up


def test_a_schema_is_found_by_its_text_by_its_guid_and_by_its_metadata() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT, metadata={"properties": {"stage": "old"}})
    ledger.register("a", FLIGHT_2, metadata={"properties": {"stage": "new"}})
    state = ledger.state
    body = read_schema({"schema": json.dumps(FLIGHT)})
    assert lookups.find(state, "a", body, normalize=False, deleted=False).version == 1
    with_other = read_schema({"schema": json.dumps(FLIGHT), "metadata": {"properties": {"stage": "other"}}})
    refused(40403, lambda: lookups.find(state, "a", with_other, normalize=False, deleted=False))
    refused(40401, lambda: lookups.find(state, "z", body, normalize=False, deleted=False))
    assert lookups.latest_with_metadata(state, "a", {"stage": "old"}, deleted=False).version == 1
    refused(40403, lambda: lookups.latest_with_metadata(state, "a", {"stage": "none"}, deleted=False))
    found = lookups.by_guid(state, guid(state.versions("a")[1].fingerprint))
    assert found.version == 2
    refused(40403, lambda: lookups.by_guid(state, "095d71cf-1255-6b9d-5e33-0ad575b3df5d"))


def test_an_id_of_another_context_is_found_by_the_subject() -> None:
    ledger = Ledger()
    ledger.register(":.fleet:a", FLIGHT)
    refused(40403, lambda: lookups.by_id(ledger.state, 1, None))
    assert lookups.by_id(ledger.state, 1, ":.fleet:").subject == ":.fleet:a"
    assert lookups.by_id(ledger.state, 1, "a").subject == ":.fleet:a"
    refused(40403, lambda: lookups.by_id(ledger.state, 1, "b"))
    ledger.register("b", FLIGHT_2)
    assert lookups.by_id(ledger.state, 1, "nobody").subject == "b", "an id counts more than the subject beside it"


def test_compatibility_is_judged_beside_one_version_or_all() -> None:
    ledger = Ledger()
    ledger.register("a", record("R", ("x", "int")))
    ledger.register("a", record("R", ("x", "long")))
    narrow = read_schema({"schema": json.dumps(record("R", ("x", "int")))})

    def ask(number: int | None) -> list[str]:
        return lookups.compatibility(ledger.state, "a", number, narrow, normalize=False)

    assert ask(1) == []
    assert any("TYPE_MISMATCH" in line for line in ask(2))
    assert ask(-1)
    assert ask(None)
    refused(40402, lambda: ask(7))
    assert lookups.compatibility(ledger.state, "new", -1, narrow, normalize=False) == []


# What the log says


def test_the_state_is_the_same_after_compaction() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    ledger.register("a", FLIGHT_2)
    ledger.register(":.fleet:b", FLIGHT)
    ledger.carry_out(decisions.delete_version(ledger.state, "a", 2, permanent=False))
    ledger.register("a", FLIGHT_3)
    ledger.register("c", FLIGHT_2)
    ledger.carry_out(decisions.delete_subject(ledger.state, "c", permanent=False))
    ledger.carry_out(decisions.set_config(ledger.state, "a", {"compatibilityLevel": "FULL"}))
    again = ledger.compacted()
    for state in (ledger.state, again):
        assert [(each.version, each.id, each.deleted) for each in state.versions("a")] == [(1, 1, False), (2, 2, True), (3, 3, False)]
        assert [(each.version, each.id, each.deleted) for each in state.versions("c")] == [(1, 2, True)]
        assert state.versions(":.fleet:b")[0].id == 1
        assert state.configs == {"a": {"compatibilityLevel": "FULL"}}
        assert state.id_max(".") == 3


def test_an_id_that_is_taken_is_not_given_again_by_whatever_record(caplog: pytest.LogCaptureFixture) -> None:
    """Two registries that both wrote, of another make, leave two schemas with one id; the first keeps it."""
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    other = Ledger()
    other.register("b", FLIGHT_2)
    ledger.write(other.records)
    assert ledger.state.subjects() == ["a"]
    assert "offset=1 reason=it gives id 1 to subject b version 1" in caplog.text


def test_records_that_cannot_be_understood_are_skipped_loudly(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    ledger.write([(None, b"x"), (b"x", None), (encode_key(SchemaKey("a", 1)), b"{"), (b'{"keytype":"ASSOC","magic":0}', b"{}")])  # type: ignore[list-item]
    ledger.register("a", FLIGHT)
    assert [each.version for each in ledger.state.versions("a")] == [1]
    for offset in range(4):
        assert f"registry record skipped: offset={offset}" in caplog.text
