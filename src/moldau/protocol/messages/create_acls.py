"""CreateAcls (key 30): adds access rules."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, message, string


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
