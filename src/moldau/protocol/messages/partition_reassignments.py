"""Leaders and replicas of partitions.

* ElectLeaders (key 43): elects leaders: the preferred ones, or any replica (from version 1).
* Replicas of partitions on other brokers: AlterPartitionReassignments (key 45) and ListPartitionReassignments (46).
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string


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


@message
class ReassignablePartition:
    """One partition and its new replicas; null calls off what is under way."""

    partition_index: int = int32("0+")
    replicas: list[int] | None = array(int32, "0+", nullable="0+")


@message
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


@message
class AlterPartitionReassignmentsRequest:
    """The moves."""

    API: ClassVar = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    timeout_ms: int = int32("0+", 60000)
    allow_replication_factor_change: bool = boolean("1+", True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


@message
class ReassignablePartitionResponse:
    """What became of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class ReassignableTopicResponse:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


@message
class AlterPartitionReassignmentsResponse:
    """Answers by partition."""

    API: ClassVar = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")


@message
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


@message
class ListPartitionReassignmentsRequest:
    """Which partitions; null for all."""

    API: ClassVar = ApiKey.LIST_PARTITION_REASSIGNMENTS

    timeout_ms: int = int32("0+", 60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(ListPartitionReassignmentsTopics, "0+", nullable="0+")


@message
class OngoingPartitionReassignment:
    """One partition: its replicas, those it gains, those it loses."""

    partition_index: int = int32("0+")
    replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")


@message
class OngoingTopicReassignment:
    """Partitions of one topic that are moving."""

    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


@message
class ListPartitionReassignmentsResponse:
    """Everything that is moving."""

    API: ClassVar = ApiKey.LIST_PARTITION_REASSIGNMENTS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
