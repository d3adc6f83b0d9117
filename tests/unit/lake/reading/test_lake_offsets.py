"""Positions become plain offsets once, ranges are cut without a record lost or doubled, and lost records are told."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.reading.offsets import (
    EARLIEST,
    LATEST,
    DataLossError,
    OffsetRange,
    Offsets,
    OptionError,
    PartitionEdge,
    Times,
    format_offsets,
    parse_numbers,
    plan_ranges,
    resolve,
    split_ranges,
)
from moldau.model.identity import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
BOTH = [A0, A1]


def lookup(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Partition 0 holds [10, 100), partition 1 holds [0, 50); a time of 1000 ms or later is too young."""
    edges = {A0: (10, 100), A1: (0, 50)}
    found = {}
    for partition, time in times.items():
        first, last = edges[partition]
        found[partition] = first if time == EARLIEST else last if time == LATEST else -1 if time >= 1000 else first + time
    return found


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (PartitionEdge(EARLIEST), {A0: 10, A1: 0}),
        (PartitionEdge(LATEST), {A0: 100, A1: 50}),
        (Offsets({A0: 20, A1: LATEST}), {A0: 20, A1: 50}),
        (Times(5, or_latest=False), {A0: 15, A1: 5}),
        (Times({A0: 5, A1: 2000}, or_latest=True), {A0: 15, A1: 50}),
    ],
)
def test_a_position_becomes_offsets(position: PartitionEdge | Offsets | Times, expected: dict[TopicPartition, int]) -> None:
    assert resolve("x", position, BOTH, lookup) == expected


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (Offsets({A0: 20}), "option x: needs every partition that is read; a-1 is missing"),
        (Offsets({A0: 1, A1: 1, TopicPartition("b", 0): 1}), "option x: b-0 is not read"),
        (Times({A0: 1}, or_latest=True), "option x: needs every partition that is read; a-1 is missing"),
        (Times(2000, or_latest=False), "option x: a-0 has no record as young as 2000 ms"),
    ],
)
def test_a_position_that_does_not_fit_is_refused(position: Offsets | Times, message: str) -> None:
    with pytest.raises(OptionError) as refused:
        resolve("x", position, BOTH, lookup)
    assert message in str(refused.value)


def plan(start: int, end: int, first: int, last: int, *, strict: bool = True) -> list[OffsetRange]:
    """The range of one partition."""
    return plan_ranges({A0: start}, {A0: end}, {A0: first}, {A0: last}, fail_on_data_loss=strict)


def test_a_range_that_is_there_is_planned_and_an_empty_one_left_out() -> None:
    assert plan(10, 20, 0, 30) == [OffsetRange("a", 0, 10, 20)]
    assert plan(10, 10, 0, 30) == []
    assert plan(10, 10, 20, 30) == [], "nothing is wanted, so nothing is lost"


@pytest.mark.parametrize(
    ("start", "end", "first", "last", "message", "left"),
    [
        (10, 20, 15, 30, "a-0: offset 10 is no longer in the log, which starts at 15", [OffsetRange("a", 0, 15, 20)]),
        (10, 20, 25, 30, "a-0: offset 10 is no longer in the log, which starts at 25", []),
        (10, 40, 0, 30, "a-0: offset 40 is beyond the end of the log, 30", [OffsetRange("a", 0, 10, 30)]),
        (35, 40, 0, 30, "a-0: offset 40 is beyond the end of the log, 30", []),
        (35, 30, 0, 30, "a-0: offset 35 is beyond the end of the log, 30", []),
    ],
)
def test_records_that_are_gone_are_told_or_left_out(
    start: int, end: int, first: int, last: int, message: str, left: list[OffsetRange]
) -> None:
    with pytest.raises(DataLossError) as lost:
        plan(start, end, first, last)
    assert message in str(lost.value)
    assert plan(start, end, first, last, strict=False) == left


def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(OptionError, match="a-0 would be read from 20 to 10, backwards"):
        plan(20, 10, 0, 30)


def test_ranges_are_split_in_proportion() -> None:
    ranges = [OffsetRange("a", 0, 0, 90), OffsetRange("a", 1, 0, 10)]
    assert [r.size for r in split_ranges(ranges, 10)] == [10] * 10
    assert split_ranges(ranges, 2) == ranges
    assert [r.size for r in split_ranges(ranges, None, 40)] == [30, 30, 30, 10]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1000)), min_size=1, max_size=8),
    st.none() | st.integers(1, 64),
    st.none() | st.integers(1, 64),
)
def test_splitting_loses_and_doubles_nothing(sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None) -> None:
    ranges = [OffsetRange("a", number, start, start + size) for number, (start, size) in enumerate(sizes)]
    pieces = split_ranges(ranges, min_partitions, max_records)
    assert all(piece.size > 0 for piece in pieces)
    assert max_records is None or all(piece.size <= max_records for piece in pieces)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert [offset for piece in mine for offset in range(piece.start, piece.end)] == list(range(whole.start, whole.end))


def test_offsets_survive_their_json() -> None:
    offsets = {A1: 5, A0: LATEST, TopicPartition("b", 3): 7}
    assert parse_numbers("x", format_offsets(offsets)) == offsets
