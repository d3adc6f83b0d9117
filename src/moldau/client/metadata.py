"""The metadata of a cluster, from a broker: brokers, topics, leaders of partitions."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from moldau.client.errors import RequestFailedError, failure
from moldau.model.errors import ErrorCode, known_error
from moldau.model.host_port import Address
from moldau.model.identity import BrokerId, TopicPartition

NO_TOPIC_ID = bytes(16)


class PartitionMetadata(NamedTuple):
    """One partition: its leader (-1 while there is none), its replicas, and those in sync."""

    partition: int
    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]
    error: ErrorCode


class TopicMetadata(NamedTuple):
    """One topic, or why it cannot be described. `id` is `NO_TOPIC_ID` from a broker older than topic ids."""

    name: str
    id: bytes
    internal: bool
    partitions: tuple[PartitionMetadata, ...]
    error: ErrorCode


class ClusterMetadata(NamedTuple):
    """A moment of a cluster, as one broker knew it."""

    cluster_id: str | None
    controller: BrokerId
    brokers: Mapping[BrokerId, Address]
    racks: Mapping[BrokerId, str | None]
    topics: Mapping[str, TopicMetadata]


def from_response(response: Any) -> ClusterMetadata:
    """Read a MetadataResponse; partitions are put in order."""
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        controller=BrokerId(response.controller_id),
        brokers={BrokerId(broker.node_id): Address(broker.host, broker.port) for broker in response.brokers},
        racks={BrokerId(broker.node_id): broker.rack for broker in response.brokers},
        topics={topic.name: _topic(topic) for topic in response.topics if topic.name is not None},
    )


def _topic(topic: Any) -> TopicMetadata:
    return TopicMetadata(
        name=topic.name,
        id=topic.topic_id,
        internal=topic.is_internal,
        partitions=tuple(sorted(map(_partition, topic.partitions), key=lambda partition: partition.partition)),
        error=known_error(topic.error_code),
    )


def _partition(partition: Any) -> PartitionMetadata:
    return PartitionMetadata(
        partition=partition.partition_index,
        leader=BrokerId(partition.leader_id),
        leader_epoch=partition.leader_epoch,
        replicas=tuple(map(BrokerId, partition.replica_nodes)),
        isr=tuple(map(BrokerId, partition.isr_nodes)),
        offline=tuple(map(BrokerId, partition.offline_replicas)),
        error=known_error(partition.error_code),
    )


NO_LEADER = BrokerId(-1)


class Leaders:
    """Leaders and topic ids out of the metadata seen so far.

    A topic keeps the id with which it was first seen until `forget_topic`: if it is deleted and made again, fetching by that id fails
    (UNKNOWN_TOPIC_ID) instead of continuing, at the old offset, in another topic.
    """

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, Address] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.epochs: dict[TopicPartition, int] = {}
        """Of the leaders."""
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._errors: dict[str, ErrorCode] = {}

    def learn(self, metadata: ClusterMetadata) -> None:
        """Replace what is known by a broker's answer."""
        self.brokers = dict(metadata.brokers)
        for topic in metadata.topics.values():
            self._errors[topic.name] = topic.error
            if topic.error:
                continue
            self.topic_ids.setdefault(topic.name, topic.id)
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition)
                self._leaders[where], self.epochs[where] = partition.leader, partition.leader_epoch

    def __contains__(self, where: TopicPartition) -> bool:
        return self._leaders.get(where, NO_LEADER) in self.brokers

    def leader(self, where: TopicPartition) -> BrokerId:
        """The leader of a partition; RequestFailedError names the reason if there is none."""
        leader = self._leaders.get(where)
        if leader is not None and leader in self.brokers:
            return leader
        error: RequestFailedError
        if self._errors.get(where.topic, ErrorCode.NONE):
            error = failure(self._errors[where.topic], f"topic {where.topic}")
        elif leader is None:
            error = failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where)
        else:
            error = failure(ErrorCode.LEADER_NOT_AVAILABLE, where)
        raise error

    def forget(self, where: TopicPartition) -> None:
        """Ask again before the next request to this partition."""
        self._leaders.pop(where, None)
        self.epochs.pop(where, None)

    def forget_topic(self, name: str) -> None:
        """Forget everything about a topic, its id too."""
        self.topic_ids.pop(name, None)
        self._errors.pop(name, None)
        for where in [where for where in self._leaders if where.topic == name]:
            del self._leaders[where], self.epochs[where]
