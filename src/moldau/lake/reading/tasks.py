"""A Spark task of a read: one range after the other, from a start to an end that was fixed before, all records or an error; as rows.

The rules: a record whose offset lies in the range comes exactly once, in order; a gap in the offsets is no error, since compaction,
transaction markers and, for readers of committed records, aborted transactions leave gaps; the read ends when the log has shown that
nothing below the end is left. Deleted records are a DataLossError, or skipped with a warning. A broker that does not answer is asked
again until nothing has come for `poll_timeout_s`.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from moldau.client.errors import TruncationError
from moldau.client.fetched_batches import UnreadableBatchError, VisibleBatches, checked_batches
from moldau.client.partition_requests import FetchedBatches
from moldau.lake.python_tasks import spare_collections
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.columns import BatchRecords, RecordColumns, decode_sections
from moldau.lake.reading.offsets import ACCEPT_LOSS, DataLossError, OffsetRange
from moldau.lake.reading.options import ReadOptions
from moldau.model.errors import CorruptBatchError, ErrorCode, MoldauError, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import decompressed_records
from moldau.protocol.records.header import HEADER_SIZE

if TYPE_CHECKING:
    from moldau.lake.reading.counting import TaskCounts
    from moldau.lake.reading.event_times import BatchTimes
    from moldau.lake.reading.row_shape import RowShape

log = logging.getLogger(__name__)

_BACKOFF_S_MIN, _BACKOFF_S_MAX = 0.05, 1.0
_CORRUPT_TRIES = 3
"""A damaged batch is fetched again as often: the damage may have come on the way."""
FETCH_WAIT_MS = 500
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_GONE_S = 10.0
"""A topic that brokers have not known for so long was deleted; a new one may be unknown to some for a moment."""


class ReadError(RuntimeError):
    """The records cannot be read; the message names topic, partition and offset."""


class Fetcher(Protocol):
    """Where a read gets its bytes from."""

    def fetch(self, partition: TopicPartition, offset: int, bytes_max: int, wait_ms: int) -> FetchedBatches:
        """Batches from `offset` on, about `bytes_max` bytes, after at most `wait_ms` without any; the first may begin before `offset`,
        the last may be cut off. WorldError, PeerError."""

    def topic_id(self, topic: str) -> str:
        """Id of the topic that has this name now. WorldError, PeerError."""

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """First offset of the log, and its end. WorldError, PeerError."""


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How a range is read."""

    wanted: Container[str]
    bytes_max: int = 4 << 20
    fail_on_data_loss: bool = True
    accept_loss: str = ACCEPT_LOSS
    """The option that turns `fail_on_data_loss` off, for messages."""
    poll_timeout_s: float = 120.0
    decompressed_bytes_max: int = 256 << 20


class RangeRead:
    """The read of one range, of the topic that has `topic_id` if that is given. Iterate over it once."""

    def __init__(
        self,
        fetcher: Fetcher,
        wanted: OffsetRange,
        rules: ReadRules,
        *,
        topic_id: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._fetcher = fetcher
        self._range = wanted
        self._rules = rules
        self._monotonic = monotonic
        self._sleep = sleep
        self._partition = TopicPartition(wanted.topic, wanted.partition)
        self._position = wanted.start
        self._topic_id = topic_id
        self._backoff_s = _BACKOFF_S_MIN
        self._corrupt = 0
        self._gone = False
        self.skipped: list[OffsetRange] = []
        """Offsets of the range that are no longer in the log, and were passed over."""

    def __iter__(self) -> Iterator[RecordColumns]:
        last_progress = self._monotonic()
        while self._position < self._range.end:
            before, problem, columns, self._gone = self._position, "the broker sent no records", None, False
            try:
                columns = self._step()
            except (WorldError, PeerError) as error:
                problem = str(error)
                self._gone = isinstance(error, PeerError) and error.code in _GONE
                if isinstance(error, TruncationError):
                    self._accept_truncation(error)
                elif isinstance(error, PeerError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._skip_lost()
                else:
                    self._fail_unless_passing(error)
            if self._position > before:
                if columns is not None and len(columns):
                    yield columns
                last_progress, self._backoff_s, self._corrupt = self._monotonic(), _BACKOFF_S_MIN, 0
                continue
            waited = self._monotonic() - last_progress
            if self._gone and waited >= min(_GONE_S, self._rules.poll_timeout_s):
                self._lost("the topic was deleted", self._range.end)
                return
            if waited >= self._rules.poll_timeout_s:
                raise ReadError(f"{self._where()}: nothing came for {waited:.0f} s; last: {problem}")
            self._sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, _BACKOFF_S_MAX)

    def _step(self) -> RecordColumns | None:
        """One fetch; moves the position."""
        if self._topic_id is not None:
            self._check_topic(self._topic_id)
            if self._position == self._range.end:
                return None
        fetched = self._fetcher.fetch(self._partition, self._position, self._rules.bytes_max, FETCH_WAIT_MS)
        sections, next_position = self._sections(fetched)
        columns = decode_sections(sections, self._rules.wanted) if sections else None
        if columns is not None:
            first, last = np.searchsorted(columns.offset, [self._position, self._range.end])
            columns = columns.slice(int(first), int(last))
        self._position = next_position
        return columns

    def _sections(self, fetched: FetchedBatches) -> tuple[list[BatchRecords], int]:
        """The batches that hold records of the range, and the offset to continue from."""
        sections, next_position, decompressed = [], self._position, 0
        visible = VisibleBatches(fetched.aborted)
        try:
            for header, batch in checked_batches(self._partition, fetched, self._position):
                if visible.shows(header, batch) and header.record_count and header.base_offset < self._range.end:
                    records: bytes | memoryview = batch[HEADER_SIZE:]
                    if header.compression:
                        records = decompressed_records(batch, header, self._rules.decompressed_bytes_max)
                    decompressed += len(records)
                    appended = header.max_timestamp if header.timestamp_type_is_log_append else None
                    sections.append(BatchRecords(records, header.record_count, header.base_offset, header.base_timestamp, appended))
                next_position = min(header.last_offset + 1, self._range.end)
                if next_position == self._range.end or decompressed >= 4 * self._rules.bytes_max:
                    break
        except UnreadableBatchError:
            if next_position == self._position:  # else what came before it is good
                raise
        return sections, next_position

    def _check_topic(self, planned: str) -> None:
        """Once, before the first fetch: the same offsets of another topic under this name would be other records."""
        if self._fetcher.topic_id(self._range.topic) != planned:
            self._lost("the topic was deleted and recreated since this read was planned", self._range.end)
        self._topic_id = None

    def _skip_lost(self) -> None:
        """The log does not hold the position: fail, or continue where it does."""
        try:
            first, last = self._fetcher.bounds(self._partition)
        except (WorldError, PeerError) as error:
            self._fail_unless_passing(error)
            return
        if first <= self._position <= last:
            return  # it is there after all: the broker was not ready
        self._lost(f"the log holds [{first}, {last})", min(first, self._range.end) if self._position < first else self._range.end)

    def _accept_truncation(self, error: TruncationError) -> None:
        """Records that were read are no longer in the log: fail, or continue with those that are there in their place."""
        if self._rules.fail_on_data_loss:
            raise DataLossError(f"{error.message}; with {self._rules.accept_loss} it is read from {self._position} on") from error
        log.warning("%s; reading continues at offset %d", error.message, self._position)

    def _lost(self, problem: str, next_position: int) -> None:
        """Fail, or pass over the offsets before `next_position`."""
        if self._rules.fail_on_data_loss:
            raise DataLossError(f"{self._where()}: {problem}; with {self._rules.accept_loss} what is left would be read")
        log.warning("%s: %s; reading continues with the records that are left", self._where(), problem)
        self.skipped.append(self._range._replace(start=self._position, end=next_position))
        self._position = next_position

    def _fail_unless_passing(self, error: MoldauError) -> None:
        if isinstance(error, CorruptBatchError):
            self._corrupt += 1
            passing = self._corrupt < _CORRUPT_TRIES
        elif isinstance(error, PeerError):
            passing = error.code.retriable
        else:
            assert isinstance(error, WorldError)
            passing = error.retriable
        if not passing:
            raise ReadError(f"{self._where()}: {error}") from error

    def _where(self) -> str:
        return f"{self._partition}: offset {self._position} of [{self._range.start}, {self._range.end})"


class ManyFetcher(Fetcher, Protocol):
    """A fetcher that asks for many partitions at once."""

    def fetch_many(self, positions: Mapping[TopicPartition, int], bytes_max: int, wait_ms: int) -> Mapping[TopicPartition, FetchedBatches]:
        """As `fetch`, of all these partitions; of one that has nothing, or no room in `bytes_max`, the records are empty."""


class FirstFetches:
    """The fetcher of ranges of one topic that are read one after the other.

    Their first fetches are one, made when the first range is begun, and the topic's id that was asked for before it holds for what it
    brought. What had no room in it is fetched together again when the first of those ranges is begun. Once such a fetch fails, or brings
    nothing, each range asks alone, and meets its trouble itself.
    """

    def __init__(self, log: ManyFetcher, ranges: Sequence[OffsetRange]) -> None:
        self._log = log
        self._starts: dict[TopicPartition, int] = {}
        """Of the first range of each partition, until it is begun, in their order: where there is room for some, they are the next ones."""
        for each in ranges:
            if each.size:
                self._starts.setdefault(TopicPartition(each.topic, each.partition), each.start)
        self._together = True
        self._fetched: dict[TopicPartition, FetchedBatches] = {}
        self._id: str | None = None
        self._begun: TopicPartition | None = None

    def begin(self, wanted: OffsetRange) -> Self:
        """Record that this range is read from now on."""
        self._begun = TopicPartition(wanted.topic, wanted.partition)
        return self

    def fetch(self, partition: TopicPartition, offset: int, bytes_max: int, wait_ms: int) -> FetchedBatches:
        """Batches from `offset` on: what was fetched with those of the other ranges, or of this range alone. WorldError, PeerError."""
        start = self._starts.get(partition)
        if partition not in self._fetched and offset == start:
            self._fetch_together(bytes_max, wait_ms)
        self._starts.pop(partition, None)
        found = self._fetched.pop(partition, None)
        if found is not None and offset == start:
            return found
        return self._log.fetch(partition, offset, bytes_max, wait_ms)

    def _fetch_together(self, bytes_max: int, wait_ms: int) -> None:
        """The beginnings of all ranges that are to come and are not here yet, if they are several."""
        wanted = {where: start for where, start in self._starts.items() if where not in self._fetched}
        if not self._together or len(wanted) < 2:
            return
        self._together = False
        with suppress(MoldauError):
            found = {where: each for where, each in self._log.fetch_many(wanted, bytes_max, wait_ms).items() if each.records}
            self._fetched |= found
            self._together = bool(found)

    def topic_id(self, topic: str) -> str:
        """Id of the topic that has this name now, or had it when the range's beginning was fetched. WorldError, PeerError."""
        if self._id is None or self._begun not in self._fetched:
            self._id = self._log.topic_id(topic)
        return self._id

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """First offset of the log, and its end. WorldError, PeerError."""
        return self._log.bounds(partition)


Planned = tuple[OffsetRange, str | None]
"""A range, of the topic that had this id when the read was planned."""

_logs: dict[tuple[str, str, float, int, str | None], ClusterLog] = {}
"""Connections of this process, which Spark uses for one task after the other: a small batch of a stream would mostly connect.

Those of one topic, by its id: a connection remembers ids, and would ask for a recreated topic by its old one.
"""


def read_ranges(
    options: ReadOptions,
    shape: "RowShape",
    task: Sequence[Planned],
    times: "BatchTimes | None" = None,
    counting: "TaskCounts | None" = None,
) -> Iterator[Any]:
    """Arrow record batches of the ranges of a task, with their event times if `times` is given; `counting` counts them.

    ReadError, DataLossError, MalformedEventError.
    """
    fields = shape.fields if counting is None else (*shape.fields, *counting.fields)
    for wanted, topic_id, read in reads(options, fields, task):
        maker = shape.maker(wanted, topic_id)
        if counting is not None:
            counting.begin(wanted)
        for columns in read:
            if counting is not None:
                counting.add(wanted, columns)
            for rows in maker.batches(columns):
                if times is None:
                    yield rows
                    continue
                timed, counts = times.applied(rows)
                if counting is not None:
                    counting.add_rows(wanted, counts)
                yield timed
        maker.finish()
    if counting is not None:
        counting.write()


def reads(options: ReadOptions, fields: Iterable[str], task: Sequence[Planned]) -> Iterator[tuple[OffsetRange, str | None, RangeRead]]:
    """The reads of a task, of these fields of the records; each to be iterated over before the next."""
    rules = ReadRules(
        wanted=frozenset(fields),
        bytes_max=options.max_bytes_per_fetch,
        fail_on_data_loss=options.fail_on_data_loss,
        accept_loss=options.accept_loss,
        poll_timeout_s=options.poll_timeout_ms / 1000,
    )
    spare_collections()
    for (_, topic_id), planned in groupby(task, key=lambda each: (each[0].topic, each[1])):
        ranges = [wanted for wanted, _ in planned]
        fetcher = FirstFetches(_log(options, topic_id), ranges)
        for wanted in ranges:
            yield wanted, topic_id, RangeRead(fetcher.begin(wanted), wanted, rules, topic_id=topic_id)


def _log(options: ReadOptions, topic_id: str | None) -> ClusterLog:
    timeout_s = min(30.0, options.poll_timeout_ms / 1000)
    key = (options.bootstrap, options.client_id, timeout_s, options.isolation_level, topic_id)
    if key not in _logs:
        _logs[key] = ClusterLog(options.bootstrap, options.client_id, timeout_s, isolation_level=options.isolation_level)
    return _logs[key]
