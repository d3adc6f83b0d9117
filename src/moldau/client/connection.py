"""One blocking connection to one broker: requests out, responses back, nothing else.

It connects at the first request and again after a failure; the versions that both sides know are asked for once per connection. One
thread uses it at a time. Responses come in the order of the requests (the protocol promises it), so several may be on their way:
`send` several times, then `receive` as often, in the same order; `pipeline` does that with a bound.

Whatever goes wrong between the first byte of a request and the last of its response, a Ctrl-C included, closes the connection: the bytes
that would follow belong to nobody.
"""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Iterable
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from moldau import __version__
from moldau.client.address import Address
from moldau.client.errors import ConnectionLostError, RequestFailedError, UnreachableError
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.host_port import for_resolver
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from moldau.protocol.headers import decode_response_header, request_header
from moldau.protocol.messages import load
from moldau.protocol.versions import CODEC, VersionRange

FRAME_BYTES_MAX = 256 * 1024 * 1024
IN_FLIGHT_MAX = 64
CONNECT_TIMEOUT_S = 10.0

_SIZE = Struct(">i")
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class Pending(NamedTuple):
    """A request whose response is still to come."""

    api_key: ApiKey
    version: int
    correlation_id: int
    deadline: float


class BrokerConnection:
    """A connection to the broker at `host`:`port`.

    `timeout_s` bounds each request, connecting included; `connect_timeout_s` bounds connecting. UnreachableError and ConnectionLostError
    (world's fault), ProtocolError and RequestFailedError (the broker's) name the address.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "moldau",
        timeout_s: float = 30.0,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self.address = Address(host, port)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._connect_timeout_s = min(connect_timeout_s, timeout_s)
        self._frame_bytes_max = frame_bytes_max
        self._socket: socket.socket | None = None
        self._versions: dict[int, VersionRange] = {}
        self._correlation_id = 0
        self._pending: deque[Pending] = deque()
        self._interrupted = False

    def request(self, api_key: ApiKey, message: Any, *, version: int | VersionRange | None = None, timeout_s: float | None = None) -> Any:
        """Send one request and wait for its response: the response class of that API.

        `version` None takes the highest common one, a range the highest common one in it. `timeout_s` replaces the connection's own, for
        a request that the broker may hold back (a long poll).
        """
        return self.receive(self.send(api_key, message, version=version, timeout_s=timeout_s))

    def pipeline(self, requests: Iterable[tuple[ApiKey, Any]]) -> list[Any]:
        """Send many requests, at most `IN_FLIGHT_MAX` unanswered at a time; the responses in the same order."""
        waiting: deque[Pending] = deque()
        responses = []
        for api_key, message in requests:
            if len(waiting) == IN_FLIGHT_MAX:
                responses.append(self.receive(waiting.popleft()))
            waiting.append(self.send(api_key, message))
        responses.extend(self.receive(pending) for pending in waiting)
        return responses

    def send(self, api_key: ApiKey, message: Any, *, version: int | VersionRange | None = None, timeout_s: float | None = None) -> Pending:
        """Send one request; its response is to be taken with `receive`."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        self.connect(deadline)
        chosen = version if isinstance(version, int) else self.version_for(api_key, version)
        return self._send(api_key, message, chosen, deadline)

    def receive(self, pending: Pending) -> Any:
        """The response to `pending`, which must be the oldest one sent and not yet received."""
        assert next(iter(self._pending), None) is pending, "responses come in the order of the requests"
        try:
            frame = self._read_frame(pending.deadline)
            correlation_id, position = decode_response_header(frame, pending.api_key, pending.version)
            if correlation_id != pending.correlation_id:
                raise ProtocolError(f"a response to request {correlation_id} came where that to {pending.correlation_id} was due")
            version = 0 if _is_version_refusal(pending, frame, position) else pending.version
            response = decode(load(pending.api_key).response, version, frame, position)
        except ProtocolError as error:
            self.close()
            raise ProtocolError(f"{self.address}: {error.message}", error.code) from error
        except BaseException:
            self.close()
            raise
        self._pending.popleft()
        return response

    def version_for(self, api_key: ApiKey, within: VersionRange | None = None) -> int:
        """Highest version of an API that both sides know, once connected, and that is `within` a range if one is given.

        RequestFailedError (UNSUPPORTED_VERSION) if there is none.
        """
        theirs, ours = self._versions.get(api_key), within or CODEC[api_key]
        if theirs is not None:
            version = min(theirs.max, ours.max)
            if version >= max(theirs.min, ours.min):
                return version
        offered = "does not serve it" if theirs is None else f"serves versions {theirs}"
        name = api_key.name.lower()
        message = f"{self.address}: {name} is spoken here in versions {ours}, the broker {offered}"
        raise RequestFailedError(ErrorCode.UNSUPPORTED_VERSION, message, str(self.address))

    @property
    def broker_versions(self) -> dict[int, VersionRange]:
        """What the broker said it serves, by API key; empty before the first connection."""
        return dict(self._versions)

    def connect(self, deadline: float | None = None) -> None:
        """Connect and agree on versions, unless that is done. `deadline` is on the monotonic clock."""
        if self._socket is not None:
            return
        if deadline is None:
            deadline = time.monotonic() + self.timeout_s
        wait_s = max(0.001, min(self._connect_timeout_s, deadline - time.monotonic()))
        try:
            self._socket = socket.create_connection((for_resolver(self.address.host), self.address.port), wait_s)  # type: ignore[arg-type]
        except OSError as error:
            raise UnreachableError(self.address, _reason(error)) from error
        if self._interrupted:
            self.close()
            raise ConnectionLostError(self.address, "interrupted")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._negotiate(deadline)

    def interrupt(self) -> None:
        """End what another thread waits for here, with ConnectionLostError, and every later connection. Any thread may call it.

        An attempt to connect that is under way goes on until its own time is over.
        """
        self._interrupted = True
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close; the next request connects again."""
        self._pending.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._socket is not None

    def _negotiate(self, deadline: float) -> None:
        """Ask for the broker's versions with our newest question; a broker that does not know it answers with version 0 (KIP-511)."""
        request = load(ApiKey.API_VERSIONS).request(client_software_name="moldau", client_software_version=__version__)
        version = CODEC[ApiKey.API_VERSIONS].max
        response = self._ask_versions(request, version, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = [entry.max_version for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS]
            response = self._ask_versions(request, min(version - 1, *known) if known else 0, deadline)
        if response.error_code:
            self.close()
            raise RequestFailedError(ErrorCode(response.error_code), f"{self.address}: refused to tell its versions", str(self.address))
        self._versions = {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in response.api_keys}

    def _ask_versions(self, request: Any, version: int, deadline: float) -> Any:
        return self.receive(self._send(ApiKey.API_VERSIONS, request, version, deadline))

    def _send(self, api_key: ApiKey, message: Any, version: int, deadline: float) -> Pending:
        assert self._socket is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = request_header(api_key, version, self._correlation_id, self.client_id)
        body = encode(message, version)
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._socket.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
        except OSError as error:
            self.close()
            raise ConnectionLostError(self.address, f"{api_key.name.lower()} could not be sent: {_reason(error)}") from error
        except BaseException:
            self.close()
            raise
        pending = Pending(api_key, version, self._correlation_id, deadline)
        self._pending.append(pending)
        return pending

    def _read_frame(self, deadline: float) -> memoryview:
        (size,) = _SIZE.unpack(self._read(4, deadline))
        if not 0 <= size <= self._frame_bytes_max:
            raise ProtocolError(f"a response of {size} bytes, at most {self._frame_bytes_max} are taken; is this a Kafka broker?")
        return self._read(size, deadline)

    def _read(self, count: int, deadline: float) -> memoryview:
        assert self._socket is not None
        view = memoryview(bytearray(count))
        done = 0
        while done < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectionLostError(self.address, "no answer in time")
            try:
                self._socket.settimeout(left)
                received = self._socket.recv_into(view[done:])
            except TimeoutError as error:
                raise ConnectionLostError(self.address, "no answer in time") from error
            except OSError as error:
                raise ConnectionLostError(self.address, _reason(error)) from error
            if not received:
                raise ConnectionLostError(self.address, "the broker closed the connection")
            done += received
        return view

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _is_version_refusal(pending: Pending, frame: memoryview, position: int) -> bool:
    """Whether the broker does not know this version of ApiVersions: it then answers in version 0, whatever was asked (KIP-511)."""
    if pending.api_key is not ApiKey.API_VERSIONS:
        return False
    return bytes(frame[position : position + 2]) == _UNSUPPORTED_VERSION


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return (error.strerror or str(error)).lower()
