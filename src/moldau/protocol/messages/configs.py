"""Configurations of topics and brokers.

* DescribeConfigs (key 32): tells configs of topics and brokers.
* AlterConfigs (key 33): replaces all configs of topics or brokers.
* IncrementalAlterConfigs (key 44): changes single configs of topics or brokers.
* ListConfigResources (key 74): lists the resources that have configs. Version 0 knows client metrics only.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string


@message
class DescribeConfigsResource:
    """One resource, and which configs of it; null for all."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array(string, "0+", nullable="0+")


@message
class DescribeConfigsRequest:
    """Which resources, and how much to tell."""

    API: ClassVar = ApiKey.DESCRIBE_CONFIGS

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@message
class DescribeConfigsSynonym:
    """A place where a value may come from, in order of precedence."""

    name: str = string("1+")
    value: str | None = string("1+", nullable="1+")
    source: int = int8("1+")


@message
class DescribeConfigsResourceResult:
    """One config."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", -1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="3+", ignorable=True)


@message
class DescribeConfigsResult:
    """The configs of one resource."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


@message
class DescribeConfigsResponse:
    """One answer for each resource."""

    API: ClassVar = ApiKey.DESCRIBE_CONFIGS

    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")


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
    is_forwarded: bool = boolean("2+", tag=10000, ignorable=True)
    """Ours, skipped by any other reader: a broker sends on to the controller what a client has asked it for."""


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


@message
class IncrementalAlterableConfig:
    """One change: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


@message
class IncrementalAlterConfigsResource:
    """One resource and its changes."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig, "0+")


@message
class IncrementalAlterConfigsRequest:
    """The resources, and whether to only check them."""

    API: ClassVar = ApiKey.INCREMENTAL_ALTER_CONFIGS

    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")
    is_forwarded: bool = boolean("1+", tag=10000, ignorable=True)
    """Ours, skipped by any other reader: a broker sends on to the controller what a client has asked it for."""


@message
class IncrementalAlterConfigsResponse:
    """One answer for each resource."""

    API: ClassVar = ApiKey.INCREMENTAL_ALTER_CONFIGS

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


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
