"""One blocking connection to one broker: requests out, responses back, nothing else.

It connects at the first request and again after a failure; the versions that both sides know are asked for once per connection. One
thread uses it at a time. Responses come in the order of the requests (the protocol promises it), so several may be on their way:
`send` several times, then `receive` as often, in the same order; `pipeline` does that with a bound.

Any failure between the first byte of a request and the last of its response, a Ctrl-C included, closes the connection: the bytes
that follow could not be assigned to a request.
"""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

from moldau.client.errors import ConnectionLostError, RequestFailedError, UnreachableError
from moldau.model.errors import PeerError, ProtocolError
from moldau.model.host_port import Address, for_resolver
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.rpc import Rpc, RpcRequest, RpcResponse
from moldau.protocol.versions import VersionRange

FRAME_BYTES_MAX = 256 * 1024 * 1024
IN_FLIGHT_MAX = 64
CONNECT_TIMEOUT_S = 10.0


class PendingRequest(NamedTuple):
    """A request whose response is still to come."""

    call: RpcRequest
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
        self._rpc = self._new_rpc()
        self._interrupted = False

    def request(self, api_key: ApiKey, message: Any, *, version: int | VersionRange | None = None, timeout_s: float | None = None) -> Any:
        """Send one request and wait for its response: the response class of that API.

        `version` None takes the highest common one, a range the highest common one in it. `timeout_s` replaces the connection's own, for
        a request that the broker may hold back (a long poll).
        """
        return self.receive(self.send(api_key, message, version=version, timeout_s=timeout_s))

    def pipeline(self, requests: Iterable[tuple[ApiKey, Any]]) -> list[Any]:
        """Send many requests, at most `IN_FLIGHT_MAX` unanswered at a time; the responses in the same order."""
        waiting: deque[PendingRequest] = deque()
        responses = []
        for api_key, message in requests:
            if len(waiting) == IN_FLIGHT_MAX:
                responses.append(self.receive(waiting.popleft()))
            waiting.append(self.send(api_key, message))
        responses.extend(self.receive(pending) for pending in waiting)
        return responses

    def send(
        self, api_key: ApiKey, message: Any, *, version: int | VersionRange | None = None, timeout_s: float | None = None
    ) -> PendingRequest:
        """Send one request; its response is to be taken with `receive`."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        self.connect(deadline)
        try:
            call, data = self._rpc.send(api_key, message, version=version)
        except PeerError as error:
            raise self._refused(error) from error
        self._send(api_key, data, deadline)
        return PendingRequest(call, deadline)

    def receive(self, pending: PendingRequest) -> Any:
        """The response to `pending`, which must be the oldest one sent and not yet received."""
        assert self._rpc.oldest is pending.call, "responses come in the order of the requests"
        answered = None
        while answered is None:
            answered = self._receive_some(pending.deadline)
        return answered.response

    @property
    def broker_versions(self) -> dict[int, VersionRange]:
        """The versions that the broker serves, by API key; empty before the first connection."""
        return self._rpc.broker_versions

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
        self._rpc = self._new_rpc()
        self._open(deadline)

    def interrupt(self) -> None:
        """End what another thread waits for here, with ConnectionLostError, and every later connection. Any thread may call it.

        An attempt to connect that is under way continues until its own time is over.
        """
        self._interrupted = True
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close; the next request connects again."""
        self._rpc.give_up()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._socket is not None

    def _new_rpc(self) -> Rpc:
        return Rpc(self.client_id, self._frame_bytes_max, IN_FLIGHT_MAX)

    def _open(self, deadline: float) -> None:
        """Ask the broker for its versions."""
        while not self._rpc.is_open:
            self._send(ApiKey.API_VERSIONS, self._rpc.hello(), deadline)
            while self._rpc.oldest is not None:
                self._receive_some(deadline)

    def _send(self, api_key: ApiKey, data: bytes, deadline: float) -> None:
        assert self._socket is not None
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise ConnectionLostError(self.address, f"{api_key.name.lower()} could not be sent: {_reason(error)}") from error
        except BaseException:
            self.close()
            raise

    def _receive_some(self, deadline: float) -> RpcResponse | None:
        """Read once: the response that is whole then, if any."""
        try:
            return self._rpc.buffer_updated(self._read_into(self._rpc.get_buffer(), deadline))
        except ProtocolError as error:
            self.close()
            raise ProtocolError(f"{self.address}: {error.message}", error.code) from error
        except PeerError as error:
            self.close()
            raise self._refused(error) from error
        except BaseException:
            self.close()
            raise

    def _read_into(self, room: memoryview, deadline: float) -> int:
        assert self._socket is not None
        left = deadline - time.monotonic()
        if left <= 0:
            raise ConnectionLostError(self.address, "no answer in time")
        try:
            self._socket.settimeout(left)
            received = self._socket.recv_into(room)
        except TimeoutError as error:
            raise ConnectionLostError(self.address, "no answer in time") from error
        except OSError as error:
            raise ConnectionLostError(self.address, _reason(error)) from error
        if not received:
            raise ConnectionLostError(self.address, "the broker closed the connection")
        return received

    def _refused(self, error: PeerError) -> RequestFailedError:
        return RequestFailedError(error.code, f"{self.address}: {error.message}", str(self.address))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return (error.strerror or str(error)).lower()
