"""ApiVersions: the APIs in service and their versions, and the features with the levels that hold (KIP-584).

``transaction.version`` at level 2 makes clients take part in the newer protocol of transactions: an epoch for each transaction, partitions
that are added by producing to them (KIP-890). A client that does not know the feature uses the older one.
"""

from functools import cache
from typing import Final

from moldau.broker.api.catalog import served_versions
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode
from moldau.model.value import Value
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import element_writer
from moldau.protocol.codec.encoded import EncodedArray
from moldau.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FIRST_WITH_SOFTWARE = 3
FIRST_WITH_LEVEL_0 = 4
"""Clients before take a feature that begins at level 0 for an error (KAFKA-17011)."""


class Feature(Value):
    """The levels that the broker supports, from `least` to `most`, and the one that holds."""

    least: int
    most: int
    level: int


FEATURES: Final = {"transaction.version": Feature(0, 2, 2)}
FEATURES_EPOCH: Final = 0
"""Counts changes of the levels that hold. They do not change yet; clients ignore what has a lower epoch than they have seen."""


def handle(services: object, message: ApiVersionsRequest, request: Request, reply: Reply) -> None:
    """List the versions of all APIs. INVALID_REQUEST for a client software that does not name itself properly (KIP-511)."""
    if request.api_version >= FIRST_WITH_SOFTWARE and not (
        _is_valid(message.client_software_name) and _is_valid(message.client_software_version)
    ):
        reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    least = 0 if request.api_version >= FIRST_WITH_LEVEL_0 else 1
    reply(
        ApiVersionsResponse(
            api_keys=_encoded_api_keys(request.api_version),
            supported_features=[SupportedFeatureKey(name, max(each.least, least), each.most) for name, each in FEATURES.items()],
            finalized_features_epoch=FEATURES_EPOCH,
            finalized_features=[FinalizedFeatureKey(name, each.level, each.level) for name, each in FEATURES.items()],
        )
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer to an ApiVersions request of an unknown version, encoded as version 0: which versions of ApiVersions there are."""
    known = [item for item in _api_keys() if item.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)


@cache
def _api_keys() -> list[ApiVersion]:
    """The same for every connection."""
    return [ApiVersion(key, versions.min, versions.max) for key, versions in sorted(served_versions().items())]


@cache
def _encoded_api_keys(version: int) -> list[ApiVersion]:
    """The same as bytes: each connection of each client begins with them."""
    encoded = EncodedArray(element_writer(ApiVersionsResponse, ApiVersion, version))
    for item in _api_keys():
        encoded.append(item)
    encoded.join()
    return encoded.as_list()


def _is_valid(text: str) -> bool:
    """Letters, digits, dots and dashes, beginning and ending with a letter or digit."""
    inner = text.replace(".", "").replace("-", "")
    return text.isascii() and inner.isalnum() and text[0].isalnum() and text[-1].isalnum()


HANDLERS = {ApiKey.API_VERSIONS: handle}
