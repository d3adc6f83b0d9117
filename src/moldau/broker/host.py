"""What changes of metadata ask of the broker that carries them out, and how this one does."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from moldau.broker.replicas.manager import LeaderState, ReplicaManager
from moldau.model.errors import MoldauError, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.replicas.rules import TopicSettings

_LOG = logging.getLogger(__name__)


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


class SnapshotHost:
    """A `PartitionHost` that takes states and configurations from the broker's metadata snapshot."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._replicas: ReplicaManager = broker.replicas
        self.storage_lost = self._replicas.storage_lost

    def settings_of(self, topic: str) -> "TopicSettings":
        """What the partitions of a topic obey now."""
        return self._broker.topic_settings.of(self._broker.metadata.topic_config(topic))

    def open_partition(self, topic_partition: TopicPartition, *, is_new: bool = True) -> None:
        """Begin to lead a partition that the metadata has, unless it is led. PeerError KAFKA_STORAGE_ERROR, StorageError."""
        if self._replicas.partitions.get(topic_partition) is not None:
            return
        topic = self._broker.metadata.topics[topic_partition.topic]
        info = topic.partitions[topic_partition.partition]
        state = LeaderState(info.leader_epoch, info.state_version, info.replicas, info.isr)
        self._replicas.become_leader(topic_partition, state, topic.topic_id, self.settings_of(topic.name), is_new=is_new)

    def try_open(self, topic_partition: TopicPartition, *, is_new: bool = False) -> None:
        """The same for one that was there before, usually; one that cannot be opened stays offline alone."""
        try:
            self.open_partition(topic_partition, is_new=is_new)
        except MoldauError as error:
            _LOG.error("partition offline: partition=%s reason=%s", topic_partition, error)

    def open_partitions(self, wanted: Sequence[tuple[TopicPartition, bytes]]) -> Steps:
        """As `PartitionHost`; folders are made and brought to disk together."""
        logs = self._replicas.logs
        yield from logs.make_folders(wanted)
        for topic_partition, topic_id in wanted:
            if topic_id in self._broker.metadata.topics_by_id:
                self.try_open(topic_partition, is_new=True)
            yield UNFINISHED
        yield from logs.drop_folders(topic_partition for topic_partition, _ in wanted)

    def remove_partitions(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """As `PartitionHost`."""
        self._replicas.stop(topic_partitions, delete=True)

    def close_partitions(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """As `PartitionHost`."""
        self._replicas.stop(topic_partitions, delete=False)

    def topics_deleted(self, topics: Iterable[str]) -> Steps:
        """As `PartitionHost`."""
        names = list(topics)
        broker = self._broker
        yield from self._replicas.logs.settle_deleted()
        broker.counters.forget_topics(names)
        if broker.coordinators_if_any is not None:
            yield from broker.coordinators_if_any.topics_deleted(names)

    def reconfigure_topic(self, topic: str) -> Steps:
        """As `PartitionHost`."""
        info = self._broker.metadata.topics.get(topic)
        for index in range(0 if info is None else len(info.partitions)):
            self._replicas.reconfigure(TopicPartition(topic, index), self.settings_of(topic))  # as they are by now
            yield UNFINISHED

    def reconfigure_broker(self, changed: Iterable[str]) -> Steps:
        """As `PartitionHost`."""
        self._broker.reconfigured()
        for topic in list(self._broker.metadata.topics):
            yield from self.reconfigure_topic(topic)
