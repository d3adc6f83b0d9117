"""Heartbeat (key 12): a member of a group says that it lives."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import int16, int32, message, string


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
