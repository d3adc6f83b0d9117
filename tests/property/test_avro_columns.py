"""The fast decoder and fastavro agree on every pair of schemas, every event and every hostile byte."""

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.lake.avro.columns import PairDecoder
from moldau.lake.avro.rows import RowDecoder
from moldau.lake.avro.schemas import parse
from moldau.lake.avro.vectors import Bytes
from support.avro_blocks import BlockEncoder
from support.avro_pairs import pairs
from support.avro_registry import encoded
from support.sizes import sized

Case = tuple[Any, Any, list[Any]]


def both(given: Any, wanted: Any, bodies: list[bytes]) -> PairDecoder:
    """Decode the bodies in both ways, which must come to the same."""
    writer, reader = json.dumps(given), json.dumps(wanted)
    decoder = PairDecoder(parse(writer), parse(reader))
    bounds = np.cumsum([0, *map(len, bodies)])
    data = Bytes(np.frombuffer(b"".join(bodies), np.uint8))
    batch, numbers, rejected = decoder.decode(data, bounds[:-1], bounds[1:])
    plain, accepted, refused = RowDecoder(parse(writer), parse(reader)).decode(bodies)
    assert numbers.tolist() == accepted
    assert rejected == refused
    assert batch.schema == plain.schema
    assert batch.equals(plain) or text(batch) == text(plain), "as text, since a NaN is no other NaN"
    return decoder


def text(batch: Any) -> list[str]:
    texts = []
    for column in batch.columns:
        try:
            texts.append(repr(column.to_pylist()))
        except (OverflowError, ValueError):  # Python has no such dates
            texts.append(column.to_string(window=100, container_window=100))
    return texts


@settings(max_examples=sized(40, 1000))
@given(pairs())
def test_events(case: Case) -> None:
    writer, reader, events = case
    both(writer, reader, [encoded(writer, event) for event in events])


@settings(max_examples=sized(40, 1000))
@given(pairs(), st.integers(0, 1 << 32))
def test_items_in_any_blocks(case: Case, seed: int) -> None:
    writer, reader, events = case
    encoder = BlockEncoder(seed, repeats_names=True)
    both(writer, reader, [encoder.encode(writer, event) for event in events])


@settings(max_examples=sized(60, 1500))
@given(pairs(), st.integers(0, 1 << 32), st.data())
def test_hostile_bytes(case: Case, seed: int, data: st.DataObject) -> None:
    """Bodies that are cut, lengthened, changed in a byte, or were never events."""
    writer, reader, events = case
    bodies, encoder = [], BlockEncoder(seed, repeats_names=True)
    for event in events:
        body = bytearray(encoder.encode(writer, event))
        match data.draw(st.integers(0, 4)):
            case 0:
                del body[data.draw(st.integers(0, len(body))) :]
            case 1:
                body += data.draw(st.binary(min_size=1, max_size=3))
            case 2 if body:
                body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
            case 3:
                body = bytearray(data.draw(st.binary(max_size=40)))
            case _:
                pass
        bodies.append(bytes(body))
    both(writer, reader, bodies)


@settings(max_examples=sized(40))
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=20), st.sampled_from(["long", "int", "string", "bytes"]))
def test_numbers_of_any_length(bodies: list[bytes], kind: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    both(schema, schema, [*bodies, b"\xff" * 9 + b"\x01", b"\xff" * 8 + b"\x7f", b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x00"])


def test_numpy_follows_what_it_is_said_to_follow() -> None:
    fields = [
        {
            "name": "header",
            "type": {"type": "record", "name": "H", "fields": [{"name": "guid", "type": {"type": "fixed", "name": "G", "size": 16}}]},
        },
        {"name": "color", "type": {"type": "enum", "name": "C", "symbols": ["A"]}},
        {"name": "maybe", "type": ["null", "H"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lists", "type": {"type": "array", "items": {"type": "array", "items": "C"}}},
        {"name": "map", "type": {"type": "map", "values": ["null", "H"]}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    event: dict[str, Any] = {
        "header": {"guid": b"g" * 16},
        "color": "A",
        "maybe": None,
        "price": b"\x01",
        "lists": [[]],
        "map": {"a": None},
    }
    assert both(schema, schema, [encoded(schema, event)]).is_fast
    with_union = {**schema, "fields": [*fields, {"name": "u", "type": ["int", "string"]}]}
    assert not both(with_union, with_union, [encoded(with_union, {**event, "u": 1})]).is_fast
