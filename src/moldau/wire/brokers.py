"""The brokers of a cluster as one client sees them: leaders of partitions, coordinators, connections; and how it asks again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Any, Protocol, TypeVar

from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.ports.transport import Network
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.versions import VersionRange
from moldau.wire.connection import FRAME_BYTES_MAX, Address, ClientConnection, RequestLostError, connect

R = TypeVar("R")

REQUEST_TIMEOUT_S = 5.0
BACKOFF_S = 0.1
BACKOFF_MAX_S = 5.0
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


class Surroundings(Protocol):
    """What a client gets of the outside."""

    @property
    def name(self) -> str:
        """Its client id."""

    @property
    def network(self) -> Network:
        """The way to brokers."""

    @property
    def servers(self) -> tuple[Address, ...]:
        """Addresses to bootstrap from."""

    @property
    def random(self) -> Random:
        """For the order of servers and the jitter of pauses."""


class ConnectionWatch(Protocol):
    """Notified of each attempt to connect."""

    def connected(self, address: Address) -> None:
        """A broker has answered."""

    def failed(self, address: Address, reason: str) -> None:
        """No connection could be made."""


class Brokers:
    """The brokers as one client sees them. Connections are kept by address and purpose, since a waiting request holds up those after it."""

    def __init__(
        self,
        context: Surroundings,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        backoff_s: float = BACKOFF_S,
        backoff_max_s: float = BACKOFF_MAX_S,
        watch: ConnectionWatch | None = None,
    ) -> None:
        """`frame_bytes_max` bounds a response. `backoff_s`: the first pause before something is tried again."""
        self._backoff_s, self._backoff_max_s = backoff_s, backoff_max_s
        self.context = context
        self._frame_bytes_max = frame_bytes_max
        self._watch = watch
        self.unreachable: dict[Address, str] = {}
        """Brokers to which the last attempt to connect failed, and why; the latest is the last."""
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
        self.last_failure: PeerError | WorldError | None = None
        """Of what was tried again."""

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
            context = self.context
            connecting = connect(context.network, address, context.name, REQUEST_TIMEOUT_S, frame_bytes_max=self._frame_bytes_max)
            opening = asyncio.ensure_future(connecting)
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._opened(key, task))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not opening.cancelled() or (task is not None and task.cancelling()):
                raise
            raise RequestLostError(address, "the client was closed", was_sent=False) from error

    def _opened(self, key: tuple[Address, str], task: "asyncio.Task[ClientConnection]") -> None:
        del self._opening[key]
        if task.cancelled():
            return
        address, error = key[0], task.exception()
        self.unreachable.pop(address, None)
        if error is None:
            if self._is_closed:
                task.result().close()
            else:
                self._connections[key] = task.result()
                if self._watch is not None:
                    self._watch.connected(address)
        elif isinstance(error, RequestLostError):
            self.unreachable[address] = error.reason
            if self._watch is not None:
                self._watch.failed(address, error.reason)

    async def any(self) -> ClientConnection:
        """A connection to some broker: to a bootstrap address at random, the same one as long as it answers without an error."""
        if self._server is None:
            self._server = self.context.random.choice(self.context.servers)
        return await self.connection(self._server)

    async def controller(self) -> ClientConnection:
        """A connection to the controller. RequestLostError, PeerError."""
        if self._controller is None:
            response = await self.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
            found = [broker for broker in response.brokers if broker.node_id == response.controller_id]
            if not found:
                check(ErrorCode.NOT_CONTROLLER, "no controller is known")
            self._controller = found[0].host, found[0].port
        return await self.connection(self._controller)

    def close(self) -> None:
        """Disconnect, in order."""
        self._stop_opening()
        for connection in self._connections.values():
            connection.close()

    def abort(self) -> None:
        """Disconnect as a crash does."""
        self._stop_opening()
        for connection in self._connections.values():
            connection.abort()

    def _stop_opening(self) -> None:
        """What is still being opened would outlive its client, and perhaps its event loop."""
        self._is_closed = True
        for opening in self._opening.values():
            opening.cancel()

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
                self.last_failure = error
            await self.back_off()

    async def back_off(self, failures: int = 1) -> None:
        """Wait before trying again, perhaps at another broker: twice as long after each of several failures in turn."""
        self._server = self._controller = None
        pause_s = min(self._backoff_s * 2.0 ** min(failures - 1, 30), self._backoff_max_s)
        await asyncio.sleep(pause_s * self.context.random.uniform(0.5, 1.5))

    # Metadata

    async def topic(self, name: str) -> Topic:
        """A topic, of what is known. PeerError, UNKNOWN_TOPIC_OR_PARTITION among them."""
        known = self._topics.get(name)
        if known is not None:
            return known
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response = await self.ask(ApiKey.METADATA, request)
        self.learn_brokers(response)
        (found,) = response.topics
        check(found.error_code, f"topic {name}")
        return self.learn(found)

    def learn_brokers(self, response: Any) -> None:
        """Take the addresses of brokers from a response to Metadata."""
        self.addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}

    def learn(self, found: Any) -> Topic:
        """Take a topic from a response to Metadata, whose brokers are known. It has no error."""
        partitions = sorted(found.partitions, key=lambda partition: int(partition.partition_index))
        leaders: list[Address | None] = []
        for partition in partitions:
            key = found.topic_id, partition.partition_index
            newest = self._epochs[key] = max(partition.leader_epoch, self._epochs.get(key, partition.leader_epoch))
            leaders.append(self.addresses.get(partition.leader_id) if partition.leader_epoch == newest else None)
        topic = Topic(found.topic_id, tuple(leaders), tuple(partition.leader_epoch for partition in partitions))
        self._topics[found.name] = topic
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
