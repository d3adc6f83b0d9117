"""Groups of the newer protocol (KIP-848).

* ConsumerGroupHeartbeat (key 68): keeps a member in a group of the newer protocol (KIP-848) and hands it its partitions. From version 1
  members make up their own ids and may subscribe by a pattern.
* ConsumerGroupDescribe (key 69): tells state and members of groups of the newer protocol (KIP-848).
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string, struct, uuid


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


@message
class ConsumerGroupHeartbeatRequest:
    """A member and what has changed about it; null means no change."""

    API: ClassVar = ApiKey.CONSUMER_GROUP_HEARTBEAT

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", -1)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+")
    subscribed_topic_regex: str | None = string("1+", nullable="1+")
    server_assignor: str | None = string("0+", nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")


@message
class Assignment:
    """What a member may read."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


@message
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its new assignment if there is one."""

    API: ClassVar = ApiKey.CONSUMER_GROUP_HEARTBEAT

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+")


@message
class ConsumerGroupDescribeRequest:
    """Which groups."""

    API: ClassVar = ApiKey.CONSUMER_GROUP_DESCRIBE

    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


@message
class DescribedTopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message
class DescribedAssignment:
    """What a member may read."""

    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions, "0+")


@message
class Member:
    """One member: what it subscribed to, what it has, what it shall have."""

    member_id: str = string("0+")
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    target_assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    member_type: int = int8("1+", -1, ignorable=True)


@message
class DescribedGroup:
    """State and members of one group."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", -2147483648)


@message
class ConsumerGroupDescribeResponse:
    """One answer for each group."""

    API: ClassVar = ApiKey.CONSUMER_GROUP_DESCRIBE

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
