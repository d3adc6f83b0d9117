"""The header of a tracked event: the same bytes as fastavro's, read without the rest of the event; hostile bytes are no event."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from xxhash import xxh64

from moldau.tracking.checksum import guid_hash
from moldau.tracking.header import (
    GUID_BYTES,
    HEADER_SCHEMA,
    EventHeader,
    instance_of,
    is_header_type,
    is_tracked_schema,
    read_header,
)

GUID = bytes(range(16))
HEADER = EventHeader(1_300_000_000_123, "checkout", "web-1", "east", GUID)
EVENT_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "PageView",
    "fields": [{"name": "header", "type": HEADER_SCHEMA}, {"name": "page", "type": "string"}],
}


def framed(header: EventHeader, schema_id: int = 7) -> bytes:
    """An event as fastavro writes it."""
    out = io.BytesIO()
    out.write(b"\0" + schema_id.to_bytes(4, "big"))
    named = {"time": header.time_ms, "service": header.service, "host": header.host, "datacenter": header.datacenter, "guid": header.guid}
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVENT_SCHEMA), {"header": named, "page": "/index"})
    return out.getvalue()


def test_the_header_is_read_from_what_fastavro_writes() -> None:
    assert read_header(framed(HEADER)) == read_header(memoryview(framed(HEADER))) == HEADER
    strange = EventHeader(-1, "", "ß", "機械", bytes(16))
    assert read_header(framed(strange)) == strange


def test_the_time_is_in_utc_and_the_guid_names_the_instance() -> None:
    assert HEADER.time == datetime(2011, 3, 13, 7, 6, 40, 123_000, tzinfo=UTC)
    assert HEADER.instance == instance_of(GUID) == "0001020304050607"


def test_every_truncation_is_no_tracked_event() -> None:
    whole = framed(HEADER)
    header_ends = len(whole) - len(b"\x0c/index")
    for length in range(header_ends):
        assert read_header(whole[:length]) is None
    assert read_header(whole[:header_ends]) == HEADER


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b'{"json": "of some length, but without the magic byte"}',
        b"\0\0\0\0\7" + b"\xff" * 40,
        b"\0\0\0\0\7" + b"\x02" + b"\x01" * 40,
        b"\0\0\0\0\7" + b"\x02" + b"\x04\xff\xfe" * 3 + bytes(16),
        b"\0\0\0\0\7" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\0" * 40,
    ],
    ids=["tombstone", "empty", "JSON", "endless varint", "negative length", "no UTF-8", "the year 100000"],
)
def test_other_bytes_are_no_tracked_event(value: bytes | None) -> None:
    assert read_header(value) is None


def test_the_hash_is_that_of_spark() -> None:
    """``SELECT xxhash64(X'000102030405060708090a0b0c0d0e0f')`` in Spark: XXH64 of the bytes with seed 42."""
    assert guid_hash(GUID) == xxh64(GUID, seed=42).intdigest() == 6466567997237536608
    assert len(GUID) == GUID_BYTES


def test_a_schema_is_tracked_if_its_first_field_is_the_header() -> None:
    assert is_tracked_schema(EVENT_SCHEMA)
    assert is_tracked_schema(json.loads(json.dumps(EVENT_SCHEMA)))
    assert not is_tracked_schema("string")
    assert not is_tracked_schema(["null", EVENT_SCHEMA])
    assert not is_tracked_schema({**EVENT_SCHEMA, "fields": EVENT_SCHEMA["fields"][::-1]})
    assert not is_tracked_schema({**EVENT_SCHEMA, "fields": [{"name": "header", "type": "string"}]})
    assert not is_tracked_schema({**EVENT_SCHEMA, "fields": []})


def test_a_header_is_known_by_its_name_and_its_fields() -> None:
    assert is_header_type("moldau.tracking.EventHeader")
    assert is_header_type({**HEADER_SCHEMA, "name": "moldau.tracking.EventHeader", "namespace": "elsewhere", "doc": "other words"})
    assert not is_header_type({**HEADER_SCHEMA, "namespace": "elsewhere"})
    assert not is_header_type({**HEADER_SCHEMA, "fields": HEADER_SCHEMA["fields"][:-1]})
    assert not is_header_type({"type": "array", "items": HEADER_SCHEMA})


def test_a_header_in_its_own_namespace_needs_none() -> None:
    """So a registry writes the schemas of log lines and metrics: what follows from the record around it is left out."""
    bare = {name: value for name, value in HEADER_SCHEMA.items() if name != "namespace"}
    for named in ({"name": "LogLine", "namespace": "moldau.tracking"}, {"name": "moldau.tracking.LogLine"}):
        for header in (bare, "EventHeader", "moldau.tracking.EventHeader", HEADER_SCHEMA):
            assert is_tracked_schema({"type": "record", **named, "fields": [{"name": "header", "type": header}]})
    elsewhere = {"type": "record", "name": "LogLine", "namespace": "shop", "fields": [{"name": "header", "type": bare}]}
    assert not is_tracked_schema(elsewhere)
    assert not is_header_type({**bare, "namespace": ""}, "moldau.tracking"), "no namespace, said so, is none"
