"""ListGroups (key 16): lists the groups that a broker coordinates.

Version 4 filters by state, 5 by type.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string


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
