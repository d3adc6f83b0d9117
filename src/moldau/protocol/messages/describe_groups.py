"""DescribeGroups (key 15): tells state and members of groups."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, boolean, int16, int32, message, string


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
