"""Names and numbers of the log, each with a type of its own so that they cannot be mixed up.

Hot loops may hold them as plain ``int``; whatever is stored or handed between rooms carries the type.
"""

from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
"""Position of a record in its partition: counts records, not bytes."""
FilePosition = NewType("FilePosition", int)
"""Position of a byte in a file."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaderships of a partition; -1 where unknown (KIP-101)."""
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01 UTC; -1 where there is none."""

UNKNOWN_OFFSET = Offset(-1)
UNKNOWN_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = TimestampMs(-1)
NO_PRODUCER_ID = ProducerId(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic. As text, and as the name of its folder: ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
