"""What a broker tells about its cluster: brokers, topics, who leads which partition."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from moldau.client.address import Address
from moldau.model.errors import ErrorCode, known_error
from moldau.model.identity import BrokerId

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
    """One topic, or why nothing can be said of it. `id` is `NO_TOPIC_ID` from a broker older than topic ids."""

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
    topics: Mapping[str, TopicMetadata]


def from_response(response: Any) -> ClusterMetadata:
    """Read a MetadataResponse; partitions are put in order."""
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        controller=BrokerId(response.controller_id),
        brokers={BrokerId(broker.node_id): Address(broker.host, broker.port) for broker in response.brokers},
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
