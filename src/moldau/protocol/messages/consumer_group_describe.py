"""ConsumerGroupDescribe (key 69): tells state and members of groups of the newer protocol (KIP-848)."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string, struct, uuid


@message
class ConsumerGroupDescribeRequest:
    """Which groups."""

    API: ClassVar = ApiKey.CONSUMER_GROUP_DESCRIBE

    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message
class Assignment:
    """What a member may read."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


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
    assignment: Assignment = struct(Assignment, "0+")
    target_assignment: Assignment = struct(Assignment, "0+")
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
