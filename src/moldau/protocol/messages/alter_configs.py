"""AlterConfigs (key 33): replaces all configs of topics or brokers."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string


@message
class AlterableConfig:
    """One config; null resets it."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@message
class AlterConfigsResource:
    """One resource and everything that is to differ from the defaults."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@message
class AlterConfigsRequest:
    """The resources, and whether to only check them."""

    API: ClassVar = ApiKey.ALTER_CONFIGS

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
class AlterConfigsResponse:
    """One answer for each resource."""

    API: ClassVar = ApiKey.ALTER_CONFIGS

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
