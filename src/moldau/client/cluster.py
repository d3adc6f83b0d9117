"""A small blocking client of a whole cluster, for tools and for the Spark source: it reads and asks, it does not produce.

It finds leaders, controller and coordinators, and keeps one connection per broker. Retried, within `timeout_s` and with growing pauses, are
connections that were lost, and error codes that Kafka calls retriable (a leader that moved, a topic just created, a coordinator that still
loads). The first contact is not retried: where no broker answers, the error is raised at once.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from moldau.client.connection import BrokerConnection
from moldau.client.errors import InterruptedByStopError, Retry, TruncationError, UnreachableError, failure, may_pass
from moldau.client.metadata import ClusterMetadata, Leaders, TopicMetadata, from_response
from moldau.client.partition_requests import (
    READ_UNCOMMITTED,
    Answers,
    FetchedBatches,
    FetchLimits,
    LastRead,
    ListedOffset,
    fetch_request,
    list_offsets_request,
    read_fetch,
    read_list_offsets,
)
from moldau.model.errors import ErrorCode, MoldauError, PeerError, ProtocolError, WorldError
from moldau.model.host_port import Address, parse_addresses
from moldau.model.identity import BrokerId, TopicPartition
from moldau.model.topic_names import is_internal
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.versions import VersionRange

T = TypeVar("T")


class Cluster:
    """The cluster that the brokers `bootstrap_servers` ("HOST:PORT", several by commas) belong to. It connects when it is needed.

    One thread uses it at a time. ValueError for a list that cannot be read. UnreachableError, ConnectionLostError (world's fault) and
    RequestFailedError (an answer with an error code) name broker, topic or partition.
    """

    def __init__(
        self, bootstrap_servers: str, *, client_id: str = "moldau", timeout_s: float = 30.0, sleep: Callable[[float], object] | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        self._interrupted = threading.Event()
        self._sleep = sleep or self._interrupted.wait
        self._connections: dict[Address, BrokerConnection] = {}
        self._leaders = Leaders()
        self._contacted = False
        self._last_read: dict[TopicPartition, LastRead] = {}

    def metadata(self, topics: Iterable[str] | None = None, *, create_missing: bool = False) -> ClusterMetadata:
        """Brokers and `topics` (None: all), asked for now. A topic that cannot be described has its `error` set.

        `create_missing` lets the broker create what is missing, if it is configured to.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(wanted, allow_auto_topic_creation=create_missing)
        response = self.anywhere(ApiKey.METADATA, request)
        found = from_response(response)
        self._leaders.learn(found)
        return found

    def anywhere(self, api_key: ApiKey, message: Any, *, version: VersionRange | None = None) -> Any:
        """Ask any broker, in the highest common version (of the range `version`)."""
        retry = self.retry()
        while True:
            trouble: WorldError | None = None
            for address in self._candidates():
                try:
                    response = self._connection(address).request(api_key, message, version=version)
                except WorldError as error:
                    trouble = trouble or error
                    continue
                self._contacted = True
                return response
            assert trouble is not None
            if not self._contacted:
                raise trouble
            retry.pause(trouble)

    def at_broker(self, broker: BrokerId, api_key: ApiKey, message: Any, *, version: VersionRange | None = None) -> Any:
        """Ask one broker, in the highest common version (of the range `version`).

        RequestFailedError (BROKER_NOT_AVAILABLE) if the cluster does not know it.
        """
        if broker not in self._leaders.brokers:
            self.metadata([])
        return self._connection(self._address(broker)).request(api_key, message, version=version)

    def at_controller(self, api_key: ApiKey, message: Any, read: Callable[[Any], T]) -> T:
        """Ask the controller; `read` raises RequestFailedError for an answer with an error.

        Retries when the controller was not reached or is no longer the controller, but not when the connection was lost under way: the
        request may have been carried out.
        """
        retry = self.retry()
        while True:
            controller = self.metadata([]).controller
            try:
                return read(self.at_broker(controller, api_key, message))
            except UnreachableError as error:
                retry.pause(error)
            except PeerError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                retry.pause(error)

    def at_leaders(
        self,
        api_key: ApiKey,
        partitions: Iterable[TopicPartition],
        build: Callable[[list[TopicPartition]], Any],
        read: Callable[[Any, list[TopicPartition]], Answers[T]],
        *,
        version: VersionRange | None = None,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, T]:
        """Ask the leaders of `partitions`, all at the same time, until each partition has its answer.

        `build` makes the message for the partitions of one leader, `read` takes its response apart. The version is the highest common one
        (of the range `version`).
        """
        retry = self.retry()
        left = list(partitions)
        done: dict[TopicPartition, T] = {}
        while left:
            trouble: MoldauError | None = None
            by_leader, errors = self._by_leader(left)
            for where, answer in [*errors.items(), *self._ask(api_key, by_leader, build, read, version, timeout_s)]:
                if isinstance(answer, MoldauError):
                    self._leaders.forget(where)
                    trouble = answer if trouble is None or not may_pass(answer) else trouble
                else:
                    done[where] = answer
            left = [where for where in left if where not in done]
            if trouble is not None:
                retry.pause(trouble)
        return done

    def topics(self, *, internal: bool = False) -> list[TopicMetadata]:
        """All topics by name, asked for now; internal ones, whose names begin with an underscore, only if wanted."""
        found = self.metadata().topics
        return [found[name] for name in sorted(found) if internal or not (found[name].internal or is_internal(name))]

    def topic(self, name: str) -> TopicMetadata:
        """One topic, asked for now. RequestFailedError if there is none."""
        found = self.metadata([name]).topics.get(name)
        if found is None:
            raise failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        if found.error:
            raise failure(found.error, f"topic {name}")
        return found

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        """For each partition the first offset whose record is not older than the timestamp (ms), or EARLIEST, LATEST, MAX_TIMESTAMP."""
        timeout_ms = int(self.timeout_s * 1000)

        def build(partitions: list[TopicPartition]) -> Any:
            return list_offsets_request({where: wanted[where] for where in partitions}, isolation_level, timeout_ms)

        return self.at_leaders(ApiKey.LIST_OFFSETS, wanted, build, lambda response, _: read_list_offsets(response))

    def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits | None = None) -> FetchedBatches:
        """Record batches of one partition from `offset` on; empty `records` when there were none within `max_wait_ms`."""
        where = TopicPartition(topic, partition)
        return self.fetch_many({where: offset}, limits)[where]

    def fetch_many(
        self, positions: Mapping[TopicPartition, int], limits: FetchLimits | None = None
    ) -> dict[TopicPartition, FetchedBatches]:
        """Record batches of many partitions, all leaders asked at once. Of a partition that had nothing in time `records` is empty.

        TruncationError, once, for one that is read on where a read has ended and whose leader does not have what was read then.
        """
        limits = limits or FetchLimits()
        ids, epochs, last_read = self._leaders.topic_ids, self._leaders.epochs, self._last_read
        for where in positions:
            if where not in last_read:
                last_read[where] = LastRead()

        def build(partitions: list[TopicPartition]) -> Any:
            return fetch_request({where: positions[where] for where in partitions}, ids, limits, epochs, last_read)

        def read(response: Any, partitions: list[TopicPartition]) -> Answers[FetchedBatches]:
            return read_fetch(response, {where: positions[where] for where in partitions}, ids, last_read)

        try:
            return self.at_leaders(ApiKey.FETCH, positions, build, read, timeout_s=self.timeout_s + limits.max_wait_ms / 1000)
        except TruncationError as error:
            if isinstance(error.subject, TopicPartition):
                del last_read[error.subject]  # who reads on nevertheless has decided to
            raise

    def _ask(
        self,
        api_key: ApiKey,
        by_leader: Mapping[BrokerId, list[TopicPartition]],
        build: Callable[[list[TopicPartition]], Any],
        read: Callable[[Any, list[TopicPartition]], Answers[T]],
        version: VersionRange | None,
        timeout_s: float | None,
    ) -> Iterator[tuple[TopicPartition, T | MoldauError]]:
        """Send to every leader, then take the answers; an error is the answer of each partition that it concerns."""
        sent = []
        try:
            for broker, theirs in by_leader.items():
                connection = self._connection(self._address(broker))
                try:
                    sent.append((connection, connection.send(api_key, build(theirs), version=version, timeout_s=timeout_s), theirs))
                except MoldauError as error:
                    yield from ((where, error) for where in theirs)
            while sent:
                connection, pending, theirs = sent[0]
                try:
                    answers = read(connection.receive(pending), theirs)
                except MoldauError as error:
                    yield from ((where, error) for where in theirs)
                    continue
                finally:
                    sent.pop(0)
                for where in theirs:
                    if where not in answers:
                        raise ProtocolError(f"{connection.address}: {api_key.name.lower()} left out partition {where}")
                    yield where, answers[where]
        finally:
            for connection, _, _ in sent:  # interrupted: their answers would be taken for those of later requests
                connection.close()

    def _by_leader(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[BrokerId, list[TopicPartition]], dict[TopicPartition, MoldauError]]:
        """Partitions by their leader, asking again for those whose leader is not known."""
        unknown = {where.topic for where in partitions if where not in self._leaders}
        if unknown:
            self.metadata(sorted(unknown))
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        errors: dict[TopicPartition, MoldauError] = {}
        for where in partitions:
            try:
                by_leader.setdefault(self._leaders.leader(where), []).append(where)
            except PeerError as error:
                errors[where] = error
        return by_leader, errors

    def forget_topic(self, name: str) -> None:
        """Forget a topic, its id too: it was deleted, and another may be created under its name."""
        self._leaders.forget_topic(name)
        for where in [where for where in self._last_read if where.topic == name]:
            del self._last_read[where]

    def _candidates(self) -> list[Address]:
        """Every address worth a try: connected ones first, then the rest of the cluster, then the list we started with."""
        known = [*self._leaders.brokers.values(), *self._bootstrap]
        return sorted(dict.fromkeys(known), key=lambda address: not self._connection(address).connected)

    def _address(self, broker: BrokerId) -> Address:
        address = self._leaders.brokers.get(broker)
        if address is None:
            raise failure(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker}")
        return address

    def _connection(self, address: Address) -> BrokerConnection:
        if address not in self._connections:
            self._connections[address] = BrokerConnection(*address, client_id=self._client_id, timeout_s=self.timeout_s)
        if self._interrupted.is_set():
            raise InterruptedByStopError(address)
        return self._connections[address]

    def retry(self) -> Retry:
        """The retries of one operation that begins now."""
        return Retry(self.timeout_s, sleep=self._sleep)

    def interrupt(self) -> None:
        """Interrupt what another thread waits for here, with a WorldError at once, and every later request. Any thread may call it."""
        self._interrupted.set()
        for connection in list(self._connections.values()):
            connection.interrupt()

    def close(self) -> None:
        """Close all connections; the next request connects again."""
        for connection in self._connections.values():
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


GROUP, TRANSACTION = 0, 1
"""The kinds of keys that FindCoordinator looks up."""
_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}

_BATCHED = VersionRange(4, 6)
"""Versions of FindCoordinator that take many keys."""


class CoordinatorClient:
    """Asks the coordinators of groups, or of transactional ids (`kind`), of `cluster`."""

    def __init__(self, cluster: Cluster, kind: int = GROUP) -> None:
        self._cluster = cluster
        self._kind = kind
        self._known: dict[str, BrokerId] = {}

    def ask(
        self,
        group: str,
        api_key: ApiKey,
        message: Any,
        read: Callable[[Any], T],
        *,
        version: VersionRange | None = None,
        repeatable: bool = True,
    ) -> T:
        """Ask the coordinator of `group`; `read` raises RequestFailedError for an answer with an error.

        A request that is not `repeatable` is not sent again when the connection was lost under way: it may have been carried out.
        """
        retry = self._cluster.retry()
        while True:
            try:
                return read(self._cluster.at_broker(self.find(group), api_key, message, version=version))
            except WorldError as error:
                if not repeatable and not isinstance(error, UnreachableError):
                    raise
                self._known.pop(group, None)
                retry.pause(error)
            except PeerError as error:
                if not may_pass(error):
                    raise
                self._known.pop(group, None)
                retry.pause(error)

    def find(self, group: str) -> BrokerId:
        """The coordinator of a group, asked for once. RequestFailedError: COORDINATOR_NOT_AVAILABLE while there is none."""
        if group not in self._known:
            from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest

            request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[group])
            response = self._cluster.anywhere(ApiKey.FIND_COORDINATOR, request, version=_BATCHED)
            found = [each for each in response.coordinators if each.key == group]
            if len(found) != 1:
                raise ProtocolError(f"{_NAMES[self._kind]} {group}: {len(found)} coordinators where one was asked for")
            if found[0].error_code:
                raise failure(found[0].error_code, f"{_NAMES[self._kind]} {group}", found[0].error_message)
            self._known[group] = BrokerId(found[0].node_id)
        return self._known[group]


def not_found(error: PeerError) -> bool:
    """Whether the answer means that there is no such group."""
    return error.code is ErrorCode.GROUP_ID_NOT_FOUND
