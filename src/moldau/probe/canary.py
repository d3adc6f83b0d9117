"""The canary topic in a cluster: made, extended and its leaders elected so that each broker leads a partition of its own."""

from dataclasses import dataclass

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.client.metadata import PartitionMetadata
from moldau.client.partition_requests import LATEST
from moldau.client.reassignments import Reassignments
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.probe.placement import needed, own_partitions

RETENTION_MS = 3_600_000
SEGMENT_MS = 600_000
_CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS), "segment.ms": str(SEGMENT_MS), "min.insync.replicas": "1"}


@dataclass(frozen=True, slots=True)
class Canary:
    """How the topic stands."""

    partitions: dict[int, int]
    """The partition of each broker, of those too that are away now."""
    led: frozenset[int]
    """Brokers that lead their own."""


def look(cluster: Cluster, topic: str, replicas: int) -> Canary:
    """Make and extend the topic where it has to be, and have leaders elected. RequestFailedError, ConnectionLostError."""
    metadata = cluster.metadata([topic])
    partitions = _partitions(cluster, topic)
    change = needed([int(each) for each in metadata.brokers], partitions, replicas)
    admin = Admin(cluster)
    if change.new:
        _add(admin, topic, change.new, len(partitions))
        partitions = _partitions(cluster, topic)
    if change.elect:
        Reassignments(cluster).elect([TopicPartition(topic, number) for number in change.elect])
        partitions = _partitions(cluster, topic)
    own = own_partitions(partitions)
    leaders = {each.partition: int(each.leader) for each in partitions}
    return Canary(own, frozenset(broker for broker, number in own.items() if leaders[number] == broker))


def partition_numbers(cluster: Cluster, topic: str) -> list[int]:
    """The partitions that the topic has; none if it does not exist. RequestFailedError, ConnectionLostError."""
    return [each.partition for each in _partitions(cluster, topic)]


def ends(cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
    """Where the log of each partition ends now that has a leader. RequestFailedError, ConnectionLostError."""
    wanted = {TopicPartition(topic, each.partition): LATEST for each in _partitions(cluster, topic) if each.leader >= 0}
    return {where: int(found.offset) for where, found in cluster.list_offsets(wanted).items()} if wanted else {}


def _partitions(cluster: Cluster, topic: str) -> tuple[PartitionMetadata, ...]:
    found = cluster.metadata([topic]).topics.get(topic)
    if found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ()
    return found.partitions


def _add(admin: Admin, topic: str, new: tuple[tuple[int, ...], ...], count: int) -> None:
    try:
        if count:
            admin.create_partitions(topic, count + len(new), assignments=new)
        else:
            admin.create_topic(topic, configs=_CONFIGS, assignments=new)
    except RequestFailedError as error:
        if error.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS):  # another probe was quicker
            raise
