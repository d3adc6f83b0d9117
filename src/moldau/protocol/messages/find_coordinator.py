"""FindCoordinator (key 10): asks which broker coordinates a group or a transactional id.

Version 4 asks for several keys at once.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, message, string


@message
class FindCoordinatorRequest:
    """The keys, and of which kind they are: 0 group, 1 transaction, 2 share group."""

    API: ClassVar = ApiKey.FIND_COORDINATOR

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


@message
class Coordinator:
    """The broker that coordinates one key."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@message
class FindCoordinatorResponse:
    """Brokers by key."""

    API: ClassVar = ApiKey.FIND_COORDINATOR

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
