"""A bad event is refused with the path of the field at fault; nothing is guessed, and what fastavro would write wrongly is noticed."""

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest

from moldau.tracking import EventError, EventSchema, event_schema

NOW = datetime(2013, 7, 1, 12, 30, tzinfo=UTC)


def one_field(type_: Any) -> EventSchema:
    """Events with one field, f."""
    return event_schema({"type": "record", "name": "E", "fields": [{"name": "f", "type": type_}]})


def long_of(logical: str) -> dict[str, Any]:
    return {"type": "long", "logicalType": logical}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 7}]}

GOOD: list[tuple[Any, Any, Any]] = [
    ("null", None, None),
    ("boolean", True, True),
    ("int", -(1 << 31), -(1 << 31)),
    ("long", (1 << 63) - 1, (1 << 63) - 1),
    ("float", 1, 1.0),
    ("double", 1, 1.0),
    ("bytes", b"\0\xff", b"\0\xff"),
    ("string", "ß", "ß"),
    (["null", "string"], None, None),
    (["null", "long", "string"], "x", "x"),
    (["null", POINT], {"x": 1}, {"x": 1, "y": 7}),
    ({"type": "array", "items": POINT}, [{"x": 1, "y": 2}, {"x": 3}], [{"x": 1, "y": 2}, {"x": 3, "y": 7}]),
    ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
    (COLOUR, "BLUE", "BLUE"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab"),
    (long_of("timestamp-millis"), NOW, NOW),
    (long_of("timestamp-micros"), NOW, NOW),
    (long_of("local-timestamp-millis"), NOW.replace(tzinfo=None), NOW.replace(tzinfo=None)),
    (long_of("time-micros"), time(1, 2, 3), time(1, 2, 3)),
    ({"type": "int", "logicalType": "date"}, date(2013, 7, 1), date(2013, 7, 1)),
    ({"type": "int", "logicalType": "date"}, -719_162, date.min),
    ({"type": "int", "logicalType": "date"}, 2_932_896, date.max),
    (long_of("timestamp-micros"), 1_372_681_800_000_000, NOW),
    (long_of("timestamp-micros"), -62_135_596_800_000_000, datetime.min.replace(tzinfo=UTC)),
    (long_of("timestamp-micros"), 253_402_300_799_999_999, datetime.max.replace(tzinfo=UTC)),
    (long_of("time-micros"), 86_399_999_999, time.max),
    ({"type": "string", "logicalType": "uuid"}, UUID(int=5), UUID(int=5)),
    (DECIMAL, Decimal("123.45"), Decimal("123.45")),
    (DECIMAL, Decimal(-1), Decimal("-1.00")),
]


@pytest.mark.parametrize(("type_", "value", "read"), GOOD)
def test_a_value_that_fits_is_written(type_: Any, value: Any, read: Any) -> None:
    schema = one_field(type_)
    record = json.loads(schema.text)
    body_schema = fastavro.parse_schema({**record, "fields": record["fields"][1:]})
    assert fastavro.schemaless_reader(io.BytesIO(schema.encode({"f": value})), body_schema, None) == {"f": read}


BAD: list[tuple[Any, Any, str]] = [
    ("null", 0, "E.f: needs nothing"),
    ("boolean", 1, "E.f: needs True or False, not 1 (int)"),
    ("int", True, "E.f: needs a whole number, not True (bool)"),
    ("int", 1 << 31, "E.f: 2147483648 does not fit into 32 bits"),
    ("long", 1 << 63, "E.f: 9223372036854775808 does not fit into 64 bits"),
    ("int", 1.0, "E.f: needs a whole number, not 1.0 (float)"),
    ("double", "1", "E.f: needs a number, not '1' (str)"),
    ("double", 10**400, "does not fit into a double"),
    ("float", 1e39, "E.f: 1e+39 does not fit into a float"),
    ("string", 5, "E.f: needs text, not 5 (int)"),
    ("string", b"x", "E.f: needs text, not b'x' (bytes)"),
    ("string", "\ud800", "E.f: text with half a surrogate pair"),
    ("bytes", "x", "E.f: needs bytes, not 'x' (str)"),
    (["null", "string"], 5, "E.f: needs text, not 5 (int)"),
    (["null", "long", "string"], 1.5, "E.f: needs one of null, long, string, not 1.5 (float)"),
    (POINT, {"x": 1, "y": "no"}, "E.f.y: needs a whole number, not 'no' (str)"),
    (POINT, {"y": 1}, "E.f.x: is missing, and has no default"),
    (POINT, {"x": 1, "z": 1}, "E.f.z: Point has no such field"),
    (POINT, [1], "E.f: needs a dict of Point's fields, not [1] (list)"),
    ({"type": "array", "items": POINT}, [{"x": 1}, {"x": None}], "E.f[1].x: needs a whole number, not None (NoneType)"),
    ({"type": "array", "items": "int"}, "ab", "E.f: needs a list, not 'ab' (str)"),
    ({"type": "map", "values": "int"}, {"a": "b"}, 'E.f["a"]: needs a whole number'),
    ({"type": "map", "values": "int"}, {1: 1}, "E.f[1]: needs text as a key"),
    (COLOUR, "GREEN", "E.f: needs one of RED, BLUE, not 'GREEN' (str)"),
    (COLOUR, ["RED"], "E.f: needs one of RED, BLUE"),
    ({"type": "fixed", "name": "F", "size": 2}, b"abc", "E.f: needs 2 bytes"),
    (long_of("timestamp-millis"), NOW.replace(tzinfo=None), "E.f: needs a datetime with a time zone"),
    (long_of("local-timestamp-micros"), NOW, "E.f: needs a datetime without a time zone"),
    ({"type": "int", "logicalType": "date"}, NOW, "E.f: needs a date"),
    ({"type": "int", "logicalType": "date"}, 1 << 30, "E.f: 1073741824 is no date that can be read"),
    (long_of("timestamp-millis"), 1 << 60, "is no timestamp-millis that can be read"),
    (long_of("time-micros"), -1, "E.f: -1 is no time-micros that can be read"),
    ({"type": "string", "logicalType": "uuid"}, "x", "E.f: needs a UUID, not 'x' (str)"),
    (DECIMAL, Decimal("1.234"), "E.f: 1.234 has more than 5 digits, or more than 2 after the point"),
    (DECIMAL, Decimal("1234.5"), "E.f: 1234.5 has more than 5 digits"),
    (DECIMAL, 1.5, "E.f: needs a Decimal"),
    (DECIMAL, Decimal("NaN"), "E.f: needs a Decimal"),
]


@pytest.mark.parametrize(("type_", "value", "message"), BAD)
def test_a_value_that_does_not_fit_is_refused_with_its_path(type_: Any, value: Any, message: str) -> None:
    with pytest.raises(EventError) as caught:
        one_field(type_).encode({"f": value})
    assert message in str(caught.value)
    assert str(caught.value).startswith(caught.value.path)


def test_what_the_schema_does_not_know_is_a_mistake() -> None:
    schema = one_field("string")
    with pytest.raises(EventError, match=r"^E\.g: E has no such field"):
        schema.encode({"f": "x", "g": 1})
    with pytest.raises(EventError, match=r"^E\.f: is missing"):
        schema.encode({})
    with pytest.raises(EventError, match=r"^E\.header: is filled in by the producer"):
        schema.encode({"f": "x", "header": {}})


@pytest.mark.parametrize("event", [None, 5, "text", [("f", "x")], object()])
def test_what_is_no_event(event: Any) -> None:
    with pytest.raises(EventError, match=r"^E: an event is a dict, or an instance of a dataclass"):
        one_field("string").encode(event)


def test_defaults_of_every_kind_are_written() -> None:
    fields = [
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "amount", "type": DECIMAL, "default": "\u0001\u0000"},
        {"name": "either", "type": ["string", "null"], "default": "x"},
        {"name": "points", "type": {"type": "array", "items": POINT}, "default": [{"x": 1}]},
        {"name": "named", "type": {"type": "map", "values": "bytes"}, "default": {"a": "\u0001"}},
        {"name": "where", "type": "Point", "default": {"x": 5}},
    ]
    schema = event_schema({"type": "record", "name": "E", "fields": fields})
    record = json.loads(schema.text)
    body_schema = fastavro.parse_schema({**record, "fields": record["fields"][1:]})
    assert fastavro.schemaless_reader(io.BytesIO(schema.encode({})), body_schema, None) == {
        "raw": b"\xff",
        "amount": Decimal("2.56"),
        "either": "x",
        "points": [{"x": 1, "y": 7}],
        "named": {"a": b"\x01"},
        "where": {"x": 5, "y": 7},
    }
