"""SyncGroup (key 14): the leader of a group hands out the assignment, every member fetches its own."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, int16, int32, message, string


@message
class SyncGroupRequestAssignment:
    """What one member gets."""

    member_id: str = string("0+")
    assignment: bytes = binary("0+")


@message
class SyncGroupRequest:
    """Which member asks; the leader sends everybody's assignment along."""

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
