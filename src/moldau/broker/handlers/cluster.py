"""DescribeCluster, DescribeTopicPartitions (KIP-966), DescribeLogDirs: what administrators see of brokers, topics and disks.

AlterReplicaLogDirs (KIP-113): which disk has what.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.metadata import WithoutListener, broker_addresses, brokers_without_listener, describe, why_missing
from moldau.broker.handlers.services import AdminServices, ConfigServices, Guards, MetadataServices, PartitionServices
from moldau.broker.request import Reply, Request
from moldau.broker.security import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS, Operation
from moldau.cluster.snapshot import PartitionInfo
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, Steps
from moldau.model.topic_names import check_name
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.cluster import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.protocol.messages.metadata import MetadataResponsePartition

if TYPE_CHECKING:
    from moldau.broker.replicas.housekeeping import HousekeepingTimers
    from moldau.log.description import DirectoryDescription
    from moldau.log.manager import LogManager


class Services(AdminServices, ConfigServices, MetadataServices, PartitionServices, Protocol):
    """What these handlers use of the broker."""

    @property
    def housekeeping(self) -> "HousekeepingTimers":
        """What looks after logs."""

    @property
    def logs(self) -> "LogManager":
        """What lies in the log directories."""

    @property
    def pipeline(self) -> Guards:
        """Authoriser and quotas."""


BROKERS = 1
CONTROLLERS = 2


def describe_cluster(services: Services, message: DescribeClusterRequest, request: Request, reply: Reply) -> None:
    """The live brokers; none is ever fenced. MISMATCHED_ENDPOINT_TYPE to who looks for a quorum of controllers (KIP-919)."""
    if message.endpoint_type != BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if message.endpoint_type == CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        reply(DescribeClusterResponse(error_code=code, error_message=f"this is a broker, not an endpoint of type {message.endpoint_type}"))
        return
    snapshot = services.metadata
    reply(
        DescribeClusterResponse(
            cluster_id=snapshot.cluster_id,
            controller_id=snapshot.controller_id,
            brokers=[DescribeClusterBroker(*each) for each in broker_addresses(services, request)],
            cluster_authorized_operations=CLUSTER_OPERATIONS if message.include_cluster_authorized_operations else NOT_ASKED,
        )
    )


def describe_topic_partitions(services: Services, message: DescribeTopicPartitionsRequest, request: Request, reply: Reply) -> Steps:
    """Topics in the order of their names, from the cursor on, up to a number of partitions; an empty list asks for all topics.

    Codes by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for all with a cursor before partition 0. Where the
    cursor's topic is deleted, the page begins with the next one.
    """
    names = sorted({topic.name for topic in message.topics} or services.metadata.topics)
    cursor = message.cursor
    if cursor is not None and cursor.partition_index < 0:
        reply(DescribeTopicPartitionsResponse(topics=[_failed_topic(name, ErrorCode.INVALID_REQUEST, NOT_ASKED) for name in names]))
        return
    start = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    limit = min(services.config.int("max.request.partition.size.limit"), message.response_partition_limit)
    without = WithoutListener(brokers_without_listener(services, request), ErrorCode.LISTENER_NOT_FOUND)
    topics, next_cursor = yield from _page(services, [name for name in names if name >= start[0]], start, max(1, limit), without)
    reply(DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor))


def _page(
    services: Services, names: list[str], start: tuple[str, int], left: int, without: WithoutListener
) -> Generator[Pause, None, tuple[list[DescribeTopicPartitionsResponseTopic], Cursor | None]]:
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield None
        if left == 0:
            return topics, Cursor(name, 0)
        topic = services.metadata.topics.get(name)
        if topic is None:
            topics.append(_failed_topic(name, why_missing(name).code, TOPIC_OPERATIONS))
            continue
        found = describe(services, topic, without)
        first = start[1] if name == start[0] else 0
        page = slice(first, first + left)
        partitions = [_described_partition(*each) for each in zip(found.partitions[page], topic.partitions[page], strict=True)]
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=found.topic_id,
                is_internal=found.is_internal,
                partitions=partitions,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        left -= len(partitions)
        if first + len(partitions) < len(found.partitions):
            return topics, Cursor(name, first + len(partitions))
    return topics, None


def _described_partition(partition: MetadataResponsePartition, info: PartitionInfo) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error_code,
        partition_index=partition.partition_index,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replica_nodes,
        isr_nodes=partition.isr_nodes,
        eligible_leader_replicas=list(info.elr),
        last_known_elr=list(info.last_known_elr),
        offline_replicas=partition.offline_replicas,
    )


def _failed_topic(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_authorized_operations=operations)


Wanted = dict[str, set[int]] | None


def describe_log_dirs(services: Services, message: DescribeLogDirsRequest, request: Request, reply: Reply) -> Steps:
    """Every log directory, with all partitions (null) or some; KAFKA_STORAGE_ERROR for one that is offline."""
    wanted: Wanted = None
    if message.topics is not None:
        wanted = {}
        for topic in message.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    results = []
    for directory in services.logs.describe():
        described = yield from _described_directory(directory, wanted)
        results.append(described)
    reply(DescribeLogDirsResponse(results=results))


def _described_directory(directory: "DirectoryDescription", wanted: Wanted) -> Generator[Pause, None, DescribeLogDirsResult]:
    if directory.error is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in directory.partitions:
        yield None
        name, index = partition.topic_partition
        if wanted is None or index in wanted.get(name, ()):
            described = DescribeLogDirsPartition(index, partition.size_bytes, partition.offset_lag, partition.is_future)
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(described)
    return DescribeLogDirsResult(
        log_dir=directory.path, topics=list(topics.values()), total_bytes=directory.total_bytes, usable_bytes=directory.usable_bytes
    )


def alter_replica_log_dirs(services: Services, message: AlterReplicaLogDirsRequest, request: Request, reply: Reply) -> Steps:
    """Begin to move replicas of this broker to other log directories; one that is not here yet will be made there.

    Codes by partition: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR; REPLICA_NOT_AVAILABLE and UNKNOWN_TOPIC_OR_PARTITION for one that is not
    here; INVALID_TOPIC_EXCEPTION for a name no topic can have; CLUSTER_AUTHORIZATION_FAILED.
    """
    is_allowed = services.pipeline.authorizer.allows(request.channel, Operation.ALTER)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if is_allowed:
                    code = _move_replica(services, TopicPartition(topic.name, index), directory.path, request)
                result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name))
                result.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
                yield None
    reply(AlterReplicaLogDirsResponse(results=list(results.values())))


def _move_replica(services: Services, partition: TopicPartition, path: str, request: Request) -> ErrorCode:
    try:
        check_name(partition.topic)
        services.housekeeping.directory_moves.begin(partition, path)
    except PeerError as error:
        if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            return error.code
        missing = services.missing_partition(partition.topic.encode(), partition.partition, by_id=False)
        return missing.code if missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.code
    services.admin_log.note(request, "replica moved to a log directory", partition=partition, path=path)
    return ErrorCode.NONE


HANDLERS = {
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
}
