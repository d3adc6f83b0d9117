"""The map of keys says of every record what the obvious way says, and holds no more memory than it is given."""

import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from moldau.log.cleaning.key_map import (
    DIGEST_BYTES,
    KEPT,
    KEY_BYTES_MAX,
    REPLACED,
    TOMBSTONE,
    KeyMap,
    UnreadableRecordsError,
    digest,
    table_bytes,
)
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.header import HEADER_SIZE
from moldau.protocol.records.record import Record

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c" * KEY_BYTES_MAX, b"c" * (KEY_BYTES_MAX + 1), b"d" * 70, b"e" * 200])
ROWS = st.lists(
    st.tuples(
        KEYS,
        st.none() | st.binary(max_size=200),
        st.integers(-(2**40), 2**40),
        st.lists(st.tuples(st.text(max_size=3), st.none()), max_size=2),
    ),
    min_size=1,
    max_size=80,
)
Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def records_of(rows: list[Row]) -> bytes:
    """The records part of a batch; offsets leave holes, so that deltas of two and three bytes come too."""
    records = [Record(number * 97, 2**41 + time, 0, key, value, headers) for number, (key, value, time, headers) in enumerate(rows)]
    return encode_batch(records)[HEADER_SIZE:]


def new_map() -> KeyMap:
    return KeyMap(1 << 20)


@settings(max_examples=150, deadline=None)
@given(batches=st.lists(ROWS, min_size=1, max_size=4), older=ROWS)
def test_states_are_what_the_obvious_way_says(batches: list[list[Row]], older: list[Row]) -> None:
    key_map = new_map()
    flat = [row for rows in batches for row in rows]
    for number, rows in enumerate(batches):
        records = b"before" + records_of(rows) + b"after"
        key_map.add_batch(number, records, 6, len(records) - 5, len(rows))
    newest = {key: number for number, (key, *_) in enumerate(flat)}
    expected = [
        REPLACED if key is None or newest[key] != number else TOMBSTONE if value is None else KEPT
        for number, (key, value, *_) in enumerate(flat)
    ]
    assert list(key_map.states) == expected
    assert len(key_map) == len([key for key in newest if key is not None])
    assert list(key_map.batch_offsets) == list(range(len(batches)))
    records = records_of(older)
    expected = [REPLACED if key is None or key in newest else TOMBSTONE if value is None else KEPT for key, value, *_ in older]
    assert list(key_map.judge_batch(records, 0, len(records), len(older))) == expected


def test_a_key_that_looks_like_anothers_digest_is_another_key() -> None:
    key = b"x" * 100
    assert len(digest(key)) == DIGEST_BYTES > KEY_BYTES_MAX
    key_map = new_map()
    records = records_of([(key, b"1", 0, []), (digest(key), b"2", 0, [])])
    key_map.add_batch(0, records, 0, len(records), 2)
    assert list(key_map.states) == [KEPT, KEPT]


@pytest.mark.parametrize("damage", ["cut", "longer", "fewer", "more", "key"])
def test_records_that_are_not_what_the_header_says(damage: str) -> None:
    records, count = records_of([(b"key", b"value", 0, [])] * 3), 3
    match damage:
        case "cut":
            records = records[:-1]
        case "longer":
            records += b"\0"
        case "fewer":
            count = 4
        case "more":
            count = 2
        case "key":
            records = records[:4] + bytes([100]) + records[5:]
    for walk in (
        lambda: new_map().add_batch(0, records, 0, len(records), count),
        lambda: new_map().judge_batch(records, 0, len(records), count),
    ):
        with pytest.raises(UnreadableRecordsError):
            walk()


def test_a_size_in_more_bytes_than_needed_is_read_like_any_other() -> None:
    records = records_of([(b"k", b"v", 0, [])])
    padded = bytes([records[0] | 0x80, 0x80, 0]) + records[1:]
    key_map = new_map()
    key_map.add_batch(0, padded, 0, len(padded), 1)
    assert list(key_map.states) == [KEPT]


def test_the_model_of_a_table_is_not_below_the_truth() -> None:
    table: dict[int, int] = {}
    for number in range(100_000):
        assert sys.getsizeof(table) <= table_bytes(len(table)), len(table)
        table[number] = number


@pytest.mark.parametrize("size", [1, 36, KEY_BYTES_MAX, 300])
def test_the_memory_that_it_takes_is_within_what_it_is_given(size: int) -> None:
    """By what Python says of every object in it, and of the table; most of the room is used."""
    bytes_max, per_batch = 1_000_000, 100
    key_map, batches = KeyMap(bytes_max), 0
    while key_map.take_room(per_batch):
        keys = [b"%d" % (batches * per_batch + number) for number in range(per_batch)]
        records = records_of([(key.rjust(size, b"."), b"", 0, []) for key in keys])
        key_map.add_batch(batches, records, 0, len(records), per_batch)
        batches += 1
    newest = key_map._newest
    objects = sum(_allocated(sys.getsizeof(key)) + _allocated(sys.getsizeof(number)) for key, number in newest.items())
    taken = objects + sys.getsizeof(newest) + len(key_map.states) + 8 * len(key_map.batch_offsets)
    assert taken <= bytes_max
    assert len(newest) * 250 > bytes_max


def _allocated(size: int) -> int:
    """Python hands out small objects in steps of 16 bytes."""
    return -(-size // 16) * 16
