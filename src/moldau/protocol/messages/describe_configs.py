"""DescribeConfigs (key 32): tells configs of topics and brokers."""

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
