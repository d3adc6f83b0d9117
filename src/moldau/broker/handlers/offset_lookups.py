"""ListOffsets: the first, the last, or by time; OffsetForLeaderEpoch: where an epoch ends, so that a client sees that what it has read was
cut off (KIP-101, KIP-320).

Names instead of times: -1 latest, -2 earliest, -3 the record with the largest timestamp (version 7), -4 earliest on local disk (8, the
same as earliest here), -5 the last in tiered storage (9) and -6 the first not there yet (11); without tiered storage -5 gives none, and -6
the earliest. By time: the first record whose timestamp is not smaller, or none. A name that a version does not have yet is looked up all
the same. Consumers see nothing from the high watermark on, those of committed records (isolation level 1) nothing from the last stable
offset on. A new leader that may show less than the one before answers OFFSET_NOT_AVAILABLE for the latest.

Many partitions are answered in turns (`admission/slices`), so that others need not wait. So it is with a look-up by time, a search of
`moldau.log.timestamps`: the broker's thread takes each of its steps, which are short; the pieces of work that it yields wait in one line
with those of all others for the thread for computing, so that a small look-up waits for one piece of each large one at most. Connections
are held meanwhile: there is one look-up of each, and one whose connection is lost ends after its present piece.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.services import PartitionServices
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import UNKNOWN_EPOCH
from moldau.model.steps import Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_lookups import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from moldau.log.timestamps import SearchProgress, SearchStep, TimeSearch, TimestampOffset
    from moldau.ports.background import Background
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

Done = Callable[["TimestampOffset | None", PeerError | StorageError | None], object]


class TimeLookup:
    """One search under way."""

    __slots__ = ("_abandoned", "_clock", "_compute", "_done", "_search")

    def __init__(self, search: "TimeSearch", compute: "Background", clock: "Clock", done: Done) -> None:
        """`done` is called with what was found or with the error, unless the look-up is abandoned."""
        self._search = search
        self._compute = compute
        self._clock = clock
        self._done = done
        self._abandoned = False

    def start(self) -> None:
        """Begin; it may end at once."""
        self._advance(partial(next, self._search))

    def abandon(self) -> None:
        """The connection that asked is lost."""
        self._abandoned = True

    def _advance(self, resume: "Callable[[], SearchStep | None]") -> None:
        if self._abandoned:
            self._search.close()
            return
        try:
            piece = resume()
        except StopIteration as end:
            self._done(end.value, None)
        except (PeerError, StorageError) as error:
            self._done(None, error)
        except Exception:
            _LOG.exception("look-up by time given up by a bug")
            self._done(None, PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the look-up failed because of a bug, see the log"))
        else:
            if piece is None:
                self._clock.call_later(0.0, lambda: self._advance(partial(self._search.send, None)))
            else:
                piece.file.retain()
                self._compute.run(piece.run, partial(self._ran, piece))

    def _ran(self, piece: "SearchStep", reached: "SearchProgress | None", error: BaseException | None) -> None:
        piece.file.release()
        self._advance(partial(self._search.send, reached) if error is None else partial(self._search.throw, error))


class Services(PartitionServices, Protocol):
    """What these handlers use of the broker."""

    @property
    def clock(self) -> "Clock":
        """Turns of the broker's thread."""

    @property
    def compute(self) -> "Background":
        """The thread for computing."""


FIRST_WITH_LEADER_EPOCH = 4
FIRST_WITH_NOT_AVAILABLE = 5
READ_COMMITTED = 1
PARTITIONS_AT_A_TIME = 64


def list_offsets(services: Services, message: ListOffsetsRequest, request: Request, reply: Reply) -> Steps:
    """Look up each partition's offset. Codes: UNKNOWN_TOPIC_OR_PARTITION, FENCED_ and UNKNOWN_LEADER_EPOCH, INVALID_REQUEST, storage.

    A partition that is named more than once is answered once, with INVALID_REQUEST, as by Kafka.
    """
    lookups = _Lookups(services, message, request, reply)
    yield from lookups.prepare()
    lookups.advance()


class _Lookups:
    """The look-ups of one request. Those by name are answered while it is prepared; those by time follow, one after the other."""

    def __init__(self, services: Services, message: ListOffsetsRequest, request: Request, reply: Reply) -> None:
        self._services = services
        self._message = message
        self._request = request
        self._reply = reply
        self._response = ListOffsetsResponse()
        self._committed = message.isolation_level == READ_COMMITTED
        self._by_time: deque[tuple[ListOffsetsPartitionResponse, HostedPartition, ListOffsetsPartition]] = deque()
        self._current: TimeLookup | None = None
        self._advancing = False

    def prepare(self) -> Steps:
        """Answer what needs no search, a few at a time."""
        answers: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
        topics: dict[str, ListOffsetsTopicResponse] = {}
        seen = 0
        for topic in self._message.topics:
            name = topic.name.encode()
            answered = topics.get(topic.name)
            if answered is None:
                answered = topics[topic.name] = ListOffsetsTopicResponse(topic.name, [])
                self._response.topics.append(answered)
            for wanted in topic.partitions:
                key = topic.name, wanted.partition_index
                repeated = answers.get(key)
                if repeated is None:
                    answers[key] = answer = ListOffsetsPartitionResponse(wanted.partition_index)
                    answered.partitions.append(answer)
                    self._answer(answer, name, wanted)
                elif repeated.error_code != ErrorCode.INVALID_REQUEST:
                    _set(repeated, ErrorCode.INVALID_REQUEST)
                seen += 1
                if seen % PARTITIONS_AT_A_TIME == 0:
                    yield None

    def advance(self) -> None:
        """Search for those by time, one after the other; reply after the last."""
        if self._advancing:
            return  # one has ended at once, and the loop below takes the next
        self._advancing, started = True, 0
        while self._by_time and self._current is None and started < PARTITIONS_AT_A_TIME:
            answer, partition, wanted = self._by_time.popleft()
            if answer.error_code:  # it was named again
                continue
            started += 1
            self._request.exchange.hold(self._abandon)
            done = partial(self._found, answer, partition)
            self._current = TimeLookup(self._search(partition, wanted), self._services.compute, self._services.clock, done)
            self._current.start()
        self._advancing = False
        if self._current is None:
            if self._by_time:
                self._services.clock.call_later(0.0, self.advance)
            else:
                self._finish()

    def _finish(self) -> None:
        if self._request.api_version < FIRST_WITH_LEADER_EPOCH:
            for topic in self._response.topics:
                for answer in topic.partitions:
                    answer.leader_epoch = UNKNOWN_EPOCH
        self._reply(self._response)

    def _answer(self, answer: ListOffsetsPartitionResponse, name: bytes, wanted: ListOffsetsPartition) -> None:
        try:
            partition = self._services.partitions_of(name, by_id=False).get(wanted.partition_index)
            if partition is None:
                raise self._services.missing_partition(name, wanted.partition_index, by_id=False)
            partition.machine.check_leader_epoch(wanted.current_leader_epoch)
            log = partition.log
            match wanted.timestamp:
                case -1:
                    if partition.shows_too_little:
                        raise PeerError(self._not_available, f"{partition.topic_partition}: the high watermark is not known yet")
                    _set(answer, 0, -1, self._limit(partition), partition.newest_epoch)
                case -2 | -4 | -6:
                    _set(answer, 0, -1, log.start_offset, log.epoch_at(log.start_offset))
                case -5:
                    pass
                case timestamp if timestamp >= -3:
                    self._by_time.append((answer, partition, wanted))
                case timestamp:
                    raise PeerError(ErrorCode.INVALID_REQUEST, f"{partition.topic_partition}: timestamp {timestamp} has no meaning")
        except PeerError as error:
            _set(answer, error.code)

    @property
    def _not_available(self) -> ErrorCode:
        """The code that clients of this version know."""
        return ErrorCode.OFFSET_NOT_AVAILABLE if self._request.api_version >= FIRST_WITH_NOT_AVAILABLE else ErrorCode.LEADER_NOT_AVAILABLE

    def _limit(self, partition: HostedPartition) -> int:
        return partition.log.last_stable_offset if self._committed else partition.log.high_watermark

    def _search(self, partition: HostedPartition, wanted: ListOffsetsPartition) -> "TimeSearch":
        limit, bytes_max = self._limit(partition), partition.limits.decompressed_bytes_max
        if wanted.timestamp == -3:
            return partition.log.search_largest_timestamp(limit, bytes_max)
        return partition.log.search_timestamp(wanted.timestamp, limit, bytes_max)

    def _found(
        self,
        answer: ListOffsetsPartitionResponse,
        partition: HostedPartition,
        found: "TimestampOffset | None",
        error: PeerError | StorageError | None,
    ) -> None:
        if isinstance(error, StorageError):
            self._services.storage_failed(partition, error)
            _set(answer, ErrorCode.KAFKA_STORAGE_ERROR)
        elif not partition.is_led:
            where = partition.topic_partition
            _set(answer, self._services.missing_partition(where.topic.encode(), where.partition, by_id=False).code)
        elif error is not None:
            _set(answer, error.code)
        elif found is not None:
            _set(answer, 0, found.timestamp_ms, found.offset, found.leader_epoch)
        elif partition.shows_too_little:
            _set(answer, self._not_available)
        self._current = None
        self.advance()

    def _abandon(self) -> None:
        self._by_time.clear()
        if self._current is not None:
            self._current.abandon()


def _set(answer: ListOffsetsPartitionResponse, code: int, timestamp: int = -1, offset: int = -1, leader_epoch: int = UNKNOWN_EPOCH) -> None:
    answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch = code, timestamp, offset, leader_epoch


def find_epoch_ends(services: Services, message: OffsetForLeaderEpochRequest, request: Request, reply: Reply) -> Steps | None:
    """Look up each epoch's end. Codes: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH."""
    return unless_few(_look_up_epochs(services, message, reply), sum(len(topic.partitions) for topic in message.topics))


def _look_up_epochs(services: Services, message: OffsetForLeaderEpochRequest, reply: Reply) -> Steps:
    topics = []
    for topic in message.topics:
        answers = []
        for wanted in topic.partitions:
            answers.append(_look_up(services, topic.topic.encode(), wanted))
            yield None
        topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
    reply(OffsetForLeaderEpochResponse(topics=topics))


def _look_up(services: Services, topic: bytes, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    """The end in the log, for consumers too: a new leader may not know yet that what they have read is committed, and its high watermark
    would make them believe that it was truncated.
    """
    index = wanted.partition
    partition = services.partitions_of(topic, by_id=False).get(index)
    try:
        if partition is None:
            raise services.missing_partition(topic, index, by_id=False)
        partition.machine.check_leader_epoch(wanted.current_leader_epoch)
    except PeerError as error:
        return EpochEndOffset(error.code, index)
    epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(0, index, epoch, end_offset)


HANDLERS = {
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: find_epoch_ends,
}
