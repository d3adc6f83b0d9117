"""DeleteAcls (key 31): deletes access rules."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, message, string


@message
class DeleteAclsFilter:
    """A filter; null matches everything."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", 3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message
class DeleteAclsRequest:
    """The filters."""

    API: ClassVar = ApiKey.DELETE_ACLS

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")


@message
class DeleteAclsMatchingAcl:
    """A rule that matched."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", 3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message
class DeleteAclsFilterResult:
    """What one filter matched."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+")


@message
class DeleteAclsResponse:
    """One answer for each filter, in order."""

    API: ClassVar = ApiKey.DELETE_ACLS

    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+")
