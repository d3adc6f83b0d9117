"""Response messages to frames, at once or in steps."""

from collections.abc import Generator
from struct import Struct
from typing import Any

from moldau.model.steps import Pause
from moldau.protocol.codec import encode_into, step_writer
from moldau.protocol.codec.encoded import joined
from moldau.protocol.headers import response_header

JOINED_MAX = 1024 * 1024
"""Bytes of a response that is copied into one piece."""
PARTS_PER_STEP = 1000
"""Parts of a response that are joined before other work runs."""

_SIZE = Struct(">i")


def encode_response(response: Any, api_key: int, version: int, correlation_id: int) -> list[bytes]:
    """A response as the parts of a frame."""
    parts: list[Any] = [b"", response_header(api_key, version, correlation_id)]
    encode_into(parts, response, version)
    return _framed(parts)


def encode_response_in_steps(response: Any, api_key: int, version: int, correlation_id: int) -> Generator[Pause, None, list[bytes]]:
    """The same, piece by piece."""
    parts: list[Any] = [b"", response_header(api_key, version, correlation_id)]
    pieces: list[Any] = [b""]
    for _ in step_writer(type(response), version)(response, parts.append):
        if len(parts) >= PARTS_PER_STEP:
            pieces += joined(parts)
            parts.clear()
        yield None
    pieces += joined(parts)
    return _framed(pieces)


def _framed(parts: list[Any]) -> list[bytes]:
    """`parts` after their size; one piece unless they are long, then those that are in memory once stay so."""
    size = sum(map(len, parts))
    parts[0] = _SIZE.pack(size)
    return [b"".join(parts)] if size <= JOINED_MAX else parts
