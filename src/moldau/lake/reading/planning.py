"""Which offsets a read covers, fixed on the driver: of a batch once, of a stream between two micro-batches.

A stream's offsets, in the checkpoint:

    {"flights": {"0": 23, "1": 17, "id": "9f6c..."}}

That is the JSON of Spark's Kafka connector and, beside the partitions of a topic, the topic's id. A topic that is deleted and recreated
has another id: its offsets are those of other records.

Partitions and topics that appear are read from their first record. Records that were still to be read and were deleted (with their topic,
or because a partition was cut) fail the query with `fail_on_data_loss`, and otherwise are skipped with a warning: each is
named with its offsets. What retention took below the start of a batch is seen by the task that reads it.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from moldau.lake.reading.cluster_log import KnownTopic
from moldau.lake.reading.limits import read_limits
from moldau.lake.reading.offsets import EARLIEST, LATEST, DataLossError, OffsetRange, OptionError, plan_ranges, resolve, split_ranges
from moldau.lake.reading.options import PartitionAssignment, Pattern, ReadOptions, TopicNames
from moldau.model.identity import TopicPartition
from moldau.model.topic_names import matches

log = logging.getLogger(__name__)


class LogInfo(Protocol):
    """What planning asks the brokers."""

    def partition_counts(self, topics: Sequence[str] | None) -> Mapping[str, int]:
        """Number of partitions of each of these topics, or of all, internal ones too; an unknown one is left out."""

    def offsets(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """For each partition the offset at a time in ms (or LATEST, EARLIEST); -1 where no record is that young."""


class ReadBounds:
    """First and last offsets of all partitions, asked for once, so that one read sees one moment."""

    def __init__(self, log: LogInfo, partitions: Sequence[TopicPartition]) -> None:
        self._log = log
        self.firsts = log.offsets(dict.fromkeys(partitions, EARLIEST))
        self.lasts = log.offsets(dict.fromkeys(partitions, LATEST))

    def lookup(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """What `resolve` asks."""
        asked = {partition: time for partition, time in times.items() if time >= 0}
        edges = {p: self.firsts[p] if time == EARLIEST else self.lasts[p] for p, time in times.items() if time < 0}
        return {**edges, **(self._log.offsets(asked) if asked else {})}


def partitions_of(options: ReadOptions, log: LogInfo) -> list[TopicPartition]:
    """The partitions that are read, sorted. OptionError for a topic or partition that does not exist."""
    match options.subscription:
        case TopicNames(names):
            counts = log.partition_counts(names)
            _all_known("subscribe", names, counts)
        case Pattern(pattern):
            matching = re.compile(pattern)
            counts = {name: count for name, count in log.partition_counts(None).items() if matches(matching, name)}
            if not counts:
                raise OptionError("subscribePattern", f"no topic matches {pattern!r}")
        case PartitionAssignment(partitions):
            counts = log.partition_counts(sorted({p.topic for p in partitions}))
            _all_known("assign", (p.topic for p in partitions), counts)
            for partition in partitions:
                if partition.partition >= counts[partition.topic]:
                    raise OptionError("assign", f"{partition} is not there; the topic has {counts[partition.topic]} partitions")
            return list(partitions)
    return sorted(TopicPartition(name, number) for name, count in counts.items() for number in range(count))


def _all_known(option: str, names: Iterable[str], counts: Mapping[str, int]) -> None:
    for name in names:
        if name not in counts:
            raise OptionError(option, f"there is no topic {name!r}")


def plan(options: ReadOptions, log: LogInfo) -> list[OffsetRange]:
    """One range for each task. OptionError, DataLossError."""
    partitions = partitions_of(options, log)
    bounds = ReadBounds(log, partitions)
    ranges = plan_ranges(
        resolve(options.starting_name, options.starting, partitions, bounds.lookup),
        resolve(options.ending_name, options.ending, partitions, bounds.lookup),
        bounds.firsts,
        bounds.lasts,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return split_ranges(ranges, options.min_partitions, options.max_records_per_partition)


Offsets = Mapping[TopicPartition, int]
TASK_OFFSETS_MIN = 5_000
"""To read so many takes about as long as Spark takes to start a Python task."""


def admitted(starts: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """New ends, so that about `most` offsets are read, from each partition in proportion to what waits there.

    A partition that has anything gives at least one offset, else a small one would starve beside large ones: with more such partitions
    than `most`, that many are read.
    """
    sizes = {partition: end - starts[partition] for partition, end in ends.items() if end > starts[partition]}
    if sum(sizes.values()) <= most:
        return dict(ends)
    more, weight = max(0, most - len(sizes)), sum(size - 1 for size in sizes.values())
    chosen, passed = dict(ends), 0
    for partition, size in sizes.items():
        before, passed = passed, passed + size - 1
        share = passed * more // weight - before * more // weight if weight else 0  # what all of them lose by rounding adds up to nothing
        chosen[partition] = starts[partition] + 1 + share
    return chosen


def waiting(starts: Offsets, ends: Offsets) -> int:
    """Offsets between them."""
    return sum(max(0, end - starts[partition]) for partition, end in ends.items())


def share_tasks(ranges: Sequence[OffsetRange], least: int = TASK_OFFSETS_MIN) -> list[list[OffsetRange]]:
    """Ranges of a micro-batch by task: small ones share one, until it has `least` offsets."""
    tasks: list[list[OffsetRange]] = []
    size = least
    for wanted in ranges:
        if size >= least:
            tasks.append([])
            size = 0
        tasks[-1].append(wanted)
        size += wanted.size
    return tasks


class BatchDelay:
    """Whether a batch waits for more: while there are less than `least` offsets, but at most `delay_ms` after the last batch.

    The first batch of a run does not wait.
    """

    def __init__(self, least: int, delay_ms: int) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._last_ms: float | None = None

    def waits(self, offsets: int, now_ms: float) -> bool:
        """Whether to wait now, with so many offsets there; otherwise a batch begins now."""
        if self._last_ms is not None and offsets < self._least and now_ms - self._last_ms < self._delay_ms:
            return True
        if offsets:
            self._last_ms = now_ms
        return False


_ID, _ROUND = "id", ""
"""Beside the partitions of a topic, its id; beside the topics, the round of the stream's limits, if it ever had one."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The offset that is read next in each partition, and the ids of the topics."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps. Equal offsets give the same text: Spark compares texts to see whether there is anything new."""
        nested: dict[str, Any] = {}
        for partition, offset in sorted(self.offsets.items()):
            nested.setdefault(partition.topic, {})[str(partition.partition)] = offset
        for topic, entries in nested.items():
            if topic in self.ids:
                entries[_ID] = self.ids[topic]
        if _ROUND in self.ids:
            nested[_ROUND] = {_ID: self.ids[_ROUND]}
        return nested

    @classmethod
    def from_json(cls, nested: Mapping[str, Any]) -> "StreamOffsets":
        """Read it; a checkpoint that the JVM connector began has no ids."""
        offsets = {
            TopicPartition(topic, int(number)): int(offset)
            for topic, entries in nested.items()
            for number, offset in entries.items()
            if number != _ID
        }
        return cls(offsets, {topic: entries[_ID] for topic, entries in nested.items() if _ID in entries})

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of one topic, sorted."""
        return sorted(partition for partition in self.offsets if partition.topic == topic)


LOOK_MS = 1000.0
"""A run up to the present checks no more often whether what it has yet to read still exists."""


class StreamLog(Protocol):
    """What planning asks the brokers."""

    def topics(self, names: Sequence[str] | None) -> Mapping[str, KnownTopic]:
        """These topics, or all, internal ones too; unknown ones are left out."""

    def partition_counts(self, topics: Sequence[str] | None) -> Mapping[str, int]:
        """Number of partitions of each of these topics, or of all, internal ones too."""

    def offsets(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """For each partition the offset at a time in ms (or LATEST, EARLIEST); -1 where no record is that young."""


class StreamPlanner:
    """Plans the micro-batches of one run of one query."""

    def __init__(self, options: ReadOptions, source: StreamLog) -> None:
        self._options = options
        self._log = source
        self._target: StreamOffsets | None = None
        self._patience = BatchDelay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms)
        self._planned: StreamOffsets | None = None
        self._seen: tuple[dict[str, KnownTopic], StreamOffsets, float] | None = None
        self.newest: StreamOffsets | None = None
        """The end of what there was when it was last looked."""

    def initial(self) -> StreamOffsets:
        """Where a new query starts. OptionError for topics and positions that are not there."""
        options = self._options
        if isinstance(options.subscription, Pattern) and not self._topics():
            return StreamOffsets()  # topics may come that match
        partitions = partitions_of(options, self._log)
        bounds = ReadBounds(self._log, partitions)
        limits = read_limits(options.limits_file)
        offsets = {each: limits.start(each, bounds.firsts[each]) for each in partitions if each.topic in limits.starts}
        if others := [each for each in partitions if each not in offsets]:
            offsets |= resolve(options.starting_name, options.starting, others, bounds.lookup)
        for partition, offset in offsets.items():
            first, last = bounds.firsts[partition], bounds.lasts[partition]
            if not first <= offset <= last:
                self._lost(f"{partition}: the query starts at offset {offset}, the log holds [{first}, {last})")
                offsets[partition] = min(max(offset, first), last)
        return StreamOffsets(offsets, self._ids({partition.topic for partition in partitions}))

    def stop_at_present(self) -> None:
        """Read no further than what there is now (Trigger.AvailableNow)."""
        self._target = self._present(self._topics())

    def next(self, start: StreamOffsets, most: int | None, now_ms: float, *, patient: bool) -> StreamOffsets:
        """The end of the next batch: at most about `most` offsets after `start`; `start` itself if there is nothing to read yet.

        `patient`: whether a batch may wait for minOffsetsPerTrigger. DataLossError.
        """
        topics, present = self._look(now_ms)
        self.newest = present
        kept = self._checked(start, present, topics)
        limits = read_limits(self._options.limits_file)
        ends = limits.limit(self._upto(present).offsets, kept.offsets)
        starts = self._starts(kept, ends)
        for partition, start_of in starts.items():
            ends[partition] = max(ends[partition], min(start_of, present.offsets.get(partition, start_of)))
        count = waiting(starts, ends)
        patient = patient and self._target is None and not limits.ends
        if patient and self._options.min_offsets_per_trigger and self._patience.waits(count, now_ms):
            return start
        if most is not None:
            ends = admitted(starts, ends, most)
        end = StreamOffsets(ends, {topic: known.id for topic, known in topics.items()} | limits.round_after(start.ids, _ROUND))
        self._planned = end
        return end

    def _look(self, now_ms: float) -> tuple[dict[str, KnownTopic], StreamOffsets]:
        """Topics and their ends: of now, or in a run up to the present as they were a moment ago. Nothing that comes belongs to such a run,
        and what goes is missed by the task that reads it."""
        if self._target is None or self._seen is None or now_ms - self._seen[2] >= LOOK_MS:
            topics = self._topics()
            self._seen = topics, self._present(topics), now_ms
        return self._seen[0], self._seen[1]

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """What the tasks of a batch read, cut for minPartitions. DataLossError."""
        if end is not self._planned and end != self._planned:  # a batch that an earlier run had planned is run again
            end = self._checked(end, None, self._topics())
        known = StreamOffsets({p: o for p, o in start.offsets.items() if self._same_topic(start, end, p.topic)}, start.ids)
        starts = self._starts(known, end.offsets)
        ranges = [
            OffsetRange(partition.topic, partition.partition, starts[partition], offset)
            for partition, offset in sorted(end.offsets.items())
            if starts[partition] < offset
        ]
        return split_ranges(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def same_now(self, offsets: StreamOffsets) -> dict[TopicPartition, int]:
        """The offsets of topics that are still the same."""
        topics = self._topics()
        return {p: o for p, o in offsets.offsets.items() if p.topic in topics and _is(offsets, p.topic, topics[p.topic].id)}

    def _topics(self) -> dict[str, KnownTopic]:
        match self._options.subscription:
            case TopicNames(names):
                return dict(self._log.topics(names))
            case Pattern(pattern):
                matching = re.compile(pattern)
                return {name: known for name, known in self._log.topics(None).items() if matches(matching, name)}
            case PartitionAssignment(partitions):
                return dict(self._log.topics(sorted({p.topic for p in partitions})))

    def _ids(self, names: set[str]) -> dict[str, str]:
        return {name: known.id for name, known in self._log.topics(sorted(names)).items()}

    def _present(self, topics: Mapping[str, KnownTopic]) -> StreamOffsets:
        partitions = [TopicPartition(name, number) for name, known in topics.items() for number in range(known.partitions)]
        if isinstance(self._options.subscription, PartitionAssignment):
            assigned = set(self._options.subscription.partitions)
            partitions = [partition for partition in partitions if partition in assigned]
        lasts = self._log.offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
        return StreamOffsets(dict(lasts), {name: known.id for name, known in topics.items()})

    def _upto(self, present: StreamOffsets) -> StreamOffsets:
        """What may be read: all there is, or up to the target; never more than there is."""
        if self._target is None:
            return present
        target = self._target
        ends = {p: min(o, present.offsets[p]) for p, o in target.offsets.items() if p in present.offsets}
        return StreamOffsets(ends, present.ids)

    def _checked(self, reached: StreamOffsets, present: StreamOffsets | None, topics: Mapping[str, KnownTopic]) -> StreamOffsets:
        """The offsets of topics that are still the same; with `present`, none of them after the end of the log."""
        kept: dict[TopicPartition, int] = {}
        for topic in sorted({partition.topic for partition in reached.offsets}):
            partitions = reached.partitions_of(topic)
            where = ", ".join(f"{partition} at offset {reached.offsets[partition]}" for partition in partitions)
            if topic not in topics:
                self._lost(f"topic {topic} was deleted, or is read no longer; the query had reached {where}")
            elif not _is(reached, topic, topics[topic].id):
                self._lost(f"topic {topic} was deleted and recreated; the query had reached {where}")
            else:
                kept.update((partition, reached.offsets[partition]) for partition in partitions)
        for partition, offset in kept.items():
            if present is not None and partition in present.offsets and offset > present.offsets[partition]:
                self._lost(f"{partition}: the query had reached offset {offset}, the log ends at {present.offsets[partition]}")
                kept[partition] = present.offsets[partition]
        return StreamOffsets(kept, {topic: reached.ids[topic] for topic in reached.ids if topic in topics})

    def _starts(self, known: StreamOffsets, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where the batch starts in each partition of `ends`; partitions that are new at their first record."""
        new = [partition for partition in ends if partition not in known.offsets]
        firsts = self._log.offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        return {partition: firsts[partition] if partition in firsts else known.offsets[partition] for partition in ends}

    @staticmethod
    def _same_topic(start: StreamOffsets, end: StreamOffsets, topic: str) -> bool:
        return topic not in start.ids or topic not in end.ids or start.ids[topic] == end.ids[topic]

    def _lost(self, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{problem}; with failOnDataLoss=false the query would continue")
        log.warning("%s; the query continues with what is left", problem)


def _is(offsets: StreamOffsets, topic: str, topic_id: str) -> bool:
    return offsets.ids.get(topic, topic_id) == topic_id
