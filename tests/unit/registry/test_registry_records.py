"""The bytes of `_schemas`: what Confluent's registry writes is read, what is written here has its names in its order."""

import pytest

from moldau.registry import records
from moldau.registry.records import RecordError, fingerprint, guid, parse_guid
from moldau.registry.subjects import Reference

CONFLUENT = [
    (
        records.SchemaKey("orders-value", 1),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
    ),
    (records.ConfigKey(None), b'{"keytype":"CONFIG","magic":0}'),
    (records.ConfigKey("orders-value"), b'{"keytype":"CONFIG","subject":"orders-value","magic":0}'),
    (records.ModeKey(None), b'{"keytype":"MODE","magic":0}'),
    (records.ModeKey("orders-value"), b'{"keytype":"MODE","subject":"orders-value","magic":0}'),
    (records.DeleteSubjectKey("orders-value"), b'{"keytype":"DELETE_SUBJECT","subject":"orders-value","magic":0}'),
    (records.ClearSubjectKey("orders-value"), b'{"keytype":"CLEAR_SUBJECT","subject":"orders-value","magic":0}'),
    (records.ContextKey(".fleet"), b'{"keytype":"CONTEXT","tenant":"default","context":".fleet","magic":0}'),
    (records.NoopKey(), b'{"keytype":"NOOP","magic":0}'),
]


@pytest.mark.parametrize(("key", "data"), CONFLUENT)
def test_keys_are_written_and_read_as_theirs(key: records.Key, data: bytes) -> None:
    assert records.encode_key(key) == data
    assert records.decode_key(data) == key


def test_the_value_of_a_schema_has_their_names_in_their_order() -> None:
    schema = records.SchemaVersion(
        "orders-value",
        2,
        7,
        '{"type":"string"}',
        references=(Reference("com.acme.Line", "line-value", 3),),
        metadata={"properties": {"owner": "ünï"}},
        rule_set={"domainRules": [{"name": "r", "type": "CEL"}]},
    )
    assert records.encode_schema(schema).decode() == (
        '{"subject":"orders-value","version":2,"id":7,"schemaType":"AVRO",'
        '"references":[{"name":"com.acme.Line","subject":"line-value","version":3}],'
        '"metadata":{"properties":{"owner":"ünï"}},"ruleSet":{"domainRules":[{"name":"r","type":"CEL"}]},'
        '"schema":"{\\"type\\":\\"string\\"}","deleted":false}'
    )
    assert records.decode_schema(records.SchemaKey("orders-value", 2), records.encode_schema(schema)) == schema


def test_the_values_of_older_and_newer_registries_are_read() -> None:
    """Those before 5.5 know no schema type; those of today add the offset, the time and, for secrets, a hash."""
    key = records.SchemaKey("s", 1)
    old = records.decode_schema(key, b'{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":false}', 5)
    assert (old.type, old.text, old.timestamp_ms) == ("AVRO", '"string"', 5)
    new = records.decode_schema(
        key,
        b'{"subject":"s","version":1,"id":1,"md5":"CVcdzxJVa51eMwrVdbPfXQ==","schemaType":"JSON","schema":"{}","deleted":true,"offset":4,"ts":9}',
    )
    assert (new.type, new.deleted) == ("JSON", True)


def test_settings_and_deletions_round_trip() -> None:
    assert records.encode_config("s", {"normalize": True, "compatibilityLevel": "FULL", "alias": "t"}) == (
        b'{"subject":"s","alias":"t","normalize":true,"compatibilityLevel":"FULL"}'
    )
    assert records.decode_config(b'{"compatibilityLevel":"NONE","later":1}') == {"compatibilityLevel": "NONE"}
    assert records.encode_mode(None, "IMPORT") == b'{"mode":"IMPORT"}'
    assert records.decode_mode(b'{"subject":"s","mode":"READONLY"}') == "READONLY"
    assert records.decode_delete_subject(records.encode_delete_subject("s", 4)) == 4


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b"7",
        b'{"keytype":"SCHEMA","subject":"s","magic":1}',
        b'{"keytype":"SCHEMA","subject":3,"version":1,"magic":1}',
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":2}',
        b'{"keytype":"SCHEMA","subject":"s","version":"1","magic":1}',
        b'{"keytype":"CONTEXT","magic":0}',
        b"[" * 100_000,
    ],
)
def test_keys_that_cannot_be_understood_are_refused(key: bytes | None) -> None:
    with pytest.raises(RecordError):
        records.decode_key(key)


def test_a_kind_from_the_future_is_reported_by_name() -> None:
    assert records.decode_key(b'{"keytype":"ASSOC","magic":0}') == records.UnknownRecordKey("ASSOC")
    with pytest.raises(ValueError, match="ASSOC"):
        records.encode_key(records.UnknownRecordKey("ASSOC"))


@pytest.mark.parametrize("value", [b"x", b"{}", b'{"id":true,"schema":"s"}', b'{"id":1}', b'{"id":1,"schema":"s","references":[1]}'])
def test_values_that_cannot_be_understood_are_refused(value: bytes) -> None:
    with pytest.raises(RecordError):
        records.decode_schema(records.SchemaKey("s", 1), value)


def test_the_guid_of_a_schema_without_anything_beside_it_is_the_md5_of_its_text() -> None:
    """As `printf '"string"' | md5sum` says."""
    assert guid(fingerprint('"string"')) == "095d71cf-1255-6b9d-5e33-0ad575b3df5d"
    assert parse_guid("095d71cf12556b9d5e330ad575b3df5d") == fingerprint('"string"')
    assert parse_guid("none") is None


def test_everything_that_makes_a_schema_another_one_changes_its_guid() -> None:
    plain = ('"string"', (), None, None)
    others = [
        ('"int"', (), None, None),
        ('"string"', (Reference("a", "b", 1),), None, None),
        ('"string"', (Reference("a", "b", 2),), None, None),
        ('"string"', (), {}, None),
        ('"string"', (), {"properties": {"a": "b"}}, None),
        ('"string"', (), {"tags": {"a": ["b"]}, "sensitive": ["c"]}, None),
        ('"string"', (), None, {}),
        ('"string"', (), None, {"domainRules": [{"name": "r", "type": "CEL", "params": {"a": "b"}, "tags": ["t"], "disabled": True}]}),
        ('"string"', (), None, {"domainRules": [{"name": "r", "type": "CEL"}], "enableAt": "PROXY"}),
    ]
    found = [fingerprint(*plain), *(fingerprint(*other) for other in others)]
    # metadata and rules that are there and say nothing count alike: one byte 1 each
    assert len(set(found)) == len(found) - 1
    assert fingerprint('"string"', (), {"tags": {"b": ["2", "1"], "a": []}}) == fingerprint(
        '"string"', (), {"tags": {"a": [], "b": ["1", "2"]}}
    )
