"""Fetches from one broker of a source over a connection, by a fetch session of its own: `fetching.Fetcher` decides what is asked for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from moldau.fetching.events import (
    Apply,
    EndFound,
    FetcherEffect,
    FetcherEvent,
    LogEnd,
    LookUpEnd,
    Moved,
    PartitionAnswered,
    RequestEnded,
    RequestFailed,
    ResponseArrived,
    SendFetch,
    SessionLost,
    StartAt,
    TimePassed,
    Truncate,
    TruncateTo,
    WakeAt,
)
from moldau.fetching.fetcher import Fetcher
from moldau.fetching.messages import SESSION_ERRORS, filled_partitions, forgotten_topics, wanted_topics
from moldau.mirror.fetched import Fetched, Limits, Taker, whole_batches
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.retries import Retries
from moldau.mirror.window import Window
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.ports.probe import reached
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.fetch import FetchRequest, PartitionData
from moldau.protocol.messages.offset_lookups import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.ports.clock import Clock, Timer
    from moldau.wire.brokers import Brokers
    from moldau.wire.connection import Address, ClientConnection

_LOG = logging.getLogger(__name__)

FETCH_VERSIONS = VersionRange(13, 17)
"""With topic ids: Kafka has them from 3.1 on."""
WAIT_MS = 500
FETCH_TIMEOUT_S = 10.0
CONSUMER = -1
"""The replica id of one that is no replica."""
LOOKUP_VERSIONS = VersionRange(3, 4)
DENIALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class Followed:
    """A partition that is fetched."""

    __slots__ = ("leader", "leader_epoch", "partition", "position")

    def __init__(self, partition: SourcePartition, position: Position) -> None:
        self.partition = partition
        self.position = position
        self.leader: LeaderReader | None = None
        self.leader_epoch = -1


def end_of(position: Position) -> LogEnd:
    """A position, as a fetch names it."""
    return LogEnd(position.offset, position.epoch, -1)


class Owner(Protocol):
    """What a reader uses of the source that it belongs to."""

    name: str
    brokers: "Brokers"
    clock: "Clock"
    taker: Taker
    may_fetch: asyncio.Event
    committed: bool
    verifies: bool
    limits: Limits
    retries: Retries

    def followed(self, topic_partition: TopicPartition) -> Followed | None:
        """A partition that is followed."""

    def doubt_leader(self, topic: str) -> None:
        """Who leads the partitions of a topic may have changed."""

    def halt(self, followed: Followed, why: Halt, reason: str) -> None:
        """An operator has to decide."""

    def warn(self, subject: object, reason: object) -> None:
        """Say what is tried again."""


class LeaderReader:
    """Fetches from one broker some of the partitions that it leads. `number`: among the readers of that broker, from 0 on."""

    def __init__(self, owner: Owner, address: "Address", number: int) -> None:
        self.address = address
        self.number = number
        self.name = f"{address[0]}:{address[1]}" + (f" connection {number + 1}" if number else "")
        """Of the broker, where it is tried again."""
        self.fetcher = Fetcher(owner.limits.back_off_s)
        self._window = Window(owner.limits.partition_bytes, owner.limits.partition_bytes_max)
        self._owner = owner
        self._timer: Timer | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._connection: ClientConnection | None = None
        self._is_closed = False

    def close(self) -> None:
        """Fetch nothing any more: what is out is ignored."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._connection is not None:
            self._connection.close()

    def step(self, event: FetcherEvent, answer: PartitionData | None = None) -> None:
        """Have the machine decide, and carry it out. `answer`: what the event is about."""
        if not self._is_closed:
            for effect in self.fetcher.step(event, self._owner.clock.monotonic()):
                self._carry_out(effect, answer)

    def _carry_out(self, effect: FetcherEffect, answer: PartitionData | None) -> None:
        match effect:
            case SendFetch():
                self._start(lambda: self._fetch(effect), RequestFailed(effect.number))
            case Apply(topic_partition):
                assert answer is not None, "it is about one"
                self._apply(topic_partition, answer)
            case Truncate(topic_partition, epoch, end_offset):
                reached("mirror: the source has another log than was mirrored")
                self._halt(topic_partition, Halt.TRUNCATED, f"leader epoch {epoch} ends at {end_offset} now")
            case TruncateTo(topic_partition, offset):
                self._halt(topic_partition, Halt.TRUNCATED, f"the log ends at {offset} now")
            case StartAt(topic_partition, offset):
                reached("mirror: retention passed the position")
                self._halt(topic_partition, Halt.OUT_OF_RETENTION, f"the log begins at {offset} now")
            case LookUpEnd():
                self._start(lambda: self._look_up(effect), EndFound(effect.number, effect.topic_partition, None))
            case WakeAt(time_s):
                if self._timer is not None:
                    self._timer.cancel()
                delay_s = max(time_s - self._owner.clock.monotonic(), 0.0)
                self._timer = self._owner.clock.call_later(delay_s, lambda: self.step(TimePassed()))
            case _:
                assert_never(effect)

    def _start(self, work: Callable[[], Awaitable[None]], failed: FetcherEvent) -> None:
        task = asyncio.ensure_future(self._guarded(work, failed))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _guarded(self, work: Callable[[], Awaitable[None]], failed: FetcherEvent) -> None:
        """A bug ends neither the reader nor what the others fetch."""
        try:
            await work()
        except Exception:
            _LOG.exception("not fetched because of a bug: source=%s leader=%s:%d", self._owner.name, *self.address)
            self.step(failed)

    def _halt(self, topic_partition: TopicPartition, why: Halt, reason: str) -> None:
        followed = self._owner.followed(topic_partition)
        if followed is not None:
            self._owner.halt(followed, why, f"{reason}, the position is {followed.position.offset}")

    # Fetches

    async def _fetch(self, fetch: SendFetch) -> None:
        await self._owner.may_fetch.wait()
        window, sent_s = self._window, self._owner.clock.monotonic()
        message = FetchRequest(
            max_wait_ms=WAIT_MS if fetch.waits else 0,
            min_bytes=1,
            max_bytes=self._owner.limits.response_bytes_with(window.size),
            isolation_level=int(self._owner.committed),
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=wanted_topics(fetch, window.size),
            forgotten_topics_data=forgotten_topics(fetch),
        )
        response = await self._request(ApiKey.FETCH, message, FETCH_VERSIONS)
        if response is None:
            window.lost()
        if response is None or response.error_code:
            is_lost = response is not None and response.error_code in SESSION_ERRORS
            if response is not None and not is_lost:
                self._owner.warn(self.name, known_error(response.error_code).name.lower())
            self.step(SessionLost(fetch.number) if is_lost else RequestFailed(fetch.number))
            return
        self._owner.retries.over(self.name)
        size = sum(len(each.records or b"") for topic in response.responses for each in topic.partitions)
        window.answered(size, self._owner.clock.monotonic() - sent_s)
        self.step(ResponseArrived(fetch.number, response.session_id, filled_partitions(response)))
        for topic in response.responses:
            for answer in topic.partitions:
                self._answered(fetch.number, topic.topic_id, answer)
        self.step(RequestEnded(fetch.number))

    async def _request(self, api_key: ApiKey, message: Any, versions: VersionRange) -> Any:
        """The response; None if there is none."""
        try:
            if self._connection is None or self._connection.is_closed:
                self._connection = await self._owner.brokers.connection(self.address, f"fetch {self._owner.name} {self.number}")
            return await self._connection.send(api_key, message, timeout_s=FETCH_TIMEOUT_S, version=versions)
        except (PeerError, WorldError) as error:
            self._owner.warn(self.name, error)
            self._look_elsewhere(self.fetcher.partitions)
            return None

    def _look_elsewhere(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in {each.topic for each in partitions}:
            self._owner.doubt_leader(topic)

    def _answered(self, number: int, topic_id: bytes, answer: PartitionData) -> None:
        error = known_error(answer.error_code)
        diverging = answer.diverging_epoch
        event = PartitionAnswered(
            number,
            topic_id,
            answer.partition_index,
            error,
            answer.high_watermark,
            answer.log_start_offset,
            None if diverging is None or diverging.epoch < 0 else (diverging.epoch, diverging.end_offset),
        )
        if error and error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            for topic_partition, each in list(self.fetcher.partitions.items()):
                if each.key == (topic_id, answer.partition_index):
                    self._failed(topic_partition, error)
        self.step(event, answer)

    def _failed(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        if error in DENIALS:
            self._halt(topic_partition, Halt.DENIED, error.name.lower())
            return
        if error is ErrorCode.CORRUPT_MESSAGE:
            self._halt(topic_partition, Halt.POISONED, "its leader cannot read it")
            return
        self._owner.warn(topic_partition, error.name.lower())
        self._owner.doubt_leader(topic_partition.topic)

    def _apply(self, topic_partition: TopicPartition, answer: PartitionData) -> None:
        followed = self._owner.followed(topic_partition)
        if followed is None:
            return
        try:
            batches, records, position = whole_batches(memoryview(answer.records or b""), followed.position, verifies=self._owner.verifies)
        except CorruptBatchError as error:
            self._halt(topic_partition, Halt.POISONED, error.message)
            return
        self._owner.retries.over(topic_partition)
        followed.position = position
        ends = answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
        fetched = Fetched(batches, records, answer.aborted_transactions or (), position, *ends)
        has_room = self._owner.taker.take(followed.partition, fetched)
        if self._owner.followed(topic_partition) is followed:
            self.step(Moved(topic_partition, end_of(followed.position), is_throttled=not has_room))

    # Ends

    async def _look_up(self, look_up: LookUpEnd) -> None:
        """The position is out of range, and not before the start: has the log been truncated? The end of the position's own epoch says it.
        Without an epoch nothing has been mirrored yet, and the position is one that was asked for: it may come.
        """
        topic_partition = look_up.topic_partition
        followed = self._owner.followed(topic_partition)
        end_offset = None
        if followed is not None and followed.position.epoch >= 0:
            wanted = OffsetForLeaderPartition(topic_partition.partition, look_up.leader_epoch, followed.position.epoch)
            request = OffsetForLeaderEpochRequest(CONSUMER, [OffsetForLeaderTopic(topic_partition.topic, [wanted])])
            response = await self._request(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, LOOKUP_VERSIONS)
            if response is not None:
                found = response.topics[0].partitions[0]
                if found.error_code:
                    self._failed(topic_partition, known_error(found.error_code))
                elif found.end_offset >= 0:
                    end_offset = found.end_offset
        else:
            at = "" if followed is None else f" {followed.position.offset}"
            self._owner.warn(topic_partition, f"the position{at} is beyond the end of the log")
        self.step(EndFound(look_up.number, topic_partition, end_offset))
