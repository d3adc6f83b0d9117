"""Compiled encoders beside the slow way, which decides: the same bytes, or the same error, whatever the event is.

Events are dicts of random schemas, and instances of random dataclasses and pydantic models; then with something odd in one place.
"""

from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from itertools import count
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, create_model

from moldau.tracking import DecimalSize, EventError, event_schema
from moldau.tracking.schemas.encoders import UNSURE, encoder_of, varint_encoder
from moldau.tracking.schemas.event_schema import EventSchema
from support.sizes import sized

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A Python or an Avro type, and values of it."""


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Access(Flag):
    READ = 1
    WRITE = 2


class Word(str):
    """Text of another class: only the slow way knows what it is."""

    __slots__ = ()


NUMBERS = count()
TEXT = st.text(max_size=5)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=11))])
TIMES = st.datetimes(timezones=ZONES)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.sampled_from([Decimal("-0"), Decimal("1E+3"), Decimal("0.10")])
HINTS: list[Typed] = [
    (int, LONGS),
    (str, TEXT),
    (bool, st.booleans()),
    (float, st.floats() | st.integers(-(1 << 60), 1 << 60)),
    (bytes, st.binary(max_size=5)),
    (datetime, TIMES),
    (date, st.dates()),
    (time, st.times()),
    (UUID, st.uuids()),
    (Decimal, DECIMALS),
    (Annotated[Decimal, DecimalSize(6, 2)], DECIMALS),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Access, st.sampled_from([*Access, Access.READ | Access.WRITE])),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (int | str, LONGS | TEXT),
    (int | str | None, LONGS | TEXT | st.none()),
]
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXT, TEXT.map(Word), st.binary(max_size=3), TIMES, st.datetimes(), DECIMALS,
    st.sampled_from([[], (), {}, {1: 2}, {"a": 1}, "\ud800", "RED", Color.RED, Level.LOW, Access(3), object]),
    st.sampled_from([Decimal("NaN"), bytearray(b"x"), ("int", 5)]),
)  # fmt: skip


@st.composite
def hinted(draw: Callable[[Any], Any], depth: int = 2) -> Typed:
    """A Python type of a field."""
    kind = draw(st.sampled_from(["simple", "simple", "optional", "list", "tuple", "set", "dict", "class"] if depth else ["simple"]))
    if kind == "simple":
        found: Typed = draw(st.sampled_from(HINTS))
        return found
    if kind == "class":
        return draw(class_(depth - 1))  # type: ignore[no-any-return]
    found = draw(hinted(depth - 1))
    inner: Any = found[0]
    values = found[1]
    match kind:
        case "list":
            return list[inner], st.lists(values, max_size=3)
        case "tuple":
            return tuple[inner, ...], st.lists(values, max_size=3).map(tuple)
        case "set":
            return frozenset[str], st.frozensets(TEXT, max_size=3)
        case "dict":
            return dict[str, inner], st.dictionaries(TEXT, values, max_size=3)
    return inner | None, values | st.none()


def model_of(name: str, hints: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {field: (hint, ...) for field, hint in hints.items()}
    return create_model(name, __config__=ConfigDict(extra="allow"), **fields)


@st.composite
def class_(draw: Callable[[Any], Any], depth: int) -> Typed:
    """A dataclass or a pydantic model of some fields, and instances of it, or now and then of a class made from it."""
    fields = {f"f{number}": draw(hinted(depth)) for number in range(draw(st.integers(1, 4)))}
    name = f"C{next(NUMBERS)}"
    values = st.fixed_dictionaries({field: strategy for field, (_, strategy) in fields.items()})
    if draw(st.booleans()):
        made: Any = make_dataclass(name, [(field, hint) for field, (hint, _) in fields.items()])
        other = type(f"Sub{name}", (made,), {})
        return made, values.map(lambda given: made(**given)) | values.map(lambda given: other(**given))
    model = model_of(name, {field: hint for field, (hint, _) in fields.items()})
    return model, values.map(lambda given: model.model_construct(**given))


def outcome(encode: Callable[[Any], bytes], event: Any) -> Any:
    try:
        return encode(event)
    except EventError as error:
        return error.path, error.reason


def same(schema: EventSchema, event: Any) -> None:
    assert outcome(schema.encode, event) == outcome(schema._encode_slowly, event)


@settings(max_examples=sized(40, 1000), deadline=None)
@given(st.data())
def test_instances_are_written_or_refused_as_the_slow_way_does(data: st.DataObject) -> None:
    type_, instances = data.draw(class_(2))
    schema, event = event_schema(type_), data.draw(instances)
    same(schema, event)
    for name in data.draw(st.lists(st.sampled_from([each["name"] for each in schema.record["fields"][1:]]), max_size=1)):
        setattr(event, name, data.draw(ODD))
        same(schema, event)
        delattr(event, name)
        same(schema, event)


AVRO: list[Typed] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", LONGS),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=5)),
    ("string", TEXT),
    ({"type": "long", "logicalType": "timestamp-millis"}, TIMES | st.integers(-(1 << 50), 1 << 50)),
    ({"type": "long", "logicalType": "timestamp-micros"}, TIMES | st.integers(-(1 << 60), 1 << 60)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    ({"type": "int", "logicalType": "date"}, st.dates() | st.integers(-800_000, 3_000_000)),
    ({"type": "int", "logicalType": "time-millis"}, st.times()),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "long", "logicalType": "unheard-of"}, LONGS),
    ({"type": "string", "logicalType": "uuid"}, st.uuids() | st.uuids().map(str) | TEXT),
    ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, DECIMALS),
    (["string", "null"], TEXT | st.none()),
    (["null", "long", "string", {"type": "array", "items": "long"}], st.none() | LONGS | TEXT | st.lists(LONGS, max_size=2)),
    (["null", {"type": "array", "items": "string"}], st.lists(TEXT, max_size=2) | TEXT.map(lambda text: ("array", [text]))),
]


@st.composite
def avro(draw: Callable[[Any], Any], depth: int = 2) -> Typed:
    """An Avro type of a field; records, enums and fixed have names of their own."""
    kind = draw(st.sampled_from(["simple", "simple", "array", "map", "record", "enum", "fixed", "decimal"] if depth else ["simple"]))
    name = f"T{next(NUMBERS)}"
    match kind:
        case "enum":
            return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from(["A", "B", "C"])
        case "fixed":
            return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=2, max_size=3)
        case "decimal":
            return {"type": "fixed", "name": name, "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}, DECIMALS
        case "record":
            return draw(record(name, depth - 1))  # type: ignore[no-any-return]
        case "simple":
            found: Typed = draw(st.sampled_from(AVRO))
            return found
    inner, values = draw(avro(depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3) | st.lists(values, max_size=3).map(tuple)
    return {"type": "map", "values": inner}, st.dictionaries(TEXT, values, max_size=3)


@st.composite
def record(draw: Callable[[Any], Any], name: str, depth: int) -> Typed:
    """A record whose last field may be left out."""
    fields = [draw(avro(depth)) for _ in range(draw(st.integers(1, 4)))]
    schema = [{"name": f"f{number}", "type": type_} for number, (type_, _) in enumerate(fields)]
    left_out = {"name": "more", "type": "long", "default": 5}
    values = st.fixed_dictionaries(
        {f"f{number}": strategy for number, (_, strategy) in enumerate(fields)}, optional={"more": LONGS, "stray": st.just(1)}
    )
    return {"type": "record", "name": name, "fields": [*schema, left_out]}, values


@settings(max_examples=sized(40, 1000), deadline=None)
@given(st.data())
def test_dicts_are_written_or_refused_as_the_slow_way_does(data: st.DataObject) -> None:
    type_, values = data.draw(record("Event", 2))
    schema, event = event_schema(type_), data.draw(values)
    same(schema, event)
    event[data.draw(st.sampled_from([*event, "unknown"]))] = data.draw(ODD)
    same(schema, event)


@settings(max_examples=sized(40, 1000), deadline=None)
@given(
    st.integers(0, (1 << 64) - 1)
    | st.integers(0, 9).map(lambda number: 1 << 7 * number)
    | st.integers(0, 9).map(lambda n: (1 << 7 * n) - 1)
)
def test_a_varint_has_seven_bits_in_a_byte(number: int) -> None:
    groups = [number >> shift & 0x7F for shift in range(0, 70, 7)]
    while len(groups) > 1 and not groups[-1]:
        groups.pop()
    assert varint_encoder()(number) == bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def test_an_ordinary_event_needs_no_slow_way() -> None:
    """Every kind of field that is not rare is compiled: of an instance, and of a dict."""
    Inner: Any = make_dataclass("Inner", [("text", str)])  # noqa: N806
    hints: dict[str, Any] = {
        "number": int, "text": str, "flag": bool, "ratio": float, "raw": bytes, "at": datetime, "day": date, "clock": time, "id": UUID,
        "amount": Decimal, "color": Color, "maybe": str | None, "names": list[str], "sizes": dict[str, int], "inner": Inner,
        "inners": list[Inner], "perhaps": Inner | None,
    }  # fmt: skip
    values: dict[str, Any] = {
        "number": 1 << 40, "text": "é", "flag": True, "ratio": 1, "raw": b"x", "at": datetime(2013, 7, 1, tzinfo=UTC),
        "day": date(1969, 1, 1), "clock": time(1, 2), "id": UUID(int=5), "amount": Decimal("-9.99"), "color": Color.BLUE,
        "maybe": None, "names": ["a", "b"], "sizes": {"x": -1}, "inner": Inner("i"), "inners": [Inner("j")], "perhaps": Inner("k"),
    }  # fmt: skip
    for made in (make_dataclass("Whole", hints.items()), model_of("Whole", hints)):
        schema, event = event_schema(made), made(**values)
        assert schema._encode_own(event) == schema._encode_slowly(event)
        as_dict = {**values, "color": "BLUE", "inner": {"text": "i"}, "inners": [{"text": "j"}], "perhaps": {"text": "k"}}
        assert schema._encode_dict(as_dict) == schema._encode_slowly(as_dict) == schema._encode_own(event)


def test_lists_within_lists_have_any_depth() -> None:
    """Python refuses more than twenty loops within each other: a schema with more could not be used."""
    items: Any = "long"
    value: Any = 1
    for number in range(25):
        items = {"type": "array", "items": items} if number % 2 else {"type": "map", "values": items}
        value = [value] if number % 2 else {"a": value}
    schema = event_schema({"type": "record", "name": "Deep", "fields": [{"name": "value", "type": items}]})
    assert schema._encode_dict({"value": value}) == schema._encode_slowly({"value": value})


def test_a_record_within_itself_is_written_by_one_function() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "value", "type": "long"}, {"name": "next", "type": ["null", "Node"]}]}
    schema = event_schema({"type": "record", "name": "Chain", "fields": [{"name": "first", "type": node}]})
    event: dict[str, Any] = {"first": {"value": 1, "next": {"value": 2, "next": None}}}
    assert schema._encode_dict(event) == schema._encode_slowly(event)


def test_a_fast_encoder_raises_what_the_slow_way_is_asked_for() -> None:
    schema = event_schema({"type": "record", "name": "Event", "fields": [{"name": "number", "type": "int"}]})
    encode = encoder_of(schema._body, {})
    for event in ({"number": 1 << 31}, {"number": "1"}, {"number": True}, {}, {"number": 1, "more": 2}, 5):
        with pytest.raises(UNSURE):
            encode(event)
