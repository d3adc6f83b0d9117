"""The words of a mirror: partitions of sources, positions in them, why one stands still."""

from enum import Enum
from typing import NamedTuple

from moldau.model.identity import TopicPartition


class SourcePartition(NamedTuple):
    """A partition of a source. A topic that was made again is another topic: it has another id."""

    source: str
    """Name of the source cluster in the mirror's file."""
    topic_id: bytes
    topic: str
    number: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.number)

    def __str__(self) -> str:
        return f"{self.topic}-{self.number} of {self.source}"


class Position(NamedTuple):
    """Where a partition is read next."""

    offset: int
    epoch: int = -1
    """Leader epoch of the record before it; -1 without one, or if it is not known."""


class Halt(Enum):
    """Why a partition is not mirrored until an operator decides: what is behind the position may be lost, or another's."""

    TRUNCATED = "source truncated"
    DELETED = "source topic deleted"
    RECREATED = "source topic created again"
    OUT_OF_RETENTION = "source deleted records before they were mirrored"
    POISONED = "a batch of the source is damaged"
    DENIED = "access denied"
    PROMOTED = "promoted"
    """The target's partition is no mirror's any more."""
    REFUSED = "the target refuses it"
    LOOP = "its records come from the target"
    ORIGIN_LOST = "the source does not keep any more where a batch came from"
