"""A peer without a socket for the client of the protocol: frames of responses, and bytes given to it in pieces."""

import struct
from collections.abc import Iterable
from typing import Any

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.headers import RequestHeader, decode_request_header, response_header
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.rpc import Rpc, RpcRequest, RpcResponse
from moldau.protocol.versions import SERVED

VERSIONS = ApiVersionsResponse(0, [ApiVersion(int(key), found.min, found.max) for key, found in SERVED.items()])


def frame(payload: bytes) -> bytes:
    """The payload after its size."""
    return struct.pack(">i", len(payload)) + payload


def answer(call: RpcRequest | RequestHeader, message: Any, version: int | None = None) -> bytes:
    """The frame of a response, in the version of the request or in another."""
    if isinstance(call, RequestHeader):
        call = RpcRequest(ApiKey(call.api_key), call.api_version, call.correlation_id)
    version = call.version if version is None else version
    return frame(response_header(call.api_key, version, call.correlation_id) + encode(message, version))


def asked(data: bytes) -> RequestHeader:
    """The header of a request out of its frame."""
    assert len(data) == 4 + struct.unpack_from(">i", data)[0]
    return decode_request_header(data[4:])


def feed(rpc: Rpc, data: bytes, sizes: Iterable[int] = ()) -> list[RpcResponse]:
    """Give it bytes in pieces of at most these sizes, the rest as it has room: the responses that came out."""
    answers = []
    pieces = iter(sizes)
    left = memoryview(data)
    while left:
        room = rpc.get_buffer()
        assert len(room) > 0
        piece = left[: min(len(room), next(pieces, len(left)))]
        room[: len(piece)] = piece
        left = left[len(piece) :]
        found = rpc.buffer_updated(len(piece))
        if found is not None:
            answers.append(found)
    return answers


def opened(client_id: str | None = "test", frame_bytes_max: int = 1 << 28, in_flight_max: int = 64) -> Rpc:
    """A client whose broker has told its versions."""
    rpc = Rpc(client_id, frame_bytes_max, in_flight_max)
    feed(rpc, answer(asked(rpc.hello()), VERSIONS))
    assert rpc.is_open
    return rpc
