"""ListConfigResources (key 74): lists the resources that have configs.

Version 0 knows client metrics only.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, message, string


@message
class ListConfigResourcesRequest:
    """Which types; empty for all."""

    API: ClassVar = ApiKey.LIST_CONFIG_RESOURCES

    resource_types: list[int] = array(int8, "1+")


@message
class ConfigResource:
    """One resource."""

    resource_name: str = string("0+")
    resource_type: int = int8("1+", 16, ignorable=True)


@message
class ListConfigResourcesResponse:
    """The resources."""

    API: ClassVar = ApiKey.LIST_CONFIG_RESOURCES

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
