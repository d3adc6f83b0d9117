"""AlterReplicaLogDirs (key 34): moves replicas between the log directories of a broker."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string


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
