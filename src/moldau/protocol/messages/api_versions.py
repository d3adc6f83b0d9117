"""ApiVersions (key 18): says which versions of which APIs a broker serves; the first request of every client.

Its response always comes with response header v0, since the client cannot know yet which one to expect.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, int64, message, string


@message
class ApiVersionsRequest:
    """Who asks: name and version of the client software."""

    API: ClassVar = ApiKey.API_VERSIONS

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@message
class ApiVersion:
    """The versions of one API."""

    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@message
class SupportedFeatureKey:
    """A feature and the levels that this broker can run at."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@message
class FinalizedFeatureKey:
    """A feature and the levels that the cluster runs at."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message
class ApiVersionsResponse:
    """Everything that this broker serves."""

    API: ClassVar = ApiKey.API_VERSIONS

    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", -1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
