"""ApiVersions: what is in service, and nothing else; and the features of :mod:`moldau.broker.features`."""

from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.broker.dispatch import Reply, served_versions
from moldau.broker.features import FEATURES, FEATURES_EPOCH
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

FIRST_WITH_SOFTWARE = 3
FIRST_WITH_LEVEL_0 = 4
"""Clients before take a feature that begins at level 0 for an error (KAFKA-17011)."""


def handle(broker: "Broker", request: ApiVersionsRequest, context: RequestContext, reply: Reply) -> None:
    """List the versions of all APIs. INVALID_REQUEST for a client software that does not name itself properly (KIP-511)."""
    if context.api_version >= FIRST_WITH_SOFTWARE and not (
        _is_valid(request.client_software_name) and _is_valid(request.client_software_version)
    ):
        reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    least = 0 if context.api_version >= FIRST_WITH_LEVEL_0 else 1
    reply(
        ApiVersionsResponse(
            api_keys=_api_keys(),
            supported_features=[SupportedFeatureKey(name, max(each.least, least), each.most) for name, each in FEATURES.items()],
            finalized_features_epoch=FEATURES_EPOCH,
            finalized_features=[FinalizedFeatureKey(name, each.level, each.level) for name, each in FEATURES.items()],
        )
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer to an ApiVersions request of an unknown version, encoded as version 0: which versions of ApiVersions there are."""
    known = [item for item in _api_keys() if item.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)


def _api_keys() -> list[ApiVersion]:
    return [ApiVersion(key, versions.min, versions.max) for key, versions in sorted(served_versions().items())]


def _is_valid(text: str) -> bool:
    """Letters, digits, dots and dashes, beginning and ending with a letter or digit."""
    inner = text.replace(".", "").replace("-", "")
    return text.isascii() and inner.isalnum() and text[0].isalnum() and text[-1].isalnum()


HANDLERS = {ApiKey.API_VERSIONS: handle}
