"""Reading the partitions of an internal topic back, in slices between which requests are served.

A slice lasts `SLICE_S`; the next comes when the clock's turn comes. What is damaged is left out with a line in the log: one batch where
the next follows it, otherwise all bytes up to where a whole batch begins again. Of a batch with a malformed record the rest is left out.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from moldau.broker.coordinators.state_log import Done, LoadedBatch
from moldau.log.batches import BadBatchError, OldFormatError, scan
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import File
from moldau.ports.probe import chance
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.control import decode_end_txn_marker
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_OFFSET, BatchHeader, verify_crc

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition, PartitionTable
    from moldau.ports.clock import Clock
    from moldau.protocol.records.record import Record

_LOG = logging.getLogger(__name__)

SLICE_S = 0.005
SEARCH_WINDOW = 1024 * 1024
_MAGIC = bytes([MAGIC])
_START = Struct(">qi")
"""Base offset and length."""

Take = Callable[[LoadedBatch], object]


class _Load:
    """A partition that is read or will be."""

    __slots__ = ("batches", "done", "take", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, take: Take, done: Done) -> None:
        self.topic_partition = topic_partition
        self.take = take
        self.done = done
        self.batches: tuple[HostedPartition, Generator[LoadedBatch | None]] | None = None
        """Once it has begun."""


class StateLoads:
    """The partitions that are read, one after the other."""

    def __init__(self, broker_id: int, partitions: "PartitionTable", clock: "Clock") -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._clock = clock
        self._line: dict[_Load, None] = {}
        """The first one is being read."""
        self._is_due = False
        """Whether the next slice has been asked for."""

    def add(self, topic_partition: TopicPartition, take: Take, done: Done) -> Callable[[], object]:
        """Read a partition after those that were added before: see :meth:`moldau.broker.coordinators.state_log.StateLog.load`.

        One without records, as of a topic that was just created, is done at once: the client that had it created need not retry.
        """
        led = self._partitions.get(topic_partition)
        if led is not None and led.log.log_end_offset == led.log.start_offset:
            done(None)
            return _nothing
        load = _Load(topic_partition, take, done)
        self._line[load] = None
        self._continue()
        return partial(self._drop, load)

    def _drop(self, load: _Load) -> None:
        """The coordinator has resigned: what is read of the partition now may be another leader's."""
        if load in self._line:
            del self._line[load]
            if load.batches is not None:
                load.batches[1].close()  # releases the file

    def _continue(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._clock.call_later(0.0, self._slice)

    def _slice(self) -> None:
        self._is_due = False
        due = self._clock.monotonic() + SLICE_S
        while self._line:
            load = next(iter(self._line))
            topic_partition = load.topic_partition
            problem: PeerError | None = None
            try:
                if self._step(load, due):
                    self._continue()
                    return
            except StorageError as error:
                problem = PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic_partition} cannot be read: {error}")
            except PeerError as error:
                problem = error
            except Exception:
                _LOG.exception("internal topic not read by a bug: partition=%s", topic_partition)
                problem = PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{topic_partition} cannot be read: a bug, see the log")
            if load not in self._line:  # dropped while it was read
                continue
            del self._line[load]
            try:
                load.done(problem)
            except Exception:
                _LOG.exception("end of a load not dealt with by a bug: partition=%s", topic_partition)

    def _step(self, load: _Load, due: float) -> bool:
        """Read until it is time to serve others; whether there is more."""
        if load.batches is None:
            found = self._partitions.get(load.topic_partition)
            if found is not None:
                load.batches = found, _batches_of(found, found.log.log_end_offset)
        if load.batches is None or not load.batches[0].is_led:
            raise PeerError(ErrorCode.NOT_COORDINATOR, f"{load.topic_partition} is not led by broker {self._broker_id}")
        for batch in load.batches[1]:
            if batch is not None:
                load.take(batch)
            if self._clock.monotonic() >= due or chance("coordinators: pauses a load"):
                return True
        return False


def _nothing() -> None:
    """For a load that is over."""


def _batches_of(partition: "HostedPartition", end_offset: int) -> Generator[LoadedBatch | None]:
    """All that can be read of a partition up to `end_offset`; None now and then while looking for where damage ends. StorageError."""
    log = partition.log
    offset = log.start_offset
    while offset < end_offset:
        stretch, after = log.stretch(offset)
        try:
            for found in _sound(str(partition.topic_partition), stretch.file, stretch.length, range(offset, log.log_end_offset)):
                if found is None:
                    yield None
                elif found[0].base_offset >= end_offset:
                    return
                elif found[0].last_offset >= offset:
                    loaded = _loaded(partition, *found)
                    if loaded is not None:
                        yield loaded
        finally:
            stretch.release()
        offset = after


def _sound(name: str, file: File, end: int, offsets: range) -> Iterator[tuple[BatchHeader, memoryview] | None]:
    """The batches of a file that are whole, with a line in the log for what is not. None now and then while looking for a batch.

    `offsets`: those that are looked for. Batches may come before them; one after them is damaged, for its checksum leaves its offset out.
    """
    position = due = 0
    while position < end:
        try:
            for span, header, data in scan(file, position, end, due):
                if span.base_offset >= offsets.stop:
                    raise BadBatchError(file.path, position, due, f"base offset {span.base_offset}, but the log ends at {offsets.stop}")
                position, due = span.position + span.size, span.last_offset + 1
                yield header, data
        except (BadBatchError, OldFormatError) as error:
            start = position
            for found in _search(file, start + 1, end, range(due, offsets.stop)):
                if found is None:
                    yield None
                else:
                    position = found
            _LOG.error(
                "damaged bytes of an internal topic left out: partition=%s offset=%d bytes=%d reason=%s",
                name,
                max(due, offsets.start),
                position - start,
                error,
            )


def _search(file: File, position: int, end: int, offsets: range) -> Iterator[int | None]:
    """Where the next whole batch begins, or `end`: the last that is given. None before that, now and then.

    `offsets`: those that it may begin with. Cost: a quarter of a microsecond for each byte that could be its magic.
    """
    while position < end:
        window = file.pread(SEARCH_WINDOW, position)
        at = window.find(_MAGIC, MAGIC_OFFSET)
        while at >= 0:
            base_offset, length = _START.unpack_from(window, at - MAGIC_OFFSET)
            start = position + at - MAGIC_OFFSET
            if base_offset in offsets and 0 < length <= end - start - LOG_OVERHEAD:
                data = file.pread(length + LOG_OVERHEAD, start)
                if len(data) >= HEADER_SIZE and verify_crc(data):
                    yield start
                    return
            at = window.find(_MAGIC, at + 1)
        if len(window) <= MAGIC_OFFSET:
            break
        position += len(window) - MAGIC_OFFSET
        yield None
    yield end


def _loaded(partition: "HostedPartition", header: BatchHeader, data: memoryview) -> LoadedBatch | None:
    records: list[Record] = []
    marker = None
    try:
        for record in iterate(data, max_decompressed_bytes=partition.rules.decompressed_bytes_max, with_headers=False):
            records.append(record)  # noqa: PERF402 - what was read before a malformed one is kept
        if header.is_control:
            marker = decode_end_txn_marker(records[0]) if records else None
            if marker is None:
                return None
    except PeerError as error:
        _LOG.error(
            "damaged record of an internal topic left out: partition=%s offset=%d records_read=%d reason=%s",
            partition.topic_partition,
            header.base_offset + (0 if header.is_control else len(records)),
            len(records),
            error.message,
        )
        if header.is_control:
            return None
    producer_id = header.producer_id if header.is_transactional else -1
    return LoadedBatch(header.base_offset, producer_id, header.producer_epoch, marker, () if marker is not None else records)
