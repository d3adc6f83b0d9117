"""DeleteGroups (key 42): deletes groups that have no members."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string


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
