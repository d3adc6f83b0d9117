"""A peer on a real socket that answers requests as a test's script says: for a client's error paths, no broker needed.

The script is a function from a `Request` to what is done: a response message, `bytes` to send as they are (with their size, or whatever
stands there instead), `HANG_UP` to close the connection, `SILENCE` to say nothing. ApiVersions is answered from `versions` unless the
script wants it.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from moldau.protocol.headers import decode_request_header, response_header
from moldau.protocol.messages import load
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.versions import SERVED, VersionRange
from support.threaded_server import ThreadedServer

HANG_UP = object()
SILENCE = object()


@dataclass(frozen=True)
class Request:
    """A request as the peer saw it."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Any


Script = Callable[[Request], object]


class ScriptedBroker(ThreadedServer):
    """Listens on 127.0.0.1 at a free `port`; `requests` are those that came, ApiVersions not among them."""

    def __init__(
        self, script: Script | None = None, *, versions: Mapping[ApiKey, VersionRange] = SERVED, takes_api_versions: bool = False
    ) -> None:
        super().__init__()
        self.script: Script = script or (lambda request: HANG_UP)
        self.requests: list[Request] = []
        self._versions = versions
        self._takes_api_versions = takes_api_versions
        self.listen()

    @property
    def bootstrap(self) -> str:
        """Its address."""
        return self.address

    @property
    def connections(self) -> int:
        """How many there were."""
        return len(self._open)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            stream = client.makefile("rb")
            with stream:
                while len(head := stream.read(4)) == 4:
                    frame = stream.read(struct.unpack(">i", head)[0])
                    answer = self._answer(frame)
                    if answer is HANG_UP:
                        return
                    if isinstance(answer, bytes):
                        client.sendall(answer)

    def _answer(self, frame: bytes) -> object:
        header = decode_request_header(frame)
        key = ApiKey(header.api_key)
        if key is ApiKey.API_VERSIONS and not self._takes_api_versions:
            known = [ApiVersion(int(api), found.min, found.max) for api, found in self._versions.items()]
            return reply(Request(key, header.api_version, header.correlation_id, header.client_id, None), ApiVersionsResponse(0, known))
        request = request_in(frame)
        self.requests.append(request)
        answer = self.script(request)
        return answer if answer is HANG_UP or answer is SILENCE or isinstance(answer, bytes) else reply(request, answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def request_in(frame: bytes) -> Request:
    """What a frame has."""
    header = decode_request_header(frame)
    key = ApiKey(header.api_key)
    message = decode(load(key).request, header.api_version, frame, header.body_position)
    return Request(key, header.api_version, header.correlation_id, header.client_id, message)


def reply(request: Request, message: Any, *, version: int | None = None, correlation_id: int | None = None) -> bytes:
    """The frame of a response to `request`, in another version or to another request if wanted."""
    version = request.version if version is None else version
    correlation_id = request.correlation_id if correlation_id is None else correlation_id
    payload = response_header(request.api_key, version, correlation_id) + encode(message, version)
    return struct.pack(">i", len(payload)) + payload
