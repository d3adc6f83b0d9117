"""Framed Avro values become typed columns: types as from_avro has them, resolution by Avro's rules, a reason for each that fails."""

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from moldau.lake.avro.columns import NULL_VALUE, AvroColumns
from moldau.lake.avro.schemas import AvroSchemaError, AvroText
from moldau.lake.avro.types import arrow_schema
from moldau.registry.client import Reference, RegistryUnavailableError
from moldau.registry.wire import frame
from support.avro_registry import MemoryRegistry, encoded


def record(*fields: Any, name: str = "Event", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def decode(registry: MemoryRegistry, *values: bytes | None, **given: Any) -> Any:
    return AvroColumns(registry, **{"subject": "events-value", **given}).decode(pa.array(values, pa.binary()))


EVERY_TYPE = record(
    field("null", "null"),
    field("yes", "boolean"),
    field("int", "int"),
    field("long", "long"),
    field("float", "float"),
    field("double", "double"),
    field("bytes", "bytes"),
    field("string", "string"),
    field("day", {"type": "int", "logicalType": "date"}),
    field("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    field("us", {"type": "long", "logicalType": "timestamp-micros"}),
    field("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    field("clock", {"type": "int", "logicalType": "time-millis"}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    field("uuid", {"type": "string", "logicalType": "uuid"}),
    field("guid", {"type": "fixed", "name": "Guid", "size": 4}),
    field("color", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}),
    field("color2", ["null", "Color"]),
    field("maybe", ["null", "long"]),
    field("inner", record(field("x", "int"), field("y", ["string", "null"]), name="Inner")),
    field("list", {"type": "array", "items": "Inner"}),
    field("map", {"type": "map", "values": ["null", "double"]}),
    field("number", ["int", "long"]),
    field("any", ["null", "string", "Inner", "Guid", "boolean"]),
)


def test_every_type() -> None:
    schema = arrow_schema(json.dumps(EVERY_TYPE))
    inner = "struct<x: int32, y: string>"
    assert [f"{each.name} {each.type}" for each in schema] == [
        "null null", "yes bool", "int int32", "long int64", "float float", "double double", "bytes binary", "string string",
        "day date32[day]", "ms timestamp[us, tz=UTC]", "us timestamp[us, tz=UTC]", "local timestamp[us]", "clock int32",
        "price decimal128(10, 2)", "uuid string", "guid binary", "color string", "color2 string", "maybe int64", f"inner {inner}",
        f"list list<element: {inner}>", "map map<string, double>", "number int64",
        f"any struct<member0: string, member1: {inner}, member2: binary, member3: bool>",
    ]  # fmt: skip
    registry = MemoryRegistry()
    number = registry.add(EVERY_TYPE)
    event = {
        "null": None, "yes": True, "int": -7, "long": 1 << 40, "float": 1.5, "double": 0.1, "bytes": b"\xff", "string": "Moldau ~ Vltava",
        "day": 1, "ms": 1_357_000_000_123, "us": 1, "local": 2, "clock": 3, "price": b"\xff\x85", "uuid": "u", "guid": b"abcd",
        "color": "BLUE", "color2": None, "maybe": 5, "inner": {"x": 1, "y": None}, "list": [{"x": 2, "y": "z"}],
        "map": {"a": 1.0, "b": None}, "number": 3, "any": ("Inner", {"x": 9, "y": "w"}),
    }  # fmt: skip
    decoded = decode(registry, registry.framed(number, event))
    [row] = decoded.batch.to_pylist()
    assert decoded.batch.schema == schema
    assert row == {
        **event, "day": date(1970, 1, 2), "ms": datetime(2013, 1, 1, 0, 26, 40, 123_000, UTC), "us": datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
        "local": datetime(1970, 1, 1, 0, 0, 0, 2000), "price": Decimal("-1.23"), "map": [("a", 1.0), ("b", None)],  # noqa: DTZ001
        "any": {"member0": None, "member1": {"x": 9, "y": "w"}, "member2": None, "member3": None},
    }  # fmt: skip


def test_each_member_of_a_union_has_its_place() -> None:
    registry = MemoryRegistry()
    colors = {"type": "enum", "name": "Color", "symbols": ["RED"]}
    number = registry.add(record(field("v", ["null", "string", colors, "bytes", {"type": "array", "items": "long"}])))
    events = ["text", ("Color", "RED"), b"raw", [1, 2], None]
    rows = decode(registry, *(registry.framed(number, {"v": each}) for each in events)).batch.to_pylist()
    members = [{name: value for name, value in (row["v"] or {}).items() if value is not None} for row in rows]
    assert members == [{"member0": "text"}, {"member1": "RED"}, {"member2": b"raw"}, {"member3": [1, 2]}, {}]
    assert rows[-1]["v"] is None


def test_a_reader_s_schema_has_defaults_promotions_aliases_and_its_own_order() -> None:
    registry = MemoryRegistry()
    old = registry.add(record(field("n", "int"), field("gone", "string"), field("old_name", "string"), field("r", "float")))
    new = record(
        field("added", "bytes", default="\u00ff"),
        field("nothing", ["null", "long"], default=None),
        field("name", ["null", "string"], aliases=["old_name"], default=None),
        field("n", "double"),
        field("r", "double"),
        field("nested", record(field("k", "long", default=3), name="Nested"), default={}),
    )
    newest = registry.add(new)
    values = [
        registry.framed(old, {"n": 1, "gone": "x", "old_name": "a", "r": 0.5}),
        registry.framed(newest, {"added": b"b", "nothing": 4, "name": None, "n": 2.5, "r": 1.0, "nested": {"k": 5}}),
        registry.framed(old, {"n": 3, "gone": "", "old_name": "c", "r": 2.0}),
    ]
    decoded = decode(registry, *values)
    assert decoded.rows.tolist() == [0, 1, 2]
    assert [tuple(row.values()) for row in decoded.batch.to_pylist()] == [
        (b"\xff", None, "a", 1.0, 0.5, {"k": 3}),
        (b"b", 4, None, 2.5, 1.0, {"k": 5}),
        (b"\xff", None, "c", 3.0, 2.0, {"k": 3}),
    ]


def test_a_value_that_cannot_be_decoded_has_a_reason_and_fails_no_other() -> None:
    registry = MemoryRegistry()
    old = registry.add(record(field("n", "int"), field("s", "string"), field("t", {"type": "long", "logicalType": "timestamp-millis"})))
    unreadable = registry.add(record(field("n", "string"), name="Other"), subject="other-value")
    protobuf = registry.add('syntax = "proto3";', subject="other-value", kind="PROTOBUF")
    recursive = registry.add(record(field("next", ["null", "Node"]), name="Node"), subject="other-value")
    schema = json.loads(registry.schemas[old].text)
    good = encoded(schema, {"n": 1, "s": "x", "t": 0})
    values = {
        frame(old, good): "",
        None: NULL_VALUE,
        b"\0\0\0": "a value of 3 bytes has no room for the schema id: 5 bytes are needed",
        b"{" + frame(old, good)[1:]: "the first byte is 0x7b, not 0x00: the value does not carry a schema id",
        b"\0\xff\xff\xff\xff" + good: "the schema id is negative: the value does not carry a schema id",
        frame(77, good): "schema id 77 is not known to the registry",
        frame(old, good[:-1]): "schema id 1: the value ends in the middle of the event",
        frame(old, b""): "schema id 1: the value ends in the middle of the event",
        frame(old, good + b"\0"): "schema id 1: 1 of 5 bytes are left after the event",
        frame(old, b"\x80\x80\x80\x80\x20\0\0"): "schema id 1: Value 4294967296 too large to fit in C integer type",
        frame(old, b"\x02\x04\xff\xfe\0"): "schema id 1: a string is not UTF-8: invalid start byte at its byte 0",
        frame(old, b"\x02\x02x\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"): "schema id 1: a date or timestamp is in no year from 1 to 9999",
        frame(unreadable, b"\x02x"): "schema id 2: Schema mismatch",
        frame(protobuf, b""): "schema id 3: it is a schema of type PROTOBUF, not AVRO",
        frame(recursive, b"\0"): "schema id 4: record Node contains itself: there are no columns for that",
        frame(old, encoded(schema, {"n": 2, "s": "y", "t": 1})): "",
    }
    decoded = decode(registry, *values)
    assert decoded.rows.tolist() == [0, len(values) - 1]
    assert [row["n"] for row in decoded.batch.to_pylist()] == [1, 2]
    for number, reason in enumerate(values.values()):
        if reason:
            assert decoded.rejected[number].startswith(reason), decoded.rejected[number]
    assert len(decoded.rejected) == len(values) - 2


def test_a_schema_is_asked_for_once_and_a_silent_registry_rejects_nothing() -> None:
    registry = MemoryRegistry()
    number = registry.add(record(field("n", "int")))
    columns = AvroColumns(registry, subject="events-value")
    values = pa.array([registry.framed(number, {"n": n}) for n in range(3)])
    for _ in range(3):
        assert columns.decode(values).batch.num_rows == 3
    assert registry.asked == [number]
    registry.failure = RegistryUnavailableError("nobody there")
    with pytest.raises(RegistryUnavailableError):
        columns.decode(pa.array([frame(9, b"")]))


def test_slices_chunks_and_nothing_at_all() -> None:
    registry = MemoryRegistry()
    number = registry.add(record(field("n", "int")))
    columns = AvroColumns(registry, subject="events-value")
    values = pa.array([registry.framed(number, {"n": n}) for n in range(10)])
    assert columns.decode(values.slice(3, 4)).batch.column("n").to_pylist() == [3, 4, 5, 6]
    assert columns.decode(pa.chunked_array([values.slice(0, 2), values.slice(8)])).batch.column("n").to_pylist() == [0, 1, 8, 9]
    assert columns.decode(values.cast(pa.large_binary())).batch.num_rows == 10
    for nothing in (pa.array([], pa.binary()), pa.chunked_array([], pa.binary()), pa.array([None], pa.binary())):
        decoded = columns.decode(nothing)
        assert decoded.batch.schema == columns.schema
        assert decoded.batch.num_rows == 0


def test_references_and_schemas_that_are_no_record() -> None:
    registry = MemoryRegistry()
    registry.add({"type": "enum", "name": "a.Color", "symbols": ["RED", "BLUE"]}, subject="color")
    registry.add(record(field("c", "a.Color"), name="a.Paint"), subject="paint", references=(Reference("a.Color", "color", 1),))
    number = registry.add(record(field("p", "a.Paint"), field("c", "a.Color")), references=(Reference("a.Paint", "paint", 1),))
    assert decode(registry, frame(number, b"\x02\x00")).batch.to_pylist() == [{"p": {"c": "BLUE"}, "c": "RED"}]
    simple = registry.add('"string"', subject="simple")
    assert decode(registry, frame(simple, b"\x04ab"), subject="simple").batch.to_pylist() == [{"value": "ab"}]


def test_a_copy_carries_the_reader_s_schema() -> None:
    given = AvroText(json.dumps(record(field("n", "int"))))
    copied = pickle.loads(pickle.dumps(AvroColumns("http://127.0.0.1:1", reader_schema=given)))
    assert copied.reader_schema == given
    assert copied.schema == pa.schema([("n", pa.int32())])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "not an Avro schema: JSONDecodeError"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "what"}]}', "not an Avro schema: UnknownType: what"),
        ('{"type": "record"}', "not an Avro schema"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]}', "record R contains itself"),
    ],
)
def test_what_is_no_schema_is_said(schema: str, message: str) -> None:
    with pytest.raises(AvroSchemaError, match=message):
        arrow_schema(schema)


def test_an_array_of_what_takes_no_bytes_is_refused() -> None:
    """Ten bytes could say that there are 2**62 of them."""
    registry = MemoryRegistry()
    number = registry.add(record(field("a", {"type": "array", "items": "null"})))
    assert decode(registry, frame(number, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0")).rejected == {
        0: "schema id 1: an array of what takes no bytes cannot be read safely"
    }


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_a_fixed_that_no_event_can_have_is_refused(listed: bool, read: bool) -> None:
    """To place columns by its size would be arithmetic of nonsense. The others of the batch are decoded."""
    registry = MemoryRegistry()
    vast: Any = {"type": "fixed", "name": "F", "size": 2**63 - 1}
    here = field("a", {"type": "map", "values": vast} if listed else vast, default={} if listed else "")
    huge = registry.add(record(field("n", "int"), here))
    sane = registry.add(record(field("n", "int"), *([] if read else [field("more", "int", default=1)])))
    if read:
        registry.add(record(field("n", "int"), here))
    decoded = decode(registry, registry.framed(sane, {"n": 7, "more": 1}), frame(huge, b"\x02\x02\x00" + b"x" * 40))
    assert decoded.rejected[1] == f"schema id {huge}: fixed F has {2**63 - 1} bytes, and no event has more than {2**31 - 1}"
    assert read or decoded.batch.column("n").to_pylist() == [7]


@pytest.mark.parametrize(
    ("kind", "default", "want"),
    [
        (["null", "bytes"], "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
        (["bytes", "null"], "\u00ff", b"\xff"),
        (["null", {"type": "fixed", "name": "F", "size": 1}], "\u00ff", b"\xff"),
        (["null", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}], "\u0001", Decimal("0.01")),
        (["null", {"type": "array", "items": "bytes"}], ["\u00ff"], [b"\xff"]),
        (["null", "double"], 1, 1.0),
        (["null", "string"], "x", "x"),
    ],
)
def test_the_default_of_a_union_is_of_whichever_type_it_fits(kind: Any, default: Any, want: Any) -> None:
    registry = MemoryRegistry()
    old = registry.add(record(field("n", "int")))
    registry.add(record(field("n", "int"), field("x", kind, default=default)))
    decoded = decode(registry, registry.framed(old, {"n": 1}))
    assert decoded.rejected == {}
    assert decoded.batch.column("x").to_pylist() == [want]


def test_an_event_that_is_cut_off_in_a_field_that_is_not_read_is_not_taken_for_whole() -> None:
    registry = MemoryRegistry()
    kinds = ["double", "string", {"type": "fixed", "name": "F", "size": 4}, {"type": "array", "items": "float"}, ["null", "double"]]
    for kind in kinds:
        number = registry.add(record(field("n", "int"), field("rest", kind)))
        value = {"double": 1.0, "string": "text"}.get(str(kind), b"abcd" if isinstance(kind, dict) and "size" in kind else 1.5)
        whole = registry.framed(number, {"n": 1, "rest": [1.5] if isinstance(kind, dict) and "items" in kind else value})
        decoded = decode(registry, whole, whole[:-1], whole[:6], columns=["n"])
        assert decoded.rows.tolist() == [0]
        reason = f"schema id {number}: the value ends in the middle of the event"
        assert decoded.rejected == {1: reason, 2: reason}


def test_columns_that_are_named_are_all_that_is_made() -> None:
    registry = MemoryRegistry()
    number = registry.add(EVERY_TYPE)
    columns = AvroColumns(registry, subject="events-value", columns=["uuid", "day"])
    assert columns.schema == pa.schema([("uuid", pa.string()), ("day", pa.date32())])
    assert pickle.loads(pickle.dumps(AvroColumns("h:1", reader_schema='"int"', columns=["value"]))).schema.names == ["value"]
    assert number == 1
