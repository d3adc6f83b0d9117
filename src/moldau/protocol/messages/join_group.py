"""JoinGroup (key 11): a member joins a group and waits for the others.

From version 4 a new member is first given an id to come back with, 5 knows static members.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, boolean, int16, int32, message, string


@message
class JoinGroupRequestProtocol:
    """A way to share out partitions that the member supports, with bytes for whoever does it."""

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
    """One member, as the leader is told of it."""

    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", ignorable=True)
    metadata: bytes = binary("0+")


@message
class JoinGroupResponse:
    """The generation that was formed; its leader is told the members."""

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
