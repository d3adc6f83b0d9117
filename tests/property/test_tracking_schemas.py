"""Random schemas and events: what is accepted is written so that fastavro reads the same; headers."""

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.tracking import EventError, event_schema
from moldau.tracking.header import EventHeader, read_header
from support.sizes import sized

Typed = tuple[Any, st.SearchStrategy[Any]]
"""An Avro type, and values of it that survive a trip unchanged."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = count()
"""Names of types: each has its own."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECONDS = st.integers(0, 4_000_000_000_000).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
SIMPLE: list[Typed] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=5)),
    ("string", TEXT),
    ({"type": "long", "logicalType": "timestamp-millis"}, MILLISECONDS),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        st.integers(-999_999, 999_999).map(lambda n: Decimal(n).scaleb(-2)),
    ),
]
ODDITIES = st.sampled_from([[], {}, "\ud800", (), object, EPOCH])
ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3), ODDITIES)


@st.composite
def typed(draw: Callable[[Any], Any], depth: int = 2) -> Typed:
    """A type; records, enums and fixed have names of their own."""
    kind = draw(st.sampled_from(["simple", "simple", "optional", "array", "map", "record", "enum", "fixed"] if depth else ["simple"]))
    name = f"T{next(NUMBERS)}"
    if kind == "simple":
        found: Typed = draw(st.sampled_from(SIMPLE))
        return found
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    if kind == "record":
        return draw(record(name, depth - 1))  # type: ignore[no-any-return]
    inner, values = draw(typed(depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(TEXT, values, max_size=3)
    return (inner, values) if inner == "null" or isinstance(inner, list) else (["null", inner], st.none() | values)


@st.composite
def record(draw: Callable[[Any], Any], name: str, depth: int) -> Typed:
    """A record of a few fields."""
    fields = [draw(typed(depth)) for _ in range(draw(st.integers(1, 4)))]
    schema = {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": type_} for n, (type_, _) in enumerate(fields)]}
    return schema, st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(fields)})


def read_back(schema: Any, body: bytes) -> Any:
    whole = json.loads(schema.text)
    return fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema({**whole, "fields": whole["fields"][1:]}), None)


@settings(max_examples=sized(25, 600), deadline=None)
@given(st.data())
def test_an_event_comes_back_as_it_was(data: st.DataObject) -> None:
    type_, values = data.draw(record("Event", 2))
    event = data.draw(values)
    schema = event_schema(type_)
    assert read_back(schema, schema.encode(event)) == event


@settings(max_examples=sized(60, 1500), deadline=None)
@given(st.data())
def test_an_event_with_anything_in_one_place_is_refused_or_comes_back(data: st.DataObject) -> None:
    """No other exception than EventError, and nothing is written that reads back as something else: 1 for True, half a number."""
    type_, values = data.draw(record("Event", 1))
    event = data.draw(values)
    event[data.draw(st.sampled_from([*event, "unknown"]))] = data.draw(ANYTHING)
    schema = event_schema(type_)
    try:
        body = schema.encode(event)
    except EventError as error:
        path = error.path
    else:
        path, found = "Event", read_back(schema, body)
        for name, value in event.items():
            if isinstance(found[name], datetime) and type(value) is int:
                value = EPOCH + timedelta(milliseconds=value)
            assert found[name] == value or value != value or value == ()
            same = type(found[name]) is type(value) or {type(found[name]), type(value)} in ({int, float}, {list, tuple})
            assert same, f"{value!r} came back as {found[name]!r}"
    assert path.startswith("Event")


@settings(max_examples=sized(40, 1000), deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_hostile_bytes_are_no_header_or_one_that_could_be(value: bytes, framed: bool) -> None:
    header = read_header(b"\0\0\0\0\1" + value if framed else value)
    assert header is None or (len(header.guid) == 16 and header.time.tzinfo is UTC)


@settings(max_examples=sized(25, 600), deadline=None)
@given(st.integers(-62_135_596_800_000, 253_402_300_799_999), TEXT, TEXT, TEXT, st.binary(min_size=16, max_size=16))
def test_every_header_is_read_as_it_was_written(time_ms: int, service: str, host: str, datacenter: str, guid: bytes) -> None:
    schema = fastavro.parse_schema(json.loads(event_schema({"type": "record", "name": "E", "fields": []}).text))
    out = io.BytesIO(b"\0\0\0\0\1")
    out.seek(5)
    named = {"time": time_ms, "service": service, "host": host, "datacenter": datacenter, "guid": guid}
    fastavro.schemaless_writer(out, schema, {"header": named})
    assert read_header(out.getvalue()) == EventHeader(time_ms, service, host, datacenter, guid)
