"""What no schema allows is refused by every decoder: numbers below 0 of symbols and branches, dates and times beyond Spark's years.

fastavro reads the number −1 as the last symbol or branch, for it indexes a Python list.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.avro.columns import PairDecoder
from moldau.lake.avro.rows import RowDecoder
from moldau.lake.avro.schemas import parse
from moldau.lake.avro.vectors import Bytes
from moldau.registry.wire import frame
from moldau.tracking.consumer import EventDecoder, UndecodableEventError, WriterSchemas
from moldau.tracking.header import HEADER_SCHEMA
from moldau.tracking.producer import text_bytes, time_bytes
from support.tracked_events import MemoryRegistry

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
Body = Callable[[bytes], bytes]
PLACES: dict[str, tuple[Any, Body]] = {
    "enum": (ENUM, lambda number: number),
    "null or long": (["null", "long"], lambda number: number + b"\x08"),
    "long or null": (["long", "null"], lambda number: number + b"\x08"),
    "several types": (["null", "string", "long"], lambda number: number + b"\x02x"),
    "several with an enum": (["null", "string", ENUM], lambda number: b"\x04" + number),
    "list of enums": ({"type": "array", "items": ENUM}, lambda number: b"\x04\x00" + number + b"\x00"),
    "list of unions": ({"type": "array", "items": ["null", "long"]}, lambda number: b"\x02" + number + b"\x08\x00"),
    "map of enums": ({"type": "map", "values": ENUM}, lambda number: b"\x02\x02k" + number + b"\x00"),
    "record in a record": (
        {"type": "record", "name": "Inner", "fields": [{"name": "e", "type": ENUM}, {"name": "n", "type": "long"}]},
        lambda number: number + b"\x02",
    ),
}


def zigzag(number: int) -> bytes:
    rest, octets = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*octets, rest])


def event(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def refusals(given_schema: Any, wanted: Any, body: bytes) -> dict[str, str | None]:
    """Why each decoder refuses the body; None: it does not."""
    writer, reader = parse(json.dumps(given_schema)), parse(json.dumps(wanted))
    _, _, of_rows = RowDecoder(writer, reader).decode([body])
    data = Bytes(np.frombuffer(body, np.uint8))
    _, _, of_pairs = PairDecoder(writer, reader).decode(data, np.array([0]), np.array([len(body)]))
    tracked = {**given_schema, "fields": [{"name": "header", "type": HEADER_SCHEMA}, *given_schema["fields"]]}
    registry = MemoryRegistry()
    number = registry.register("s", json.dumps(tracked))
    header = time_bytes(1_300_000_000_123) + text_bytes("shop") + text_bytes("web-1") + text_bytes("east") + bytes(16)
    try:
        EventDecoder(WriterSchemas(registry), None).decode(frame(number, header + body))
        of_tracking = None
    except UndecodableEventError as error:
        of_tracking = str(error)
    return {"rows": of_rows.get(0), "fast": of_pairs.get(0), "tracking": of_tracking}


@given(st.sampled_from(sorted(PLACES)), st.integers(-(2**63), -1) | st.integers(-9, -1), st.booleans())
def test_a_number_below_0_is_refused_wherever_it_stands(place: str, number: int, behind: bool) -> None:
    kind, body = PLACES[place]
    schema = event(("x", kind), ("n", "long")) if behind else event(("n", "long"), ("x", kind))
    octets = body(zigzag(number)) + b"\x0a" if behind else b"\x0a" + body(zigzag(number))
    for decoder, reason in refusals(schema, schema, octets).items():
        assert reason is not None, decoder
        assert "below 0" in reason or "does not have" in reason, (decoder, reason)


@pytest.mark.parametrize("place", [name for name in PLACES if "enum" not in name and "record" not in name])
def test_so_is_the_number_of_a_branch_in_a_field_that_the_reader_drops(place: str) -> None:
    kind, body = PLACES[place]
    given_schema = event(("n", "long"), ("x", kind), ("m", "long"))
    wanted = event(("n", "long"), ("m", "long"))
    assert None not in refusals(given_schema, wanted, b"\x0a" + body(zigzag(-1)) + b"\x0a").values()


@pytest.mark.parametrize("place", PLACES)
def test_the_same_bytes_with_a_number_that_the_schema_has_are_read(place: str) -> None:
    kind, body = PLACES[place]
    number = 1 if place in ("null or long", "list of unions", "several types") else 0
    schema = event(("x", kind))
    assert set(refusals(schema, schema, body(zigzag(number))).values()) == {None}


DAY = {"type": "int", "logicalType": "date"}
EDGES = [
    (DAY, -719_162, 2_932_896),
    ({"type": "long", "logicalType": "timestamp-millis"}, -62_135_596_800_000, 253_402_300_799_999),
    ({"type": "long", "logicalType": "timestamp-micros"}, -62_135_596_800_000_000, 253_402_300_799_999_999),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, -62_135_596_800_000, 253_402_300_799_999),
]


@pytest.mark.parametrize(("kind", "least", "most"), EDGES)
@given(distance=st.integers(1, 1 << 30), nested=st.booleans())
def test_a_date_is_in_the_years_1_to_9999(kind: Any, least: int, most: int, distance: int, nested: bool) -> None:
    schema = event(("x", {"type": "array", "items": ["null", kind]}) if nested else ("x", kind))
    for number, fits in ((least, True), (most, True), (least - distance, False), (most + distance, False)):
        octets = b"\x02\x02" + zigzag(number) + b"\x00" if nested else zigzag(number)
        found = refusals(schema, schema, octets)
        assert all((reason is None) is fits for reason in found.values()), (number, found)
