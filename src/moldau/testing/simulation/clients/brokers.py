"""What a simulated client knows of the brokers: connections, leaders of partitions, coordinators; and how it asks again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.versions import VersionRange
from moldau.testing.simulation.clients.connection import Address, Connection, RequestLostError, connect
from moldau.testing.simulation.clients.context import ClientContext

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
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[Connection]] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], Address] = {}
        self._is_closed = False

    # Connections

    async def connection(self, address: Address, purpose: str = "") -> Connection:
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

    def _opened(self, key: tuple[Address, str], task: "asyncio.Task[Connection]") -> None:
        del self._opening[key]
        if task.cancelled() or task.exception() is not None:
            return
        if self._is_closed:
            task.result().close()
        else:
            self._connections[key] = task.result()

    async def any(self) -> Connection:
        """A connection to some broker: an open one, or to a bootstrap address at random."""
        for (_, purpose), connection in self._connections.items():
            if not purpose and not connection.is_closed:
                return connection
        return await self.connection(self.context.random.choice(self.context.servers))

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
        """Wait before trying again."""
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
        partitions = sorted(found.partitions, key=lambda partition: int(partition.partition_index))
        leaders = tuple(addresses.get(partition.leader_id) for partition in partitions)
        topic = self._topics[name] = Topic(found.topic_id, leaders, tuple(partition.leader_epoch for partition in partitions))
        return topic

    def forget_topic(self, name: str) -> None:
        """Ask for its leaders before the next request."""
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


_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def may_pass(error: PeerError | WorldError) -> bool:
    """Whether asking again may help."""
    if isinstance(error, WorldError):
        return error.retriable
    return error.code.retriable or error.code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REBALANCE_IN_PROGRESS)
