"""What a read means now: its partitions, and the offsets of each, fixed on the driver once."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from moldau.lake.reading.offsets import EARLIEST, LATEST, OffsetRange, OptionError, plan_ranges, resolve, split_ranges
from moldau.lake.reading.options import PartitionAssignment, Pattern, ReadOptions, TopicNames
from moldau.model.identity import TopicPartition
from moldau.model.topic_names import matches


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
