"""Damage in `_schemas`: after any record the registry reads on, logs what it skipped, and continues to register (F1)."""

import json

import pytest

from moldau.registry import decisions
from moldau.registry.errors import RestError
from moldau.registry.records import ConfigKey, ModeKey, SchemaKey, encode_key
from moldau.registry.scopes import config_in_scope
from support.registry import Ledger, record

FLIGHT = record("Flight", ("number", "int"))
SCHEMA = {"subject": "a", "version": 1, "id": 5, "schema": '"int"'}


@pytest.mark.parametrize(
    "value",
    [
        {**SCHEMA, "metadata": {"tags": 5}},
        {**SCHEMA, "metadata": {"properties": ["x"]}},
        {**SCHEMA, "metadata": {"sensitive": [1]}},
        {**SCHEMA, "ruleSet": {"domainRules": "all"}},
        {**SCHEMA, "ruleSet": {"domainRules": [7]}},
        {**SCHEMA, "schema": "\ud800"},
        {**SCHEMA, "schemaType": 7},
        {**SCHEMA, "id": -1},
        {**SCHEMA, "id": 2**31},
        {**SCHEMA, "references": [{"name": "n", "subject": "s", "version": -2}]},
    ],
)
def test_a_schema_that_makes_no_sense_is_left_out_whole(value: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    """The thread that reads the log must not die of it: the registry would answer from an old state for ever."""
    ledger = Ledger()
    ledger.write([(encode_key(SchemaKey("a", 1)), json.dumps(value).encode())])
    assert "registry record skipped: offset=0" in caplog.text
    assert ledger.state.subjects() == []
    assert ledger.register("a", FLIGHT) == 1, "no id was taken by it"


@pytest.mark.parametrize("version", [0, -1, 2**31])
def test_a_version_that_can_be_none_is_left_out(version: int, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    ledger.write([(encode_key(SchemaKey("a", version)), json.dumps(SCHEMA).encode())])
    assert "offset=0 reason=its version is" in caplog.text
    ledger.register("a", FLIGHT)
    assert [each.version for each in ledger.state.versions("a")] == [1]


@pytest.mark.parametrize("value", [{"compatibilityLevel": "SIDEWAYS"}, {"compatibilityLevel": 7}, {"alias": 1}, {"defaultMetadata": "x"}])
def test_a_configuration_that_makes_no_sense_changes_nothing(value: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    ledger.carry_out(decisions.set_config(ledger.state, None, {"compatibilityLevel": "FULL"}))
    ledger.write([(encode_key(ConfigKey(None)), json.dumps(value).encode())])
    assert "registry record skipped: offset=1" in caplog.text
    assert config_in_scope(ledger.state, "a") == {"compatibilityLevel": "FULL"}
    assert ledger.register("a", FLIGHT) == 1


def test_a_mode_of_older_registries_forbids_what_it_forbade() -> None:
    ledger = Ledger()
    ledger.register("a", FLIGHT)
    ledger.write([(encode_key(ModeKey(None)), b'{"mode":"READONLY_OVERRIDE"}')])
    with pytest.raises(RestError, match="read-only mode"):
        decisions.set_config(ledger.state, "a", {})
    with pytest.raises(RestError, match="read-only mode"):
        ledger.register("b", FLIGHT)
