"""IncrementalAlterConfigs (key 44): changes single configs of topics or brokers."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string


@message
class AlterableConfig:
    """One change: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


@message
class AlterConfigsResource:
    """One resource and its changes."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@message
class IncrementalAlterConfigsRequest:
    """The resources, and whether to only check them."""

    API: ClassVar = ApiKey.INCREMENTAL_ALTER_CONFIGS

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@message
class AlterConfigsResourceResponse:
    """What became of one resource."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@message
class IncrementalAlterConfigsResponse:
    """One answer for each resource."""

    API: ClassVar = ApiKey.INCREMENTAL_ALTER_CONFIGS

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
