"""Events are decoded with their writer's schema into the reader's; what is no event says why, with its schema id where it has one."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest

from moldau.registry.wire import frame
from moldau.tracking import DecimalSize, EventSchema, event_schema
from moldau.tracking.consumer import EventDecoder, UndecodableEventError, WriterSchemas
from moldau.tracking.producer import text_bytes, time_bytes
from support.tracked_events import TEN_FIELDS, MemoryRegistry, page_view

GUID = bytes(range(16))
ENUM = {"type": "enum", "name": "State", "symbols": ["A", "B"]}
NOTHINGS = {"type": "array", "items": {"type": "record", "name": "Nothing", "fields": [{"name": "none", "type": "null"}]}}


def value_of(schema_id: int, schema: EventSchema, event: Any) -> bytes:
    """A framed event, as a producer makes it."""
    header = time_bytes(1_300_000_000_123) + text_bytes("shop") + text_bytes("web-1") + text_bytes("east") + GUID
    return frame(schema_id, header + schema.encode(event))


def decoder(registry: MemoryRegistry, reader: EventSchema | None = None) -> EventDecoder:
    return EventDecoder(WriterSchemas(registry), reader)


@dataclass
class PageView:
    page: str
    member: float
    country: str = "?"
    theme: str = "light"


def test_an_event_as_it_was_written() -> None:
    registry, schema = MemoryRegistry(), event_schema(TEN_FIELDS)
    value = value_of(registry.register("s", schema.text), schema, page_view(3))
    reader = decoder(registry)
    for _ in range(2):
        schema_id, header, event = reader.decode(value)
        assert (schema_id, header.service, header.time_ms, header.guid, event) == (1, "shop", 1_300_000_000_123, GUID, page_view(3))
    assert registry.asked.count("schema 1") == 1, "the schema of an id is asked for once"


def test_an_event_as_its_reader_wants_it() -> None:
    """Fewer fields, one of another type, one that the writer did not have yet, as an instance."""
    registry, schema = MemoryRegistry(), event_schema(TEN_FIELDS)
    value = value_of(registry.register("s", schema.text), schema, page_view(3))
    assert decoder(registry, event_schema(PageView)).decode(value)[2] == PageView("/product/3", 100_003.0, "CZ", "light")


def test_a_type_that_holds_itself_may_have_levels_but_not_any_number_of_them() -> None:
    """Each byte may be one more level: five thousand of them ended the process, and again at each try to read on."""
    node = {"type": "record", "name": "Node", "fields": [{"name": "state", "type": ENUM}, {"name": "next", "type": ["null", "Node"]}]}
    registry, schema = MemoryRegistry(), event_schema({"type": "record", "name": "Chain", "fields": [{"name": "first", "type": node}]})
    schema_id = registry.register("s", schema.text)
    event = {"first": {"state": "A", "next": {"state": "B", "next": None}}}
    value = value_of(schema_id, schema, event)
    for reader in (None, schema):
        assert decoder(registry, reader).decode(value)[2] == event
        with pytest.raises(UndecodableEventError, match="too many levels"):
            decoder(registry, reader).decode(value[:-4] + b"\0\2" * 100_000 + b"\0\0")
        with pytest.raises(UndecodableEventError, match="below 0"):
            decoder(registry, reader).decode(value[:-2] + b"\1\0")
        with pytest.raises(UndecodableEventError, match="ends in the middle"):
            decoder(registry, reader).decode(value[:-1])


def test_a_list_of_what_takes_no_bytes_is_not_read() -> None:
    """Ten bytes may say that it has any number of items."""
    registry, schema = MemoryRegistry(), event_schema({"type": "record", "name": "E", "fields": [{"name": "nothing", "type": NOTHINGS}]})
    value = value_of(registry.register("s", schema.text), schema, {"nothing": [{"none": None}]})
    with pytest.raises(UndecodableEventError, match="an array of what takes no bytes"):
        decoder(registry).decode(value)


@dataclass(frozen=True)
class Fee:
    amount: Annotated[Decimal, DecimalSize(4, 2)] = Decimal("-1.25")
    since: datetime = datetime(2013, 7, 1, tzinfo=UTC)


@dataclass
class WithDefaults:
    page: str
    price: Decimal = Decimal("1.5")
    maybe: Decimal | None = Decimal("2.56")
    day: date = date(1969, 12, 31)
    at: time = time(12, 30)
    raw: bytes = b"\xff"
    key: UUID = UUID(int=7)  # noqa: RUF009 - nobody changes it
    fee: Fee = Fee()
    fees: tuple[Fee, ...] = (Fee(Decimal(3)),)
    country: str = "?"


def test_a_default_of_the_reader_is_what_its_type_says() -> None:
    """Not as a schema's JSON has it: digits in bytes, days and microseconds."""
    registry = MemoryRegistry()
    assert decoder(registry, event_schema(WithDefaults)).decode(written(registry))[2] == WithDefaults("/product/3", country="CZ")
    fields = [field for field in json.loads(event_schema(WithDefaults).text)["fields"] if field["name"] != "header"]
    found = decoder(registry, event_schema({"type": "record", "name": "Again", "fields": fields})).decode(written(registry))[2]
    assert found == {**asdict(WithDefaults("/product/3", country="CZ")), "fees": [asdict(Fee(Decimal(3)))]}
    schema = event_schema(WithDefaults)
    schema_id = registry.register("again", schema.text)
    assert decoder(registry).decode(value_of(schema_id, schema, {"page": "/product/3", "country": "CZ"}))[2] == found


def test_events_do_not_share_a_default_that_can_be_changed() -> None:
    """What one reader puts into its event is in no other one."""
    registry, value = MemoryRegistry(), {"type": "array", "items": "string"}
    pair = {"type": "record", "name": "Pair", "fields": [{"name": "tags", "type": value, "default": []}]}
    cases: list[tuple[dict[str, Any], Callable[[Any], object]]] = [
        ({"type": value, "default": ["a"]}, lambda found: found.append("b")),
        ({"type": pair, "default": {}}, lambda found: found["tags"].append("b")),
        ({"type": {"type": "map", "values": "long"}, "default": {}}, lambda found: found.update(a=1)),
    ]
    for field, change in cases:
        reader = decoder(registry, event_schema({"type": "record", "name": "E", "fields": [{"name": "more", **field}]}))
        first, second = (reader.decode(written(registry))[2]["more"] for _ in range(2))
        assert first == second
        change(first)
        assert first != second


def test_what_the_readers_own_type_refuses_is_no_event_for_it() -> None:
    """Whatever it raises: otherwise its reader would meet the same record for ever."""

    @dataclass
    class Picky:
        page: str

        def __post_init__(self) -> None:
            raise AttributeError(self.page)

    registry = MemoryRegistry()
    with pytest.raises(UndecodableEventError, match="AttributeError: /product/3") as caught:
        decoder(registry, event_schema(Picky)).decode(written(registry))
    assert caught.value.schema_id == 1


def written(registry: MemoryRegistry) -> bytes:
    schema = event_schema(TEN_FIELDS)
    return value_of(registry.register("s", schema.text), schema, page_view(3))


def test_every_truncation_is_reported() -> None:
    registry = MemoryRegistry()
    value = written(registry)
    reader = decoder(registry)
    for length in range(len(value)):
        with pytest.raises(UndecodableEventError) as caught:
            reader.decode(value[:length])
        assert caught.value.schema_id == (1 if length >= 5 else None)
        if length > 60:  # after the header
            assert str(caught.value) == "the value ends in the middle of the event"


def test_what_is_no_event() -> None:
    registry = MemoryRegistry()
    value = written(registry)
    plain = registry.register("plain", json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "bytes"}]}))
    broken = registry.register("broken", '{"type": "record"}')
    other = {"type": "record", "name": "shop.PageView", "fields": [{"name": "page", "type": "int"}]}
    for bytes_, reader, message in [
        (None, None, "a tombstone is no event"),
        (b'{"page": "/index"}', None, "the first byte is 0x7b"),
        (b"\0\0", None, "no room for the schema id"),
        (frame(77, value[5:]), None, "the registry does not know this schema id"),
        (frame(plain, value[5:]), None, "not one of tracked events"),
        (frame(broken, value[5:]), None, "the schema cannot be read"),
        (value + b"x", None, "1 bytes are left over"),
        (value, event_schema(other), "the reader's schema cannot read what was written"),
    ]:
        with pytest.raises(UndecodableEventError, match=message):
            decoder(registry, reader).decode(bytes_)


def test_what_an_id_stands_for_is_asked_once_even_if_it_is_no_event() -> None:
    registry = MemoryRegistry()
    plain = registry.register("plain", json.dumps({"type": "record", "name": "R", "fields": []}))
    reader = decoder(registry)
    for _ in range(2):
        with pytest.raises(UndecodableEventError, match="not one of tracked events"):
            reader.decode(frame(plain, bytes(30)))
    assert registry.asked.count(f"schema {plain}") == 1
    for _ in range(2):
        with pytest.raises(UndecodableEventError, match="does not know this schema id"):
            reader.decode(frame(77, bytes(30)))
    assert registry.asked.count("schema 77") == 2, "a missing one may still be registered"
