"""Where a read begins and where it ends: the forms of options, and the step from there to plain offsets.

Everything is resolved once, on the driver: `latest` becomes a number before the first task starts, so that a task that is run again
reads the same records. What the brokers know comes in through a look-up function; nothing here talks to them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from moldau.model.identity import TopicPartition

ACCEPT_LOSS = "failOnDataLoss=false"
"""The data source's option with which a read continues without deleted records, for messages."""
LATEST = -1
EARLIEST = -2
"""The two numbers for a moving offset, in the JSON of options and in ListOffsets alike."""

Lookup = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""For each partition the offset at a time in ms (or LATEST, EARLIEST); -1 where no record is that young."""


class OptionError(ValueError):
    """An option of the data source that is not valid; the message starts with its name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"option {name}: {reason}")
        self.name = name


class DataLossError(RuntimeError):
    """Records that were to be read are no longer in the log."""


@dataclass(frozen=True, slots=True)
class PartitionEdge:
    """The same end of every partition: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for every partition, EARLIEST and LATEST allowed."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Times:
    """The first record not older than a time (ms since 1970, UTC); one time for all partitions, or one for each."""

    times: Mapping[TopicPartition, int] | int
    or_latest: bool
    """What to do where no record is that young: take the end of the partition, or refuse."""


Position = PartitionEdge | Offsets | Times


class OffsetRange(NamedTuple):
    """The records of one partition from `start` up to and not including `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in the range: at least as many as records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def parse_numbers(name: str, text: str) -> dict[TopicPartition, int]:
    """Read ``{"topic": {"0": 23, "1": -2}}``; OptionError in the name of the option `name`."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, dict):
            raise OptionError(name, f"topic {topic!r} needs an object of partitions and numbers, not {json.dumps(partitions)}")
        for partition, number in partitions.items():
            if not partition.isdecimal():
                raise OptionError(name, f"{partition!r} is not a partition of topic {topic!r}")
            if type(number) is not int:
                raise OptionError(name, f"{topic}-{partition} needs a whole number, not {json.dumps(number)}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def parse_assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Read ``{"topic": [0, 2]}``; OptionError in the name of the option `name`."""
    assigned: list[TopicPartition] = []
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, list) or not partitions or not all(type(p) is int and p >= 0 for p in partitions):
            raise OptionError(name, f"topic {topic!r} needs a list of partitions, not {json.dumps(partitions)}")
        assigned.extend(TopicPartition(topic, partition) for partition in partitions)
    if not assigned:
        raise OptionError(name, "names no partition")
    if len(set(assigned)) != len(assigned):
        raise OptionError(name, "names a partition twice")
    return tuple(sorted(assigned))


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """The JSON that `parse_numbers` reads."""
    nested: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(nested)


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(name, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise OptionError(name, f"needs a JSON object, not {text.strip()[:60]}")
    return value


def resolve(name: str, position: Position, partitions: Sequence[TopicPartition], lookup: Lookup) -> dict[TopicPartition, int]:
    """The offset that `position` means in each of `partitions` now.

    Kafka's rule: where offsets or times are given by partition, they are given for every partition and for no other.
    """
    if isinstance(position, PartitionEdge):
        return dict(lookup(dict.fromkeys(partitions, position.offset)))
    if isinstance(position, Offsets):
        _same_partitions(name, position.offsets, partitions)
        moving = {partition: offset for partition, offset in position.offsets.items() if offset < 0}
        return {**position.offsets, **(lookup(moving) if moving else {})}
    if isinstance(position.times, int):
        times: Mapping[TopicPartition, int] = dict.fromkeys(partitions, position.times)
    else:
        times = position.times
        _same_partitions(name, times, partitions)
    found = dict(lookup(times))
    missing = sorted(partition for partition, offset in found.items() if offset < 0)
    if missing and not position.or_latest:
        raise OptionError(name, f"{missing[0]} has no record as young as {times[missing[0]]} ms")
    return {**found, **(lookup(dict.fromkeys(missing, LATEST)) if missing else {})}


def _same_partitions(name: str, given: Iterable[TopicPartition], partitions: Iterable[TopicPartition]) -> None:
    unknown, missing = sorted(set(given) - set(partitions)), sorted(set(partitions) - set(given))
    if unknown:
        raise OptionError(name, f"{unknown[0]} is not read")
    if missing:
        raise OptionError(name, f"needs every partition that is read; {missing[0]} is missing")


def plan_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    firsts: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
    accept_loss: str = ACCEPT_LOSS,
) -> list[OffsetRange]:
    """Ranges that can be read, given what each partition holds now: from `firsts` up to `lasts`.

    A start before the first offset, or a start or an end beyond the last, means that records were deleted: DataLossError, or with
    `fail_on_data_loss` off the range is cut to what is left. Empty ranges are left out. The error names the option `accept_loss`.
    """
    ranges = []
    for partition in sorted(starts):
        start, end, first, last = starts[partition], ends[partition], firsts[partition], lasts[partition]
        if start > end and start <= last:
            raise OptionError("startingOffsets", f"{partition} would be read from {start} to {end}, backwards")
        problem = ""
        if start < min(first, end):
            problem = f"offset {start} is no longer in the log, which starts at {first}"
        elif start > last or end > last:
            problem = f"offset {max(start, end)} is beyond the end of the log, {last}"
        if problem and fail_on_data_loss:
            raise DataLossError(f"{partition}: {problem}; with {accept_loss} what is left would be read")
        start, end = max(start, first), min(end, last)
        if start < end:
            ranges.append(OffsetRange(partition.topic, partition.partition, start, end))
    return ranges


def split_ranges(ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None = None) -> list[OffsetRange]:
    """The ranges cut so that there are about `min_partitions` of about equal size and none holds more than `max_records` offsets."""
    total = sum(r.size for r in ranges)
    pieces: list[OffsetRange] = []
    for whole in ranges:
        count = 1
        if min_partitions is not None and len(ranges) < min_partitions:
            count = max(1, round(whole.size * min_partitions / total))
        if max_records is not None:
            count = max(count, -(-whole.size // max_records))
        count = min(count, whole.size)
        cuts = [whole.start + whole.size * number // count for number in range(count + 1)]
        pieces.extend(OffsetRange(whole.topic, whole.partition, start, end) for start, end in pairwise(cuts))
    return pieces
