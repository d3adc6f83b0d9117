"""Who is told of partitions that come and go."""

from typing import Protocol

from moldau.model.identity import TopicPartition


class RebalanceListener(Protocol):
    """Receives, from within `fetch`, `leave`, `assign` and `close` of a session, which partitions are ours."""

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """These are ours now, beside those before."""

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """These go to somebody else after this returns; what was stored for them is committed then."""

    def lost(self, partitions: list[TopicPartition]) -> None:
        """These belong to somebody else already."""
