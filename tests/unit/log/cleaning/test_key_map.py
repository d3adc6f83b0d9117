"""The map of keys says of every record what the obvious way says, and holds no more memory than it is given."""

import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from moldau.log.cleaning.key_map import KEPT, LOAD_MAX, REPLACED, SLOTS_MIN, TOMBSTONE, KeyMap, UnreadableRecordsError
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.header import HEADER_SIZE
from moldau.protocol.records.record import Record
from support.sizes import sized

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c" * 63, b"c" * 64, b"d" * 70, b"e" * 9000])
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


@settings(max_examples=sized(40, 1500), deadline=None)
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


def test_keys_whose_hashes_meet_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CRC, and whatever the slot where the search begins."""
    monkeypatch.setattr("moldau.log.cleaning.key_map.hash", lambda key: 1023 + len(key) % 2, raising=False)
    key_map = new_map()
    rows: list[Row] = [(b"%d" % number, b"v", 0, []) for number in range(300)]
    for number, chosen in enumerate((rows, rows[::2])):
        records = records_of(chosen)
        key_map.add_batch(number, records, 0, len(records), len(chosen))
    assert list(key_map.states[:300]) == [REPLACED, KEPT] * 150
    assert (list(key_map.states[300:]), len(key_map)) == ([KEPT] * 150, 300)
    records = records_of([(b"7", b"older", 0, []), (b"other", b"v", 0, [])])
    assert list(key_map.judge_batch(records, 0, len(records), 2)) == [REPLACED, KEPT]


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


def fill(key_map: KeyMap, batches_max: int, per_batch: int, *, different: bool = True) -> int:
    """Add batches until there is no room; how many."""
    for number in range(batches_max):
        if not key_map.take_room(per_batch):
            return number
        rows: list[Row] = [(b"%d" % (number * per_batch + each if different else each), b"", 0, []) for each in range(per_batch)]
        records = records_of(rows)
        key_map.add_batch(number, records, 0, len(records), per_batch)
    return batches_max


def taken_bytes(key_map: KeyMap) -> int:
    """What Python says of all that it consists of."""
    parts = (key_map._hashes, key_map._newest, key_map.states, key_map.batch_offsets)
    return sum(map(sys.getsizeof, parts))


@pytest.mark.parametrize("different", [True, False])
def test_the_memory_that_it_takes_is_within_what_it_is_given(different: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the table grows, when both are there; and most of the room is used."""
    bytes_max, peaks = 400_000, []
    grow = KeyMap._grow

    def watched(key_map: KeyMap, slots: int) -> None:
        peaks.append(taken_bytes(key_map) + 16 * slots)
        grow(key_map, slots)

    monkeypatch.setattr(KeyMap, "_grow", watched)
    key_map = KeyMap(bytes_max)
    batches = fill(key_map, 10_000, 100, different=different)
    assert batches < 10_000
    assert max([*peaks, taken_bytes(key_map)]) <= bytes_max * 1.05, "lists of bytes are a little longer than they need be"
    assert taken_bytes(key_map) > bytes_max * 0.7
    if different:
        assert len(key_map) == len(key_map.states) > bytes_max / 30
        assert peaks


def test_it_is_no_fuller_than_it_may_be() -> None:
    assert fill(KeyMap(100_000, 0.1), 1000, 10) * 10 == 460
    slots = int(100_000 * 0.75) // 16
    assert fill(KeyMap(100_000, 2.0), 1000, 10) * 10 == int(slots * LOAD_MAX) // 10 * 10


def test_room_is_made_anyway_where_it_has_to_be() -> None:
    key_map = KeyMap(0)
    count = 5 * SLOTS_MIN
    assert not key_map.take_room(count)
    assert key_map.take_room(count, anyway=True)
    records = records_of([(b"%d" % number, b"", 0, []) for number in range(count)])
    key_map.add_batch(0, records, 0, len(records), count)
    assert len(key_map) == count
