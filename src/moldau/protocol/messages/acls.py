"""The access control lists of a cluster: CreateAcls (key 30), DescribeAcls (29) and DeleteAcls (31)."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, message, string


@message
class DescribeAclsRequest:
    """A filter; null matches everything."""

    API: ClassVar = ApiKey.DESCRIBE_ACLS

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", 3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message
class AclDescription:
    """One rule of a resource."""

    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message
class DescribeAclsResource:
    """One resource and its rules."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", 3)
    acls: list[AclDescription] = array(AclDescription, "0+")


@message
class DescribeAclsResponse:
    """Rules by resource."""

    API: ClassVar = ApiKey.DESCRIBE_ACLS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+")


@message
class AclCreation:
    """One rule to add."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", 3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message
class CreateAclsRequest:
    """The rules."""

    API: ClassVar = ApiKey.CREATE_ACLS

    creations: list[AclCreation] = array(AclCreation, "0+")


@message
class AclCreationResult:
    """What became of one rule."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class CreateAclsResponse:
    """One answer for each rule, in order."""

    API: ClassVar = ApiKey.CREATE_ACLS

    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")


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
