"""Fetch: ranges of log files, at once or when there is enough.

Sessions are not kept: every answer has session id 0, and clients then send full requests (KIP-227 allows it). A request that goes on with a
session is answered with FETCH_SESSION_ID_NOT_FOUND, on which clients start anew.

A request waits when there is less than `min_bytes`, or `max_bytes` if that is less, none of its partitions has an error, and it asks for
something. An error, an offset out of range, a log that diverges from the client's is told at once. The first partition with data gives at
least one whole batch, however long, so that a client with small limits gets on; after that the limits hold.

Isolation level 1 reads up to the last stable offset, and is told which transactions in what it reads were aborted: their records are there,
and clients leave them out. It waits for what is decided: a marker wakes it, not each append of a transaction that goes on.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.broker.delayed import DelayedRequest
from moldau.broker.partition import Partition
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError, StorageError
from moldau.ports.transport import FileRange, Part
from moldau.protocol.fast.fetch import FetchFrame, FetchPartition, FetchPartitionResult, decode_fetch, encode_fetch_response

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.log.partition_log import PartitionLog
    from moldau.log.read import ReadResult

FIRST_WITH_TOPIC_IDS = 13
READ_COMMITTED = 1
FULL_SESSION_EPOCHS = (-1, 0)
"""Session epochs of a request that lists all it wants."""

Answer = Callable[[list[Part]], object]


class _Fetch:
    """One Fetch request while it is worked on."""

    __slots__ = ("answer", "broker", "committed", "correlation_id", "enough", "frame", "led", "version")

    def __init__(self, broker: "Broker", frame: FetchFrame, version: int, correlation_id: int) -> None:
        self.broker = broker
        self.frame = frame
        self.committed = frame.isolation_level == READ_COMMITTED
        self.enough = min(frame.min_bytes, frame.max_bytes, broker.fetch_bytes_max)
        """Bytes to wait for."""
        self.version = version
        self.correlation_id = correlation_id
        self.led: list[Partition] = []
        self.answer: Answer | None = None

    def encode(self, topics: list[tuple[bytes, list[FetchPartitionResult]]]) -> list[Part]:
        return encode_fetch_response(self.version, self.correlation_id, 0, 0, 0, topics)

    def read(self) -> tuple[list[tuple[bytes, list[FetchPartitionResult]]], int, bool]:
        """Results, the bytes of records in them, and whether they hold something that cannot wait."""
        broker, frame = self.broker, self.frame
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        left = min(frame.max_bytes, broker.fetch_bytes_max)
        found = 0
        urgent = False
        topics: list[tuple[bytes, list[FetchPartitionResult]]] = []
        self.led.clear()
        for topic, wanted in frame.topics:
            partitions = broker.partitions_of(topic, by_id=by_id)
            results: list[FetchPartitionResult] = []
            for want in wanted:
                partition = partitions.get(want.partition)
                if partition is None:
                    result = _refused(want.partition, broker.missing_partition(topic, want.partition, by_id=by_id).code)
                    urgent = True
                else:
                    self.led.append(partition)
                    result = self._read_partition(partition, want, left, at_least_one=found == 0)
                    records = result.records
                    if type(records) is FileRange:
                        found += records.length
                        left -= records.length
                    urgent = urgent or result.error_code != 0 or result.diverging_epoch is not None
                results.append(result)
            topics.append((topic, results))
        return topics, found, urgent

    def missing_bytes(self, found: int) -> int:
        """How many more bytes there have to be, `found` having been read; 0 or less if there are enough.

        A read ends with its segment and before the batch that is too long for it, so there may be more than it has found.
        """
        if found >= self.enough:
            return 0
        try:
            return self.enough - max(found, self._available())
        except StorageError:  # the next read tells
            return 0

    def _available(self) -> int:
        available = 0
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        for topic, wanted in self.frame.topics:
            partitions = self.broker.partitions_of(topic, by_id=by_id)
            for want in wanted:
                partition = partitions.get(want.partition)
                if partition is not None and want.fetch_offset < (limit := self._limit(partition)):
                    available += partition.log.readable_bytes(want.fetch_offset, limit, want.max_bytes)
        return available

    def _limit(self, partition: Partition) -> int:
        """The offset before which the records are that may be read."""
        return partition.log.last_stable_offset if self.committed else partition.log.high_watermark

    def _read_partition(self, partition: Partition, want: FetchPartition, left: int, *, at_least_one: bool) -> FetchPartitionResult:
        log = partition.log
        try:
            if want.current_leader_epoch >= 0:
                partition.check_leader_epoch(want.current_leader_epoch)
            high_watermark, stable_offset = log.high_watermark, log.last_stable_offset
            if want.last_fetched_epoch >= 0:
                epoch, end_offset = log.end_offset_for_epoch(want.last_fetched_epoch)
                if epoch < 0 or end_offset < 0:
                    raise PeerError(
                        ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.topic_partition}: epoch {want.last_fetched_epoch} is not known"
                    )
                if epoch < want.last_fetched_epoch or end_offset < want.fetch_offset:
                    return FetchPartitionResult(
                        partition.index, 0, high_watermark, stable_offset, log.start_offset, b"", diverging_epoch=(epoch, end_offset)
                    )
            offset = want.fetch_offset
            if not log.start_offset <= offset <= log.end_offset:
                raise PeerError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{partition.topic_partition}: offset {offset} is not in {log.start_offset}..{log.end_offset}",
                )
            records: FileRange | bytes = b""
            aborted: Sequence[tuple[int, int]] | None = () if self.committed else None
            limit = stable_offset if self.committed else high_watermark
            if offset < limit and (left > 0 or at_least_one):
                read = log.read(offset, max(min(want.max_bytes, left), 0), limit, at_least_one=at_least_one)
                records = read.records or b""
                if self.committed:
                    aborted = _aborted(log, read, offset, limit)
            return FetchPartitionResult(partition.index, 0, high_watermark, stable_offset, log.start_offset, records, aborted)
        except CorruptBatchError as error:
            return _refused(partition.index, error.code, partition)
        except PeerError as error:
            return _refused(partition.index, error.code, partition)
        except StorageError as error:
            self.broker.storage_failed(partition, error)
            return _refused(partition.index, ErrorCode.KAFKA_STORAGE_ERROR)

    def attempt(self, expired: bool, request: DelayedRequest | None = None) -> bool:
        """Answer if there is enough to send, or if the time is over."""
        topics, found, urgent = self.read()
        if not (expired or urgent) and (missing := self.missing_bytes(found)) > 0:
            if request is not None:
                request.missing_bytes = missing
            _release(topics)
            return False
        assert self.answer is not None
        self.answer(self.encode(topics))
        return True


def handle_fetch(broker: "Broker", frame: memoryview, position: int, version: int, correlation_id: int) -> "list[Part] | WaitingFetch":
    """The answer to the request whose body starts at `position`, or the request that has to wait for it. ProtocolError."""
    request = decode_fetch(frame, position, version, broker.decoded_elements_max)
    if len(request.topics) > 1 and not all(wanted for _, wanted in request.topics):  # as Kafka, nothing is said of the others
        request = request._replace(topics=[each for each in request.topics if each[1]])
    refusal = _request_refusal(request)
    if refusal != ErrorCode.NONE:
        return encode_fetch_response(version, correlation_id, 0, refusal, 0, [])
    fetch = _Fetch(broker, request, version, correlation_id)
    topics, found, urgent = fetch.read()
    if urgent or request.max_wait_ms <= 0 or not fetch.led or broker.delayed.is_full or (missing := fetch.missing_bytes(found)) <= 0:
        return fetch.encode(topics)
    _release(topics)
    return WaitingFetch(fetch, missing)


class WaitingFetch:
    """A fetch that cannot be answered yet. `start` lets it wait; `cancel` gives it up."""

    __slots__ = ("_fetch", "_missing_bytes", "_request")

    def __init__(self, fetch: _Fetch, missing_bytes: int) -> None:
        self._fetch = fetch
        self._missing_bytes = missing_bytes
        self._request: DelayedRequest | None = None

    def start(self, answer: Answer, give_up: Callable[[], object]) -> None:
        """Wait; one of the two is called, once: `give_up` if a bug keeps it from being answered."""
        fetch = self._fetch
        fetch.answer = answer
        self._request = DelayedRequest(self._attempt, tuple(fetch.led), self._missing_bytes, give_up, committed=fetch.committed)
        fetch.broker.delayed.wait(self._request, fetch.frame.max_wait_ms)

    def finish(self) -> None:
        """Answer at once with what there is."""
        if self._request is not None:
            self._fetch.broker.delayed.finish(self._request)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        if self._request is not None:
            self._fetch.broker.delayed.cancel(self._request)

    def _attempt(self, expired: bool) -> bool:
        return self._fetch.attempt(expired, self._request)


def _request_refusal(request: FetchFrame) -> ErrorCode:
    if request.replica_id >= 0:  # a follower: replication is not in service
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.session_epoch not in FULL_SESSION_EPOCHS:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return ErrorCode.NONE


def _refused(index: int, code: ErrorCode, partition: Partition | None = None) -> FetchPartitionResult:
    if partition is None or code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchPartitionResult(index, code, -1, -1, -1, b"")
    log = partition.log
    return FetchPartitionResult(index, code, log.high_watermark, log.last_stable_offset, log.start_offset, b"")


def _aborted(log: "PartitionLog", read: "ReadResult", offset: int, limit: int) -> list[tuple[int, int]]:
    try:
        return log.aborted_in(read, offset, limit)
    except StorageError:
        if read.records is not None:
            read.records.release()
        raise


def _release(topics: list[tuple[bytes, list[FetchPartitionResult]]]) -> None:
    """Give back the ranges of results that are not sent."""
    for _, results in topics:
        for result in results:
            if isinstance(result.records, FileRange):
                result.records.release()
