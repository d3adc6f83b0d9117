"""The versions of all APIs are encoded once, and are in every version what an encoded list of them is."""

import pytest

from moldau.broker.api.api_versions import _api_keys, _encoded_api_keys
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.messages.api_versions import ApiVersionsResponse
from moldau.protocol.versions import SERVED


@pytest.mark.parametrize("version", range(SERVED[ApiKey.API_VERSIONS].min, SERVED[ApiKey.API_VERSIONS].max + 1))
def test_the_bytes_kept_are_those_of_the_list(version: int) -> None:
    for _ in range(2):
        kept = ApiVersionsResponse(api_keys=_encoded_api_keys(version))
        assert encode(kept, version) == encode(ApiVersionsResponse(api_keys=_api_keys()), version)
    assert _encoded_api_keys(version) is _encoded_api_keys(version)
