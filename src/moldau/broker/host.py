"""What changes of metadata ask of the broker that carries them out."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps


class PartitionHost(Protocol):
    """The broker's side of a topic's life; called after the change is durable."""

    def storage_lost(self) -> PeerError | None:
        """KAFKA_STORAGE_ERROR when no log directory is left to hold anything; None if there is one."""

    def open_partitions(self, wanted: Sequence[tuple[TopicPartition, bytes]]) -> Steps:
        """Serve partitions that the metadata has now, each with its topic's id, in steps. One whose log cannot be opened is offline then;
        one whose topic is deleted meanwhile is left out.
        """

    def remove_partitions(self, topic_partitions: Sequence[TopicPartition]) -> object:
        """Stop serving partitions and mark their logs for removal; `topics_deleted` makes that durable."""

    def close_partitions(self, topic_partitions: Sequence[TopicPartition]) -> object:
        """Stop serving partitions, and leave their logs as they are: it is not known whether the next start finds their topics."""

    def topics_deleted(self, topics: Iterable[str]) -> Steps:
        """All partitions of these topics have been removed: bring that to disk, and forget what is kept of them, in steps."""

    def reconfigure_topic(self, topic: str) -> Steps:
        """Take up what the topic sets now, in steps."""

    def reconfigure_broker(self, changed: set[str]) -> Steps:
        """Take up the broker's configurations that have changed, for itself and for the topics that take theirs from it."""
