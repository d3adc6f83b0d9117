"""A connection to a broker: requests in order, a future for each response."""

import asyncio
from collections import deque
from typing import Any

from moldau.model.errors import PeerError, ProtocolError, WorldError
from moldau.ports.transport import ConnectError, Network, Transport
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.rpc import Rpc
from moldau.protocol.versions import VersionRange

Address = tuple[str, int]
FRAME_BYTES_MAX = 1 << 24
"""Of a response, unless another bound is given."""
IN_FLIGHT_MAX = 1000
"""A bound for the sake of one: callers have lower ones."""


class RequestLostError(WorldError):
    """The connection ended before the response came, or no connection could be made. `was_sent`: the request may have been carried out."""

    def __init__(self, address: Address, reason: object, *, was_sent: bool = True) -> None:
        super().__init__(f"{address[0]}:{address[1]}: {reason}", retriable=True)
        self.reason = str(reason)
        self.was_sent = was_sent


class ClientConnection:
    """A :class:`moldau.ports.transport.Receiver`. Made by `connect`.

    A request without a response within its time-out ends the connection, as with Kafka's clients: a half-open one is noticed so.
    """

    def __init__(self, address: Address, client_id: str, loop: asyncio.AbstractEventLoop, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.address = address
        self.opened: asyncio.Future[ClientConnection] = loop.create_future()
        self._loop = loop
        self._rpc = Rpc(client_id, frame_bytes_max, IN_FLIGHT_MAX, reads_ahead=True)
        self._transport: Transport | None = None
        self._waiting: deque[tuple[asyncio.Future[Any], asyncio.TimerHandle]] = deque()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._is_closed

    def accept(self, transport: Transport) -> "ClientConnection":
        """The connection is made: ask for the broker's versions."""
        self._transport = transport
        self._loop.call_soon(self._hello)
        return self

    def send(
        self, api_key: ApiKey, message: Any, *, timeout_s: float, version: int | VersionRange | None = None, answered: bool = True
    ) -> "asyncio.Future[Any]":
        """Send a request; its response, or RequestLostError. Without `answered` None at once.

        PeerError (UNSUPPORTED_VERSION) if no version suits both; nothing is sent then.
        """
        future = self._loop.create_future()
        if self._is_closed or self._transport is None:
            raise RequestLostError(self.address, "the connection has ended", was_sent=False)
        _, data = self._rpc.send(api_key, message, version=version, answered=answered)
        if answered:
            self._waiting.append((future, self._loop.call_later(timeout_s, self.abort, f"no response within {timeout_s} s")))
        else:
            future.set_result(None)
        self._transport.send([data])
        return future

    def close(self) -> None:
        """Disconnect after what was sent."""
        self._end("closed by the client")
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: object = "aborted by the client") -> None:
        """Disconnect at once; the peer may see part of a frame."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _hello(self) -> None:
        if not self._is_closed and self._transport is not None:
            self._transport.send([self._rpc.hello()])

    def _end(self, reason: object) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._rpc.give_up()
        if not self.opened.done():
            _fail(self.opened, RequestLostError(self.address, reason, was_sent=False))
        while self._waiting:
            future, timer = self._waiting.popleft()
            timer.cancel()
            if not future.done():
                _fail(future, RequestLostError(self.address, reason))

    # Receiver

    def get_buffer(self, size_hint: int) -> memoryview:
        """Room for what comes next."""
        return self._rpc.get_buffer()

    def buffer_updated(self, count: int) -> None:
        """Bytes of responses, perhaps the last of one or several."""
        if self._is_closed:
            return
        try:
            answered = self._rpc.buffer_updated(count)
            while answered is not None:
                future, timer = self._waiting.popleft()
                timer.cancel()
                if not future.done():
                    future.set_result(answered.response)
                answered = self._rpc.next_response()
        except (ProtocolError, PeerError) as error:
            self.abort(error)
            return
        if not self.opened.done() and self._rpc.oldest is None:
            if self._rpc.is_open:
                self.opened.set_result(self)
            else:
                self._hello()

    def queue_drained(self) -> None:
        """Nothing to do: what is sent is bounded by what may be in flight."""

    def connection_lost(self, error: Exception | None) -> None:
        """The peer has disconnected, or the network has."""
        self._end(error or "closed by the broker")


async def connect(
    network: Network, address: Address, client_id: str, timeout_s: float, *, frame_bytes_max: int = FRAME_BYTES_MAX
) -> ClientConnection:
    """An open connection. RequestLostError (not sent) if there is none within the time-out."""
    loop = asyncio.get_running_loop()
    connection = ClientConnection(address, client_id, loop, frame_bytes_max)

    def failed(error: ConnectError) -> None:
        connection.abort(f"cannot connect: {error.reason}")

    connecting = network.connect(*address, connection.accept, failed)
    timer = loop.call_later(timeout_s, connection.abort, f"not connected within {timeout_s} s")
    try:
        return await connection.opened
    except BaseException:
        connecting.cancel()
        connection.abort()
        raise
    finally:
        timer.cancel()


def _fail(future: "asyncio.Future[Any]", error: RequestLostError) -> None:
    """Fail it. The outcome of one whose caller has been cancelled is not read: the loop must not complain of it."""
    future.set_exception(error)
    future.exception()
