"""A micro-batch takes about as many offsets as it may, from every partition that has some; a small one waits, but not for ever."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.planning import BatchDelay, admitted, share_tasks, waiting
from moldau.model.identity import TopicPartition

SIZES = st.dictionaries(st.integers(0, 20).map(lambda number: TopicPartition("t", number)), st.integers(0, 10_000), max_size=12)


@given(SIZES, st.integers(0, 5_000), st.integers(1, 30_000))
def test_all_is_read_in_the_end_and_nobody_starves(sizes: dict[TopicPartition, int], start: int, most: int) -> None:
    starts = dict.fromkeys(sizes, start)
    ends = {partition: start + size for partition, size in sizes.items()}
    chosen = admitted(starts, ends, most)
    busy = [partition for partition, size in sizes.items() if size]
    assert chosen.keys() == ends.keys()
    assert all(starts[partition] < chosen[partition] <= ends[partition] for partition in busy)
    assert waiting(starts, chosen) <= max(most, len(busy))
    assert waiting(starts, chosen) >= min(most, waiting(starts, ends))


def test_shares_are_in_proportion() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    starts = {a: 100, b: 0, c: 5}
    assert admitted(starts, {a: 1000, b: 90, c: 6}, 100) == {a: 189, b: 10, c: 6}
    assert admitted(starts, {a: 1000, b: 90, c: 6}, 991) == {a: 1000, b: 90, c: 6}
    assert admitted(starts, {a: 1000, b: 90, c: 6}, 1) == {a: 101, b: 1, c: 6}, "more than one, so that none starves"
    assert admitted(starts, {a: 50, b: 90, c: 6}, 50) == {a: 50, b: 49, c: 6}, "one that was cut keeps the end it was given"


def test_a_small_batch_waits_for_more_or_for_its_time() -> None:
    patience = BatchDelay(least=10, delay_ms=1000)
    assert not patience.waits(3, 0), "the first batch of a run does not wait"
    assert patience.waits(9, 100)
    assert not patience.waits(10, 200)
    assert patience.waits(9, 1199)
    assert not patience.waits(9, 1200), "time is up"
    assert patience.waits(1, 1201)
    assert not patience.waits(0, 5000)
    assert not patience.waits(1, 5001), "a batch of nothing began no time"


def test_small_ranges_share_a_task() -> None:
    ranges = [OffsetRange("t", number, 0, size) for number, size in enumerate((4, 5, 20, 3, 3, 3, 3))]
    assert [[wanted.partition for wanted in task] for task in share_tasks(ranges, 10)] == [[0, 1, 2], [3, 4, 5, 6]]
    assert share_tasks([]) == []
    assert share_tasks(ranges[2:3]) == [[ranges[2]]]
