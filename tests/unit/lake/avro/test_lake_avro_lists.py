"""Arrays and maps are read in whole batches, however their blocks are cut; only rows that are unlike all others are left to fastavro."""

import json
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from moldau.lake.avro.blocks import LOOK, ROWS
from moldau.lake.avro.columns import PairDecoder
from moldau.lake.avro.fast import FastDecoder, compile_pair
from moldau.lake.avro.schemas import parse
from moldau.lake.avro.vectors import Bytes, RowCursor
from support.avro_blocks import BlockEncoder, varint
from support.avro_registry import encoded


def event(kind: Any) -> dict[str, Any]:
    """The schema of a record of one field between two numbers."""
    return {"type": "record", "name": "E", "fields": [{"name": n, "type": t} for n, t in (("a", "int"), ("x", kind), ("b", "int"))]}


def placed(bodies: list[bytes]) -> tuple[Bytes, Any, Any]:
    bounds = np.cumsum([0, *map(len, bodies)])
    return Bytes(np.frombuffer(b"".join(bodies), np.uint8)), bounds[:-1], bounds[1:]


def fast(writer: Any, reader: Any, bodies: list[bytes]) -> tuple[list[Any], list[int]]:
    """What numpy makes of field x, and which rows it doubts."""
    decoder = compile_pair(parse(json.dumps(writer)), parse(json.dumps(reader)))
    assert isinstance(decoder, FastDecoder)
    batch, doubtful = decoder.decode(*placed(bodies))
    batch.validate(full=True)
    return batch.column("x").to_pylist(), np.flatnonzero(doubtful).tolist()


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


POINT = {"type": "record", "name": "P", "fields": [{"name": "name", "type": "string"}, {"name": "tags", "type": ["null", array("string")]}]}
LISTS: list[tuple[Any, list[Any]]] = [
    (array("long"), [[], [1, -1, 1 << 62], [0] * 8]),
    (array("float"), [[0.5] * 8, [], [-1.0, 2.0]]),
    (array("boolean"), [[], [True, False]]),
    (array("string"), [["ORD", "", "é" * 70], [], ["DEN"] * 8]),
    (array(["null", "string"]), [[None, "x", None], [], [None]]),
    (["null", array("int")], [None, [1, 2], []]),
    (array({"type": "enum", "name": "C", "symbols": ["A", "B"]}), [["A", "B", "A"], []]),
    (array({"type": "fixed", "name": "F", "size": 3}), [[b"abc", b"xyz"], []]),
    (array(POINT), [[{"name": "a", "tags": None}, {"name": "b", "tags": ["x", "y"]}], [], [{"name": "", "tags": []}]]),
    (array(array("string")), [[["a", "b"], [], ["c"]], [], [[]]]),
    ({"type": "map", "values": "double"}, [{"a": 0.5, "b": 1.0}, {}, {"": 2.0}]),
    ({"type": "map", "values": array("int")}, [{"a": [1, 2], "b": []}, {}]),
]


@pytest.mark.parametrize(("kind", "values"), LISTS, ids=[json.dumps(kind)[:60] for kind, _ in LISTS])
def test_lists_come_out_as_they_went_in_whatever_the_blocks(kind: Any, values: list[Any]) -> None:
    """Forty of each value in one block, and forty in blocks of all sizes, with their bytes counted or not."""
    schema, encoder = event(kind), BlockEncoder(1)
    events = [{"a": number, "x": value, "b": -number} for number, value in enumerate(values * 40)]
    want = [list(value.items()) if isinstance(value, dict) else value for value in values * 40]
    assert fast(schema, schema, [encoded(schema, each) for each in events]) == (want, [])
    assert fast(schema, schema, [encoder.encode(schema, each) for each in events]) == (want, [])


def test_the_items_of_a_reader_are_promoted_renamed_and_completed() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}, {"name": "old", "type": "string"}]}
    newer = {
        "type": "record", "name": "I",
        "fields": [
            {"name": "new", "type": ["null", "string"], "aliases": ["old"]}, {"name": "n", "type": "double"},
            {"name": "more", "type": array("int"), "default": [7]},
        ],
    }  # fmt: skip
    writer, reader = event(array(inner)), event(["null", array(newer)])
    bodies = [
        encoded(writer, {"a": 0, "x": [{"n": 1, "old": "x"}, {"n": 2, "old": ""}], "b": 0}),
        encoded(writer, {"a": 0, "x": [], "b": 0}),
    ]
    want = [[{"new": "x", "n": 1.0, "more": [7]}, {"new": "", "n": 2.0, "more": [7]}], []]
    assert fast(writer, reader, bodies) == (want, [])


def test_lists_that_are_not_read_are_passed_over_and_must_be_whole() -> None:
    """A map's names must be UTF-8, since fastavro reads them too."""
    fields = [{"name": "x", "type": "int"}, {"name": "l", "type": array({"type": "map", "values": "string"})}]
    writer = {"type": "record", "name": "E", "fields": fields}
    reader = {**writer, "fields": fields[:1]}
    good = encoded(writer, {"x": 5, "l": [{"name": "value"}, {}]})
    bad = [good[:-1], good[:-8], good.replace(b"name", b"na\xff\xfe")]
    assert fast(writer, reader, [good, *bad, good.replace(b"value", b"val\xff\xfe")]) == ([5, 5], [1, 2, 3])
    _, accepted, rejected = PairDecoder(parse(json.dumps(writer)), parse(json.dumps(reader))).decode(*placed([good, *bad]))
    assert accepted.tolist() == [0]
    cut = "the value ends in the middle of the event"
    assert rejected == {1: cut, 2: cut, 3: "a string is not UTF-8: invalid start byte at its byte 2"}


def test_a_row_that_is_unlike_all_others_is_left_to_fastavro() -> None:
    """500 rows of 20 strings are read in 20 rounds; for 5 rows of 1,000 there are no 980 rounds more."""
    schema = event(array("string"))
    events = [{"a": 0, "x": ["s"] * (1000 if number % 100 == 7 else 20), "b": 0} for number in range(500)]
    bodies = [encoded(schema, each) for each in events]
    values, doubtful = fast(schema, schema, bodies)
    assert doubtful == [7, 107, 207, 307, 407]
    assert values == [["s"] * 20] * 495
    many_blocks = varint(0) + (varint(1) + b"\x02s") * 300 + varint(0) + varint(0)
    assert fast(schema, schema, [bodies[0], many_blocks]) == ([], [0, 1])
    assert fast(schema, schema, [bodies[0]] * 64 + [many_blocks]) == ([["s"] * 20] * 64, [64])
    batch, accepted, rejected = PairDecoder(parse(json.dumps(schema)), parse(json.dumps(schema))).decode(*placed([*bodies, many_blocks]))
    assert len(accepted) == 501
    assert not rejected
    assert batch.column("x").to_pylist() == [*(each["x"] for each in events), ["s"] * 300]


def test_of_a_name_that_a_map_has_twice_the_last_value_counts() -> None:
    schema = event({"type": "map", "values": "int"})
    entries = [("a", 1), ("b", 2), ("a", 3)]
    twice = varint(0) + varint(3) + b"".join(encoded("string", name) + varint(number) for name, number in entries) + varint(0) + varint(0)
    once = encoded(schema, {"a": 0, "x": {"a": 1, "b": 2}, "b": 0})
    assert fast(schema, schema, [once, twice, once]) == ([[("a", 1), ("b", 2)]] * 2, [1])
    batch, _, _ = PairDecoder(parse(json.dumps(schema)), parse(json.dumps(schema))).decode(*placed([twice]))
    assert batch.column("x").to_pylist() == [[("a", 3), ("b", 2)]]


def test_no_rounds_are_made_for_items_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many rows that each say 60,000 items are no exception among others; but their first item is damaged, and that is seen soon."""
    schema = event(array("string"))
    decoder = compile_pair(parse(json.dumps(schema)), parse(json.dumps(schema)))
    assert decoder is not None
    skipped: list[int] = []
    real = RowCursor.longs

    def counted(cursor: RowCursor) -> Any:
        skipped.append(len(cursor))
        return real(cursor)

    monkeypatch.setattr(RowCursor, "longs", counted)
    damaged = varint(0) + varint(60_000) + varint(-1) + bytes(60_100)
    batch, doubtful = decoder.decode(*placed([damaged] * ROWS))
    assert len(batch) == 0
    assert doubtful.all()
    assert len(skipped) < 2 * LOOK


HUGE = (1 << 62, (1 << 63) - 1, -(1 << 63), -(1 << 62), 10**6)


@pytest.mark.parametrize("kind", ["long", "float", "string", array("string"), array("double")], ids=str)
def test_a_count_is_believed_only_as_far_as_there_are_bytes(kind: Any) -> None:
    """Whatever a block says, no more is made room for than its row has bytes; inner counts of nonsense are not added up."""
    schema = event(array(kind))
    # 500 arrays: one of 500 damaged strings, one of 500 empty ones, and no more. In so many rows they are not left to fastavro at once.
    deep = varint(0) + varint(500) + varint(500) + b"\x01" * 500 + varint(500) + b"\x00" * 1003
    bodies = [varint(0) + varint(count) + b"\x02" * 40 for count in HUGE] + [deep] * 70
    decoder = compile_pair(parse(json.dumps(schema)), parse(json.dumps(schema)))
    assert decoder is not None
    decoder.decode(*placed([encoded(schema, {"a": 0, "x": [], "b": 0})]))
    given = placed(bodies)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    batch, doubtful = decoder.decode(*given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(batch) == 0
    assert doubtful.all()
    assert peak < 150 * sum(map(len, bodies))
    assert pa.total_allocated_bytes() - before < 150 * sum(map(len, bodies))
