"""LeaveGroup (key 13): members leave a group.

Version 3 takes several members at once.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string


@message
class MemberIdentity:
    """A member that leaves."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    reason: str | None = string("5+", nullable="5+", ignorable=True)


@message
class LeaveGroupRequest:
    """Who leaves."""

    API: ClassVar = ApiKey.LEAVE_GROUP

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@message
class MemberResponse:
    """Whether one member left."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@message
class LeaveGroupResponse:
    """One error for all, and one for each member."""

    API: ClassVar = ApiKey.LEAVE_GROUP

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")
