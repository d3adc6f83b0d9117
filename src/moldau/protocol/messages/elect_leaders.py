"""ElectLeaders (key 43): elects leaders: the preferred ones, or any replica (from version 1)."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, message, string


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message
class ElectLeadersRequest:
    """Which partitions; null for all."""

    API: ClassVar = ApiKey.ELECT_LEADERS

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", 60000)


@message
class PartitionResult:
    """What became of one partition."""

    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class ReplicaElectionResult:
    """Answers for partitions of one topic."""

    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


@message
class ElectLeadersResponse:
    """Answers by partition."""

    API: ClassVar = ApiKey.ELECT_LEADERS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
