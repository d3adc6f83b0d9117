"""What is fetched from a source cluster: one reader for each leader, with a fetch session of its own.

`fetching.Fetcher` decides what is asked for. A partition is fetched from the broker that the metadata name; where that changes, or the
broker says that it does not lead, the metadata are asked for again, no more often than `REFRESH_S`. What is fetched goes to the mirror at
once, and the partition is fetched again while the mirror writes, as long as the mirror has room for more.

Found here, and never passed over: a log that was truncated below the position, a topic that was deleted or made again, records that
retention deleted before they were fetched, a batch with a wrong checksum. The partition halts, and the others are fetched.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, assert_never

from moldau.fetching.events import (
    Apply,
    EndFound,
    FetcherEffect,
    FetcherEvent,
    Follow,
    LogEnd,
    LookUpEnd,
    Moved,
    PartitionAnswered,
    RequestEnded,
    RequestFailed,
    ResponseArrived,
    Resumed,
    SendFetch,
    SessionLost,
    StartAt,
    TimePassed,
    Truncate,
    TruncateTo,
    Unfollow,
    WakeAt,
)
from moldau.fetching.fetcher import Fetcher
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.model.log_throttle import LogThrottle
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_lookups import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from moldau.protocol.records.header import HEADER_SIZE, BatchHeader, read_header, verify_crc
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
BACK_OFF_S = 1.0
"""At most, of a partition that the source does not give."""
REFRESH_S = 0.1
"""Between two requests for the metadata of topics in trouble."""
DENIALS_MAX = 5
"""How often in a row the metadata have to say that a topic does not exist, or is another one: a broker that has just started, or that is
cut off from the others, does not know all.
"""
CONSUMER = -1
"""The replica id of one that is no replica."""
LOOKUP_VERSIONS = VersionRange(3, 4)
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_DENIALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

Batch = tuple[BatchHeader, memoryview]


class Fetched(NamedTuple):
    """What one answer has of a partition."""

    batches: list[Batch]
    """Whole, with right checksums, in the memory that they were received in, which is the mirror's."""
    aborted: Sequence[Any]
    """Transactions of which all records are to be left out: `producer_id`, `first_offset`."""
    position: Position
    """After the batches."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Limits(NamedTuple):
    """How much is fetched at once."""

    response_bytes: int = 16 * 1024 * 1024
    partition_bytes: int = 1024 * 1024


LIMITS = Limits()


class Taker(Protocol):
    """The mirror, which takes what was fetched."""

    def take(self, partition: SourcePartition, fetched: Fetched) -> bool:
        """Take what an answer has, perhaps no batches. Whether there is room for more now: otherwise `SourceReader.resume`."""

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        """The partition is not fetched any more."""


class SourceReader:
    """See the module. `committed`: fetch up to the last stable offset."""

    def __init__(self, name: str, brokers: "Brokers", clock: "Clock", taker: Taker, *, committed: bool, limits: Limits = LIMITS) -> None:
        self.name = name
        self.brokers = brokers
        self.clock = clock
        self.taker = taker
        self.committed = committed
        self.limits = limits
        self.throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)
        self._followed: dict[TopicPartition, _Followed] = {}
        self._leaders: dict[Address, _LeaderReader] = {}
        self._troubled: set[str] = set()
        """Topics whose metadata are to be asked for again."""
        self._denials: dict[str, int] = {}
        self._trouble = asyncio.Event()
        self._refreshing = asyncio.ensure_future(self._refresh())

    def follow(self, partition: SourcePartition, position: Position) -> None:
        """Fetch a partition from a position on."""
        self.unfollow(partition)
        self._followed[partition.topic_partition] = _Followed(partition, position)
        self.find_leader(partition.topic)

    def unfollow(self, partition: SourcePartition) -> None:
        """Fetch a partition no more; nothing of it is given any more. Nothing without effect."""
        followed = self._followed.get(partition.topic_partition)
        if followed is not None and followed.partition == partition:
            del self._followed[partition.topic_partition]
            self._leave(followed)

    def resume(self, partition: SourcePartition) -> None:
        """There is room for more of a partition."""
        followed = self._followed.get(partition.topic_partition)
        if followed is not None and followed.leader is not None:
            followed.leader.step(Resumed(partition.topic_partition))

    def position(self, partition: SourcePartition) -> Position | None:
        """Where a partition is fetched next; None if it is not followed."""
        followed = self._followed.get(partition.topic_partition)
        return followed.position if followed is not None and followed.partition == partition else None

    async def close(self) -> None:
        """Fetch nothing any more."""
        self._refreshing.cancel()
        self._followed.clear()
        leaders, self._leaders = self._leaders, {}
        for leader in leaders.values():
            leader.close()
        await asyncio.gather(self._refreshing, return_exceptions=True)

    # Of its readers

    def followed(self, topic_partition: TopicPartition) -> "_Followed | None":
        """A partition that is followed."""
        return self._followed.get(topic_partition)

    def find_leader(self, topic: str) -> None:
        """Who leads the partitions of a topic may have changed."""
        self._troubled.add(topic)
        self._trouble.set()

    def halt(self, followed: "_Followed", why: Halt, reason: str) -> None:
        """An operator has to decide."""
        partition = followed.partition
        _LOG.error("partition halts: %s, %s: source=%s partition=%s-%d", why.value, reason, self.name, partition.topic, partition.number)
        self.unfollow(partition)
        self.taker.halt(partition, why, reason)

    def warn(self, subject: object, reason: object) -> None:
        """Say what is tried again."""
        if self.throttle.due((subject, str(reason)), self.clock.monotonic()):
            _LOG.warning("not fetched, trying again: source=%s subject=%s reason=%s", self.name, subject, reason)

    # Leaders

    async def _refresh(self) -> None:
        while True:
            await self._trouble.wait()
            self._trouble.clear()
            topics, self._troubled = self._troubled, set()
            wanted = sorted(topics & {each.topic for each in self._followed})
            if wanted:
                try:
                    await self._ask(wanted)
                except (PeerError, WorldError) as error:
                    self.warn("metadata", error)
                    self._troubled |= topics
                    self._trouble.set()
                    await self.brokers.back_off()
                except Exception:
                    _LOG.exception("leaders not found because of a bug: source=%s", self.name)
            await asyncio.sleep(REFRESH_S)

    async def _ask(self, topics: list[str]) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)
        response = await self.brokers.ask(ApiKey.METADATA, request)
        self.brokers.learn_brokers(response)
        for found in response.topics:
            self._learn(found)

    def _learn(self, found: Any) -> None:
        name, error = found.name, known_error(found.error_code)
        mine = [each for tp, each in self._followed.items() if tp.topic == name]
        if not mine:
            return
        ids = {each.partition.topic_id for each in mine}
        exists_no_more = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if exists_no_more or (not error and ids != {found.topic_id}):
            self._denials[name] = self._denials.get(name, 0) + 1
            is_sure = self._denials[name] >= DENIALS_MAX
            for each in mine:
                if is_sure and (exists_no_more or each.partition.topic_id != found.topic_id):
                    now = "" if exists_no_more else f", the topic id is {found.topic_id.hex()} now"
                    reason = f"topic id {each.partition.topic_id.hex()} does not exist any more{now}"
                    self.halt(each, Halt.DELETED if exists_no_more else Halt.RECREATED, reason)
            if not is_sure:
                self.warn(name, "does not exist, or is another topic")
                self.brokers.forget_topic(name)  # the next broker
                self.find_leader(name)
            return
        if error in _DENIALS:
            for each in mine:
                self.halt(each, Halt.DENIED, f"{error.name.lower()} for topic {name}")
            return
        if error:
            self.warn(name, error.name.lower())
            self.find_leader(name)
            return
        self._denials.pop(name, None)
        topic = self.brokers.learn(found)
        for each in mine:
            number = each.partition.number
            address = topic.leaders[number] if number < len(topic.leaders) else None
            if address is None:
                self._leave(each)
                self.warn(each.partition.topic_partition, "no leader")
                self.find_leader(name)
            else:
                self._read_from(each, address, topic.epochs[number])

    def _read_from(self, followed: "_Followed", address: "Address", epoch: int) -> None:
        leader = followed.leader
        if leader is not None and leader.address == address and followed.leader_epoch == epoch:
            return
        if leader is not None and leader.address != address:
            self._leave(followed)
        reader = self._leaders.get(address)
        if reader is None:
            reader = self._leaders[address] = _LeaderReader(self, address)
        followed.leader, followed.leader_epoch = reader, epoch
        partition = followed.partition
        reader.step(Follow(partition.topic_partition, partition.topic_id, epoch, _end(followed.position)))

    def _leave(self, followed: "_Followed") -> None:
        leader, followed.leader = followed.leader, None
        if leader is not None:
            leader.step(Unfollow(followed.partition.topic_partition))
            if not leader.fetcher.partitions:
                self._leaders.pop(leader.address, None)
                leader.close()


class _Followed:
    """A partition that is fetched."""

    __slots__ = ("leader", "leader_epoch", "partition", "position")

    def __init__(self, partition: SourcePartition, position: Position) -> None:
        self.partition = partition
        self.position = position
        self.leader: _LeaderReader | None = None
        self.leader_epoch = -1


def _end(position: Position) -> LogEnd:
    return LogEnd(position.offset, position.epoch, -1)


class _LeaderReader:
    """Fetches from one broker."""

    def __init__(self, owner: SourceReader, address: "Address") -> None:
        self.address = address
        self.fetcher = Fetcher(BACK_OFF_S)
        self._owner = owner
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
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
                self._start(self._fetch(effect))
            case Apply(topic_partition):
                assert answer is not None, "it is about one"
                self._apply(topic_partition, answer)
            case Truncate(topic_partition, epoch, end_offset):
                self._halt(topic_partition, Halt.TRUNCATED, f"leader epoch {epoch} ends at {end_offset} now")
            case TruncateTo(topic_partition, offset):
                self._halt(topic_partition, Halt.TRUNCATED, f"the log ends at {offset} now")
            case StartAt(topic_partition, offset):
                self._halt(topic_partition, Halt.OUT_OF_RETENTION, f"the log begins at {offset} now")
            case LookUpEnd():
                self._start(self._look_up(effect))
            case WakeAt(time_s):
                if self._timer is not None:
                    self._timer.cancel()
                delay_s = max(time_s - self._owner.clock.monotonic(), 0.0)
                self._timer = self._owner.clock.call_later(delay_s, lambda: self.step(TimePassed()))
            case _:
                assert_never(effect)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _halt(self, topic_partition: TopicPartition, why: Halt, reason: str) -> None:
        followed = self._owner.followed(topic_partition)
        if followed is not None:
            self._owner.halt(followed, why, f"{reason}, the position is {followed.position.offset}")

    # Fetches

    async def _fetch(self, fetch: SendFetch) -> None:
        limits = self._owner.limits
        topics: dict[bytes, FetchTopic] = {}
        for each in fetch.partitions:
            topic = topics.get(each.topic_id)
            if topic is None:
                topic = topics[each.topic_id] = FetchTopic(topic_id=each.topic_id, partitions=[])
            log = each.log
            wanted = FetchPartition(each.partition, each.leader_epoch, log.end_offset, log.last_epoch, -1, limits.partition_bytes)
            topic.partitions.append(wanted)
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in fetch.forgotten:
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
        message = FetchRequest(
            max_wait_ms=WAIT_MS if fetch.waits else 0,
            min_bytes=1,
            max_bytes=limits.response_bytes,
            isolation_level=int(self._owner.committed),
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        response = await self._request(ApiKey.FETCH, message, FETCH_VERSIONS)
        if response is None or response.error_code:
            is_lost = response is not None and response.error_code in _SESSION_ERRORS
            if response is not None and not is_lost:
                self._owner.warn(f"{self.address[0]}:{self.address[1]}", known_error(response.error_code).name.lower())
            self.step(SessionLost(fetch.number) if is_lost else RequestFailed(fetch.number))
            return
        self.step(ResponseArrived(fetch.number, response.session_id, _filled(response)))
        for topic in response.responses:
            for answer in topic.partitions:
                self._answered(fetch.number, topic.topic_id, answer)
        self.step(RequestEnded(fetch.number))

    async def _request(self, api_key: ApiKey, message: Any, versions: VersionRange) -> Any:
        """The response; None if there is none."""
        try:
            if self._connection is None or self._connection.is_closed:
                self._connection = await self._owner.brokers.connection(self.address, f"fetch {self._owner.name}")
            return await self._connection.send(api_key, message, timeout_s=FETCH_TIMEOUT_S, version=versions)
        except (PeerError, WorldError) as error:
            self._owner.warn(f"{self.address[0]}:{self.address[1]}", error)
            self._look_elsewhere(self.fetcher.partitions)
            return None

    def _look_elsewhere(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in {each.topic for each in partitions}:
            self._owner.find_leader(topic)

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
        if error in _DENIALS:
            self._halt(topic_partition, Halt.DENIED, error.name.lower())
            return
        if error is ErrorCode.CORRUPT_MESSAGE:
            self._halt(topic_partition, Halt.POISONED, "its leader cannot read it")
            return
        self._owner.warn(topic_partition, error.name.lower())
        self._owner.find_leader(topic_partition.topic)

    def _apply(self, topic_partition: TopicPartition, answer: PartitionData) -> None:
        followed = self._owner.followed(topic_partition)
        if followed is None:
            return
        try:
            batches, position = _whole_batches(memoryview(answer.records or b""), followed.position)
        except CorruptBatchError as error:
            self._halt(topic_partition, Halt.POISONED, error.message)
            return
        followed.position = position
        fetched = Fetched(
            batches, answer.aborted_transactions or (), position, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
        )
        has_room = self._owner.taker.take(followed.partition, fetched)
        if self._owner.followed(topic_partition) is followed:
            self.step(Moved(topic_partition, _end(followed.position), is_throttled=not has_room))

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
            self._owner.warn(topic_partition, "the position is beyond the end")
        self.step(EndFound(look_up.number, topic_partition, end_offset))


def _whole_batches(records: memoryview, position: Position) -> tuple[list[Batch], Position]:
    """The batches of an answer but for a last one that is cut off, those before the position left out; and the position after them.

    CorruptBatchError, only where no whole batch comes before: what is whole is mirrored first.
    """
    found: list[Batch] = []
    at, end = 0, len(records)
    while at < end:
        try:
            header = read_header(records, at)
            if at + header.size > end:
                break
            batch = records[at : at + header.size]
            if not verify_crc(batch):
                raise CorruptBatchError(f"the batch at offset {header.base_offset} has a wrong checksum")
        except CorruptBatchError:
            if found or end - at < HEADER_SIZE:
                break
            raise
        at += header.size
        if header.last_offset >= position.offset:
            found.append((header, batch))
            position = Position(header.last_offset + 1, header.partition_leader_epoch)
    return found, position


def _filled(response: Any) -> tuple[tuple[bytes, int], ...]:
    """The partitions with records: others are fetched while these are written."""
    return tuple((topic.topic_id, each.partition_index) for topic in response.responses for each in topic.partitions if each.records)
