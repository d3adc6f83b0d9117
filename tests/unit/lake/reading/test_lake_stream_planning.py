"""Between two micro-batches: what appears is read from its start, what is gone fails the query or is passed over, and each is named."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from moldau.lake.reading.cluster_log import KnownTopic
from moldau.lake.reading.limits import NO_LIMITS, StreamLimits, write_limits
from moldau.lake.reading.offsets import EARLIEST, LATEST, DataLossError, OffsetRange, OptionError
from moldau.lake.reading.options import OptionScope, parse_options
from moldau.lake.reading.planning import LOOK_MS, StreamOffsets, StreamPlanner
from moldau.model.identity import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Brokers:
    """Topics with first and last offsets, which the test moves."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.logs = {TopicPartition(name, n): bounds for name, logs in topics.items() for n, bounds in enumerate(logs)}
        self.ids = {name: f"id-{name}" for name in topics}

    def topics(self, names: Sequence[str] | None) -> Mapping[str, KnownTopic]:
        known = {name: KnownTopic(self.ids[name], sum(p.topic == name for p in self.logs)) for name in self.ids}
        return {name: topic for name, topic in known.items() if names is None or name in names}

    def partition_counts(self, topics: Sequence[str] | None) -> Mapping[str, int]:
        return {name: known.partitions for name, known in self.topics(topics).items()}

    def offsets(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        edges = {EARLIEST: 0, LATEST: 1}
        return {p: self.logs[p][edges[time]] if time in edges else self.logs[p][0] + time for p, time in times.items()}

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        self.logs = {p: bounds for p, bounds in self.logs.items() if p.topic != topic}


def planner(brokers: Brokers, **options: str) -> StreamPlanner:
    given = {"kafka.bootstrap.servers": "h:1", **({} if "subscribePattern" in options or "assign" in options else {"subscribe": "a"})}
    return StreamPlanner(parse_options({**given, **options}, OptionScope.STREAM), brokers)


def follow(plans: StreamPlanner, start: StreamOffsets, most: int | None = None) -> tuple[StreamOffsets, list[OffsetRange]]:
    """The next batch after its way through Spark's checkpoint."""
    start = StreamOffsets.from_json(start.to_json())
    end = plans.next(start, most, 0.0, patient=True)
    return end, plans.ranges(start, StreamOffsets.from_json(end.to_json()))


def test_a_stream_starts_at_the_end_unless_told_otherwise() -> None:
    brokers = Brokers(a=[(2, 10), (0, 5)])
    assert planner(brokers).initial() == StreamOffsets({A0: 10, A1: 5}, {"a": "id-a"})
    assert planner(brokers, startingOffsets="earliest").initial().offsets == {A0: 2, A1: 0}
    assert planner(brokers, startingOffsets='{"a": {"0": 4, "1": -1}}').initial().offsets == {A0: 4, A1: 5}
    assert planner(brokers, startingTimestamp="1").initial().offsets == {A0: 3, A1: 1}
    assert planner(brokers, assign='{"a": [1]}').initial().offsets == {A1: 5}
    with pytest.raises(DataLossError, match=r"a-0: the query starts at offset 1, the log holds \[2, 10\)"):
        planner(brokers, startingOffsets='{"a": {"0": 1, "1": 0}}').initial()
    passing = planner(brokers, startingOffsets='{"a": {"0": 1, "1": 9}}', failOnDataLoss="false")
    assert passing.initial().offsets == {A0: 2, A1: 5}
    with pytest.raises(OptionError, match="there is no topic 'c'"):
        planner(brokers, subscribe="c").initial()


def test_what_spark_keeps_is_the_same_text_for_the_same_offsets() -> None:
    offsets = StreamOffsets({A1: 5, TopicPartition("a", 10): 1, A0: 3, B0: 0}, {"a": "x", "b": "y"})
    assert str(offsets.to_json()) == "{'a': {'0': 3, '1': 5, '10': 1, 'id': 'x'}, 'b': {'0': 0, 'id': 'y'}}"
    assert StreamOffsets.from_json(offsets.to_json()) == offsets
    assert StreamOffsets.from_json({"a": {"0": 3}}) == StreamOffsets({A0: 3}), "the JVM connector's"


def test_batches_follow_each_other_without_a_gap() -> None:
    brokers = Brokers(a=[(0, 10), (0, 5)])
    plans = planner(brokers, startingOffsets="earliest")
    end, ranges = follow(plans, plans.initial(), most=8)
    assert [str(r) for r in ranges] == ["a-0 [0, 5)", "a-1 [0, 3)"]
    end, ranges = follow(plans, end, most=8)
    assert [str(r) for r in ranges] == ["a-0 [5, 10)", "a-1 [3, 5)"]
    assert follow(plans, end, most=8) == (end, [])
    brokers.logs[A0] = (0, 11)
    _, ranges = follow(plans, end)
    assert [str(r) for r in ranges] == ["a-0 [10, 11)"]
    assert plans.newest is not None
    assert plans.newest.offsets == {A0: 11, A1: 5}


def test_new_partitions_and_new_topics_are_read_from_their_first_record() -> None:
    brokers = Brokers(a=[(0, 10)])
    plans = planner(brokers, subscribePattern="[ab]")
    start = plans.initial()
    brokers.logs[A1], brokers.logs[B0], brokers.ids["b"] = (3, 4), (0, 2), "id-b"
    brokers.logs[TopicPartition("c", 0)], brokers.ids["c"] = (0, 9), "id-c"
    end, ranges = follow(plans, start)
    assert [str(r) for r in ranges] == ["a-1 [3, 4)", "b-0 [0, 2)"]
    assert end == StreamOffsets({A0: 10, A1: 4, B0: 2}, {"a": "id-a", "b": "id-b"})
    assert planner(Brokers(), subscribePattern="x").initial() == StreamOffsets(), "topics may come that match"


def test_up_to_the_present_and_no_further() -> None:
    brokers = Brokers(a=[(0, 10)])
    plans = planner(brokers, startingOffsets="earliest", minOffsetsPerTrigger="100")
    start = plans.initial()
    plans.stop_at_present()
    brokers.logs[A0], brokers.logs[A1] = (0, 20), (0, 5)
    end, ranges = follow(plans, start)
    assert [str(r) for r in ranges] == ["a-0 [0, 10)"], "and minOffsetsPerTrigger does not hold the last batch back"
    assert follow(plans, end) == (end, [])


def test_a_run_up_to_the_present_looks_once_a_second_whether_all_is_still_there() -> None:
    """What goes in between is missed by a task; a run that goes on for ever looks before every batch."""
    brokers = Brokers(a=[(0, 10)])
    plans, unending = (planner(brokers, startingOffsets="earliest") for _ in range(2))
    plans.stop_at_present()
    first, also_first = (each.next(each.initial(), 2, 0.0, patient=True) for each in (plans, unending))
    brokers.delete("a")
    second = plans.next(first, 2, LOOK_MS - 1, patient=True)
    assert [str(r) for r in plans.ranges(first, second)] == ["a-0 [2, 4)"]
    with pytest.raises(DataLossError, match="topic a was deleted, or is read no longer; the query had reached a-0 at offset 4"):
        plans.next(second, 2, LOOK_MS, patient=True)
    with pytest.raises(DataLossError, match="topic a was deleted, or is read no longer; the query had reached a-0 at offset 2"):
        unending.next(also_first, 2, 0.0, patient=True)


def test_a_batch_below_the_least_number_waits() -> None:
    brokers = Brokers(a=[(0, 10)])
    plans = planner(brokers, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1s")
    end, _ = follow(plans, plans.initial())
    brokers.logs[A0] = (0, 12)
    assert plans.next(end, None, 999.0, patient=True) is end
    assert plans.next(end, None, 999.0, patient=False).offsets == {A0: 12}, "Spark asked for all that is there"
    assert plans.next(end, None, 1000.0, patient=True).offsets == {A0: 12}


LOSSES = [
    (lambda b: b.logs.update({A0: (0, 7)}), r"a-0: the query had reached offset 10, the log ends at 7", {A0: 7}, []),
    (lambda b: b.ids.update(a="other"), "topic a was deleted and recreated; the query had reached a-0 at offset 10", {A0: 10}, [(0, 10)]),
    (lambda b: b.delete("a"), "topic a was deleted, or is read no longer; the query had reached a-0 at offset 10", {}, []),
]


@pytest.mark.parametrize(("happens", "message", "reached", "ranges"), LOSSES, ids=["cut", "recreated", "deleted"])
def test_what_is_gone_fails_the_query_or_is_passed_over(
    happens: object, message: str, reached: dict[TopicPartition, int], ranges: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers(a=[(0, 10)])
    start = planner(brokers).initial()
    assert callable(happens)
    happens(brokers)
    with pytest.raises(DataLossError, match=message):
        follow(planner(brokers), start)
    with caplog.at_level(logging.WARNING):
        end, found = follow(planner(brokers, failOnDataLoss="false"), start)
    assert end.offsets == reached
    assert [(r.start, r.end) for r in found] == ranges
    assert message in caplog.text


def test_a_planned_batch_that_is_run_again_is_checked_too() -> None:
    """After a restart Spark asks for the tasks of a batch that an earlier run had planned; its topic may be another one now."""
    brokers = Brokers(a=[(0, 10)])
    first = planner(brokers, startingOffsets="earliest")
    start = first.initial()
    end, ranges = follow(first, start)
    assert planner(brokers).ranges(start, end) == ranges
    brokers.ids["a"] = "other"
    with pytest.raises(DataLossError, match="topic a was deleted and recreated"):
        planner(brokers).ranges(start, end)
    assert planner(brokers, failOnDataLoss="false").ranges(start, end) == []
    assert first.same_now(end) == {}


def test_large_partitions_are_cut_for_more_tasks() -> None:
    plans = planner(Brokers(a=[(0, 10), (0, 2)]), startingOffsets="earliest", minPartitions="6")
    _, ranges = follow(plans, plans.initial())
    assert [(r.partition, r.start, r.end) for r in ranges] == [(0, 0, 2), (0, 2, 4), (0, 4, 6), (0, 6, 8), (0, 8, 10), (1, 0, 2)]


@pytest.mark.parametrize("start", ["latest", '{"a": {"0": 4}}'])
def test_a_partition_that_is_new_since_a_start_was_noted_is_read_from_its_first_record(start: str, tmp_path: Path) -> None:
    """As a query reads it that has begun before it was there."""
    path = str(tmp_path / "limits.json")
    write_limits(path, StreamLimits({"a": {"0": 4}}))
    assert planner(Brokers(a=[(2, 10), (3, 5)]), startingOffsets=start, limitsFile=path).initial().offsets == {A0: 4, A1: 3}


def test_a_stream_within_limits_that_change(tmp_path: Path) -> None:
    """It begins and ends where the file says, reads nothing of a partition that the file leaves out, and takes that in later from its
    start; another round is a batch of nothing, once."""
    path = str(tmp_path / "limits.json")
    brokers = Brokers(a=[(0, 10), (0, 5)])
    plans = planner(brokers, limitsFile=path)
    write_limits(path, StreamLimits({"a": {"0": 2}}, {"a": {"0": 6}}))
    start = StreamOffsets({A0: 2}, {"a": "id-a"})
    assert plans.initial().offsets == {A0: 2, A1: 0}
    end, ranges = follow(plans, start)
    assert (end.offsets, ranges) == ({A0: 6}, [OffsetRange("a", 0, 2, 6)])
    write_limits(path, StreamLimits(ends={"a": {"0": 6, "1": 3}}))
    end, ranges = follow(plans, end)
    assert (end.offsets, ranges) == ({A0: 6, A1: 3}, [OffsetRange("a", 1, 0, 3)])
    write_limits(path, StreamLimits(ends={"a": {"0": 6, "1": 3}}, round="r1"))
    again, ranges = follow(plans, end)
    assert (again.offsets, ranges, again.to_json() != end.to_json()) == (end.offsets, [], True)
    assert follow(plans, again)[0].to_json() == again.to_json()
    write_limits(path, NO_LIMITS)
    last, ranges = follow(plans, again)
    assert ranges == [OffsetRange("a", 0, 6, 10), OffsetRange("a", 1, 3, 5)]
    assert follow(plans, last) == (last, [])
