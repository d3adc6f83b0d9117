"""Log directories: AlterReplicaLogDirs (key 34) and DescribeLogDirs (35).

DescribeLogDirs: version 4 adds the size of the file system.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, int64, message, string


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
