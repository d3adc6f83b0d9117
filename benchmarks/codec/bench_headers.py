"""The header of a request, read once for each."""

from collections.abc import Iterator
from typing import Any

from codec.timing import row
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.headers import decode_request_header, request_header, response_header


def measure() -> Iterator[dict[str, Any]]:
    """A flexible header with a client id, and the answer's."""
    view = memoryview(request_header(ApiKey.PRODUCE, 9, 77, "my-client") + b"body")
    yield row("decode request header v2", lambda: decode_request_header(view))
    yield row("encode response header v1", lambda: response_header(ApiKey.PRODUCE, 9, 77))
