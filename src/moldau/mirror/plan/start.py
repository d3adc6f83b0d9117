"""Where the mirroring of a partition starts that this mirror has not mirrored before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from moldau.model.identity import Offset, TimestampMs


class LogBound(Enum):
    """One of the bounds of a log. The values are those of the file."""

    EARLIEST = "earliest"
    """The log start offset."""
    LATEST = "latest"
    """The log end offset when the mirror comes to know the partition."""


@dataclass(frozen=True, slots=True)
class FromTime:
    """The first record that is not older; the log end offset if there is none."""

    timestamp_ms: TimestampMs


@dataclass(frozen=True, slots=True)
class FromOffset:
    """The record with this offset, or the next one that exists."""

    offset: Offset


StartPoint = LogBound | FromTime | FromOffset


@dataclass(frozen=True, slots=True)
class TopicStart:
    """The starts of one topic."""

    others: StartPoint | None
    """Of partitions that are not named; None: the default of the source."""
    partitions: Mapping[int, StartPoint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """The starts of one source's topics."""

    default: StartPoint = LogBound.EARLIEST
    topics: Mapping[str, TopicStart] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> StartPoint:
        """Where this partition starts."""
        starts = self.topics.get(topic)
        if starts is None:
            return self.default
        others = self.default if starts.others is None else starts.others
        return starts.partitions.get(partition, others)
