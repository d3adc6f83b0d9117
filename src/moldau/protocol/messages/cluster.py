"""The cluster, as administrators see it.

* DescribeCluster (key 60): lists the brokers of a cluster.
* DescribeTopicPartitions (key 75): describes topics page by page.
* Log directories: AlterReplicaLogDirs (key 34) and DescribeLogDirs (35). DescribeLogDirs: version 4 adds the size of the file system.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, int64, message, string, struct, uuid


@message
class DescribeClusterRequest:
    """What to tell; `endpoint_type` is 1 for brokers, 2 for controllers."""

    API: ClassVar = ApiKey.DESCRIBE_CLUSTER

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", 1)
    include_fenced_brokers: bool = boolean("2+")


@message
class DescribeClusterBroker:
    """One broker and where it is reached."""

    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+")
    is_fenced: bool = boolean("2+")


@message
class DescribeClusterResponse:
    """The cluster's id, controller and brokers."""

    API: ClassVar = ApiKey.DESCRIBE_CLUSTER

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    endpoint_type: int = int8("1+", 1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", -1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", -2147483648)


@message
class TopicRequest:
    """One topic."""

    name: str = string("0+")


@message
class Cursor:
    """Where a page starts."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@message
class DescribeTopicPartitionsRequest:
    """Which topics, from where, and how many partitions at most."""

    API: ClassVar = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", 2000)
    cursor: Cursor | None = struct(Cursor, "0+", nullable="0+")


@message
class DescribeTopicPartitionsResponsePartition:
    """One partition: its leader and its replicas."""

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", -1, ignorable=True)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    eligible_leader_replicas: list[int] | None = array(int32, "0+", nullable="0+")
    last_known_elr: list[int] | None = array(int32, "0+", nullable="0+")
    offline_replicas: list[int] = array(int32, "0+", ignorable=True)


@message
class DescribeTopicPartitionsResponseTopic:
    """One topic and its partitions."""

    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = int32("0+", -2147483648)


@message
class DescribeTopicPartitionsResponse:
    """One page of topics, and where the next begins."""

    API: ClassVar = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = struct(Cursor, "0+", nullable="0+")


@message
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message
class AlterReplicaLogDir:
    """A directory and what moves there."""

    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


@message
class AlterReplicaLogDirsRequest:
    """The moves."""

    API: ClassVar = ApiKey.ALTER_REPLICA_LOG_DIRS

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


@message
class AlterReplicaLogDirPartitionResult:
    """What became of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class AlterReplicaLogDirTopicResult:
    """Answers for partitions of one topic."""

    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult, "0+")


@message
class AlterReplicaLogDirsResponse:
    """Errors by partition."""

    API: ClassVar = ApiKey.ALTER_REPLICA_LOG_DIRS

    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")


@message
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message
class DescribeLogDirsRequest:
    """Which partitions; null for all."""

    API: ClassVar = ApiKey.DESCRIBE_LOG_DIRS

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


@message
class DescribeLogDirsPartition:
    """One log: its size, and how far it lags if it is being moved."""

    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


@message
class DescribeLogDirsTopic:
    """Logs of one topic."""

    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


@message
class DescribeLogDirsResult:
    """One directory."""

    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", -1, ignorable=True)
    usable_bytes: int = int64("4+", -1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


@message
class DescribeLogDirsResponse:
    """The directories."""

    API: ClassVar = ApiKey.DESCRIBE_LOG_DIRS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
