"""Groups, as administrators see them.

* ListGroups (key 16): lists the groups that a broker coordinates. Version 4 filters by state, 5 by type.
* DescribeGroups (key 15): tells state and members of groups.
* DeleteGroups (key 42): deletes groups that have no members.
* OffsetDelete (key 47): deletes offsets that a group stored; never flexible.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, boolean, int16, int32, message, string


@message
class ListGroupsRequest:
    """Which states and types; empty for all."""

    API: ClassVar = ApiKey.LIST_GROUPS

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


@message
class ListedGroup:
    """One group."""

    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message
class ListGroupsResponse:
    """The groups."""

    API: ClassVar = ApiKey.LIST_GROUPS

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


@message
class DescribeGroupsRequest:
    """Which groups."""

    API: ClassVar = ApiKey.DESCRIBE_GROUPS

    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


@message
class DescribedGroupMember:
    """One member and what it was given."""

    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


@message
class DescribedGroup:
    """State and members of one group."""

    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", -2147483648)


@message
class DescribeGroupsResponse:
    """One answer for each group."""

    API: ClassVar = ApiKey.DESCRIBE_GROUPS

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


@message
class DeleteGroupsRequest:
    """Which groups."""

    API: ClassVar = ApiKey.DELETE_GROUPS

    groups_names: list[str] = array(string, "0+")


@message
class DeletableGroupResult:
    """What became of one group."""

    group_id: str = string("0+")
    error_code: int = int16("0+")


@message
class DeleteGroupsResponse:
    """One answer for each group."""

    API: ClassVar = ApiKey.DELETE_GROUPS

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")


@message
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = int32("0+")


@message
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


@message
class OffsetDeleteRequest:
    """Which offsets of which group."""

    API: ClassVar = ApiKey.OFFSET_DELETE

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


@message
class OffsetDeleteResponsePartition:
    """What became of one offset."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetDeleteResponseTopic:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


@message
class OffsetDeleteResponse:
    """Answers by partition."""

    API: ClassVar = ApiKey.OFFSET_DELETE

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")
