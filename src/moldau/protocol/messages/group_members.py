"""Members of a classic group: JoinGroup (key 11), Heartbeat (12), LeaveGroup (13) and SyncGroup (14).

JoinGroup: from version 4 a new member first receives an id to join with, 5 has static members. LeaveGroup: version 3 takes several members
at once. SyncGroup: the leader of a group sends the assignment, every member fetches its own.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, boolean, int16, int32, message, string


@message
class JoinGroupRequestProtocol:
    """A way to share out partitions that the member supports, with bytes for the member that does it."""

    name: str = string("0+")
    metadata: bytes = binary("0+")


@message
class JoinGroupRequest:
    """Who joins, with which protocols and timeouts."""

    API: ClassVar = ApiKey.JOIN_GROUP

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", -1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", ignorable=True)


@message
class JoinGroupResponseMember:
    """One member, as the leader receives it."""

    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", ignorable=True)
    metadata: bytes = binary("0+")


@message
class JoinGroupResponse:
    """The generation that was formed; its leader receives the members."""

    API: ClassVar = ApiKey.JOIN_GROUP

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", -1)
    protocol_type: str | None = string("7+", nullable="7+", ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")


@message
class HeartbeatRequest:
    """Which member, in which generation."""

    API: ClassVar = ApiKey.HEARTBEAT

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+")


@message
class HeartbeatResponse:
    """Whether all is well or a rebalance is due."""

    API: ClassVar = ApiKey.HEARTBEAT

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


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


@message
class SyncGroupRequestAssignment:
    """What one member gets."""

    member_id: str = string("0+")
    assignment: bytes = binary("0+")


@message
class SyncGroupRequest:
    """Which member asks; the leader sends the assignments of all along."""

    API: ClassVar = ApiKey.SYNC_GROUP

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+")
    protocol_type: str | None = string("5+", nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


@message
class SyncGroupResponse:
    """The asking member's assignment."""

    API: ClassVar = ApiKey.SYNC_GROUP

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", ignorable=True)
    assignment: bytes = binary("0+")
