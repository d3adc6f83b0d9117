"""What a simulated client knows of the brokers: leaders of partitions, coordinators, connections with requests in order and a future for
each response; and how it asks again.

Errors of simulated clients are those of `moldau.client`, so that code which catches them runs on either.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from moldau.client.failures import ClientError
from moldau.model.errors import ErrorCode, PeerError, ProtocolError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.ports.transport import ConnectError, Network, Transport
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.rpc import Rpc
from moldau.protocol.versions import VersionRange
from moldau.testing.simulation.clients.context import ClientContext


@dataclass(frozen=True, slots=True)
class Cause:
    """A :class:`moldau.client.failures.Reason`. `took_effect_perhaps`: whether the operation may have been carried out all the same."""

    error_code: ErrorCode
    text: str = ""
    took_effect_perhaps: bool = False
    is_fatal: bool = False

    def name(self) -> str:
        """As Kafka calls it."""
        return self.error_code.name

    def code(self) -> int:
        """Kafka's number."""
        return self.error_code

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.error_code.retriable

    def fatal(self) -> bool:
        """Whether the client is of no more use."""
        return self.is_fatal

    def str(self) -> str:
        """For a person."""
        return self.text or self.error_code.name.lower().replace("_", " ")


def took_effect_perhaps(error: BaseException | None) -> bool:
    """Whether an operation that failed so may have been carried out."""
    return isinstance(error, ClientError) and isinstance(error.error, Cause) and error.error.took_effect_perhaps


Address = tuple[str, int]
FRAME_BYTES_MAX = 1 << 24
IN_FLIGHT_MAX = 1000
"""A bound for the sake of one: callers have lower ones."""


class RequestLostError(WorldError):
    """The connection ended before the response came, or no connection could be made. `was_sent`: the request may have been carried out."""

    def __init__(self, address: Address, reason: object, *, was_sent: bool = True) -> None:
        super().__init__(f"{address[0]}:{address[1]}: {reason}", retriable=True)
        self.was_sent = was_sent


class ClientConnection:
    """A :class:`moldau.ports.transport.Receiver`. Made by `connect`.

    A request without a response within its time-out ends the connection, as with Kafka's clients: a half-open one is noticed so.
    """

    def __init__(self, address: Address, client_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.opened: asyncio.Future[ClientConnection] = loop.create_future()
        self._loop = loop
        self._rpc = Rpc(client_id, FRAME_BYTES_MAX, IN_FLIGHT_MAX)
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
        """Bytes of a response, perhaps the last."""
        if self._is_closed:
            return
        try:
            answered = self._rpc.buffer_updated(count)
        except (ProtocolError, PeerError) as error:
            self.abort(error)
            return
        if answered is not None:
            future, timer = self._waiting.popleft()
            timer.cancel()
            if not future.done():
                future.set_result(answered.response)
        elif not self.opened.done() and self._rpc.oldest is None:
            if self._rpc.is_open:
                self.opened.set_result(self)
            else:
                self._hello()

    def queue_drained(self) -> None:
        """Nothing to do: what is sent is bounded by what may be in flight."""

    def connection_lost(self, error: Exception | None) -> None:
        """The peer has disconnected, or the network has."""
        self._end(error or "closed by the broker")


async def connect(network: Network, address: Address, client_id: str, timeout_s: float) -> ClientConnection:
    """An open connection. RequestLostError (not sent) if there is none within the time-out."""
    loop = asyncio.get_running_loop()
    connection = ClientConnection(address, client_id, loop)

    def failed(error: ConnectError) -> None:
        connection.abort(error)

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


R = TypeVar("R")

REQUEST_TIMEOUT_S = 5.0
BACKOFF_S = 0.1
FIND_COORDINATOR_VERSIONS = VersionRange(4, 6)


class CoordinatorType(IntEnum):
    """Whose coordinator is asked for."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the metadata shows it: per partition the leader's address, None while there is none, and the leader epoch."""

    topic_id: bytes
    leaders: tuple[Address | None, ...]
    epochs: tuple[int, ...]


def check(code: int, subject: object) -> None:
    """PeerError if a response carries an error."""
    if code:
        known = known_error(code)
        raise PeerError(known, f"{subject}: {known.name.lower().replace('_', ' ')} ({code})")


class Brokers:
    """The brokers as one client sees them. Connections are kept by address and purpose, since a waiting request holds up those after it."""

    def __init__(self, context: ClientContext) -> None:
        self.context = context
        self._connections: dict[tuple[Address, str], ClientConnection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[ClientConnection]] = {}
        self._topics: dict[str, Topic] = {}
        self.addresses: dict[int, Address] = {}
        """Of brokers by their ids, as the metadata had them last."""
        self._epochs: dict[tuple[bytes, int], int] = {}
        """By topic id and number: the newest leader epoch that was seen. A broker that is cut off may know only an older leader."""
        self._coordinators: dict[tuple[CoordinatorType, str], Address] = {}
        self._server: Address | None = None
        """The bootstrap address that is asked, drawn again after each error."""
        self._controller: Address | None = None
        self._is_closed = False

    # Connections

    async def connection(self, address: Address, purpose: str = "") -> ClientConnection:
        """The open connection to a broker, made where there is none. RequestLostError (not sent)."""
        if self._is_closed:
            raise RequestLostError(address, "the client is closed", was_sent=False)
        key = address, purpose
        known = self._connections.get(key)
        if known is not None and not known.is_closed:
            return known
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.ensure_future(connect(self.context.network, address, self.context.name, REQUEST_TIMEOUT_S))
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._opened(key, task))
        return await asyncio.shield(opening)

    def _opened(self, key: tuple[Address, str], task: "asyncio.Task[ClientConnection]") -> None:
        del self._opening[key]
        if task.cancelled() or task.exception() is not None:
            return
        if self._is_closed:
            task.result().close()
        else:
            self._connections[key] = task.result()

    async def any(self) -> ClientConnection:
        """A connection to some broker: to a bootstrap address at random, the same one as long as it answers without an error."""
        if self._server is None:
            self._server = self.context.random.choice(self.context.servers)
        return await self.connection(self._server)

    async def controller(self) -> ClientConnection:
        """A connection to the controller. RequestLostError, PeerError."""
        if len(self.context.servers) == 1:
            return await self.any()
        if self._controller is None:
            response = await self.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
            found = [broker for broker in response.brokers if broker.node_id == response.controller_id]
            if not found:
                check(ErrorCode.NOT_CONTROLLER, "no controller is known")
            self._controller = found[0].host, found[0].port
        return await self.connection(self._controller)

    def close(self) -> None:
        """Disconnect, in order."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()

    def abort(self) -> None:
        """Disconnect as a crash does."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.abort()

    # Asking

    async def ask(
        self, api_key: ApiKey, message: Any, *, version: int | VersionRange | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        """Ask any broker. RequestLostError."""
        return await (await self.any()).send(api_key, message, version=version, timeout_s=timeout_s)

    async def ask_coordinator(
        self,
        kind: CoordinatorType,
        key: str,
        api_key: ApiKey,
        message: Any,
        *,
        version: int | VersionRange | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        """Ask the coordinator of a group or transactional id. RequestLostError, PeerError."""
        address = self._coordinators.get((kind, key)) or await self._find_coordinator(kind, key)
        try:
            connection = await self.connection(address, kind.name)
        except RequestLostError:
            self.forget_coordinator(kind, key)
            raise
        return await connection.send(api_key, message, version=version, timeout_s=timeout_s)

    async def _find_coordinator(self, kind: CoordinatorType, key: str) -> Address:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        response = await self.ask(ApiKey.FIND_COORDINATOR, request, version=FIND_COORDINATOR_VERSIONS)
        (found,) = response.coordinators
        check(found.error_code, f"coordinator of {key}")
        self._coordinators[kind, key] = found.host, found.port
        return found.host, found.port

    def forget_coordinator(self, kind: CoordinatorType, key: str) -> None:
        """Ask who it is before the next request."""
        self._coordinators.pop((kind, key), None)

    def check_coordinator(self, kind: CoordinatorType, key: str, code: int) -> None:
        """PeerError if a response of a coordinator carries an error; one that it is none makes the next request look for it."""
        if code in _ELSEWHERE:
            self.forget_coordinator(kind, key)
        check(code, f"{kind.name.lower()} {key}")

    async def insist(self, act: Callable[[], Awaitable[R]], limit_s: float) -> R:
        """Do it again while the error is one that passes, at most so long; the last error is raised."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while True:
            try:
                return await act()
            except (PeerError, WorldError) as error:
                if not may_pass(error) or loop.time() >= deadline or self._is_closed:
                    raise
            await self.back_off()

    async def back_off(self) -> None:
        """Wait before trying again, perhaps at another broker."""
        self._server = self._controller = None
        await asyncio.sleep(BACKOFF_S * self.context.random.uniform(0.5, 1.5))

    # Metadata

    async def topic(self, name: str) -> Topic:
        """A topic, of what is known. PeerError, UNKNOWN_TOPIC_OR_PARTITION among them."""
        known = self._topics.get(name)
        if known is not None:
            return known
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response = await self.ask(ApiKey.METADATA, request)
        (found,) = response.topics
        check(found.error_code, f"topic {name}")
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.addresses |= addresses
        partitions = sorted(found.partitions, key=lambda partition: int(partition.partition_index))
        leaders: list[Address | None] = []
        for partition in partitions:
            key = found.topic_id, partition.partition_index
            newest = self._epochs[key] = max(partition.leader_epoch, self._epochs.get(key, partition.leader_epoch))
            leaders.append(addresses.get(partition.leader_id) if partition.leader_epoch == newest else None)
        topic = self._topics[name] = Topic(found.topic_id, tuple(leaders), tuple(partition.leader_epoch for partition in partitions))
        return topic

    def forget_topic(self, name: str) -> None:
        """Ask for its leaders before the next request, perhaps another broker."""
        self._server = None
        self._topics.pop(name, None)

    async def leader(self, partition: TopicPartition) -> Address:
        """The address of a partition's leader. PeerError if there is no such partition, or no leader."""
        topic = await self.topic(partition.topic)
        address = topic.leaders[partition.partition] if partition.partition < len(topic.leaders) else None
        if address is None:
            self.forget_topic(partition.topic)
            exists = partition.partition < len(topic.leaders)
            check(ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
        assert address is not None
        return address


_PASSING = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # brokers are away
)
_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def may_pass(error: PeerError | WorldError) -> bool:
    """Whether asking again may help."""
    if isinstance(error, WorldError):
        return error.retriable
    return error.code.retriable or error.code in _PASSING
