"""ListPartitionReassignments (key 46): lists the partitions that are moving."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string


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
