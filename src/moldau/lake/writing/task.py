"""One task's write: Arrow batches in, records in the log, all of them or an error.

A transactional task begins its transaction with its first row and does not end it: that is for the driver, when all tasks are done. A task
that fails aborts what it has; one that dies leaves it to the driver, or at last to the brokers.
"""

import contextlib
import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from moldau.client.cluster import Cluster
from moldau.client.errors import failure
from moldau.client.partitioning import partition_of
from moldau.lake.writing.decisions import TaskTransaction, WrittenRange
from moldau.lake.writing.encoding import FrameLayout, TopicRows, batch_ends, batch_of, encode, pieces, size_estimates
from moldau.lake.writing.options import WriteOptions
from moldau.lake.writing.points import reached
from moldau.lake.writing.producing import ACKS_ALL, BatchSender, DeliveryError, PartitionBatch
from moldau.lake.writing.transactions import ProducerIdentity, TransactionRequests, is_fenced
from moldau.model.errors import ErrorCode, MoldauError, WorldError
from moldau.model.identity import TopicPartition

_READERS_TIME_MS = 30_000
"""So long a read tries to reach a broker before its tasks start."""


def check_brokers(options: WriteOptions) -> None:
    """One of the brokers answers, within the time that a read gives them or the time for deliveries, if that is less. WorldError."""
    timeout_s = min(_READERS_TIME_MS, options.delivery_timeout_ms) / 1000
    with Cluster(options.bootstrap, client_id=options.client_id, timeout_s=timeout_s) as cluster:
        cluster.metadata([])


def partition_count(cluster: Cluster, topic: str) -> int:
    """Partitions of a topic, which the brokers make if they are set to. RequestFailedError if there is none; WorldError."""
    retry = cluster.retry()
    while True:
        found = cluster.metadata([topic], create_missing=True).topics.get(topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        if found is not None and not code:
            return len(found.partitions)
        retry.pause(failure(code, f"topic {topic}"))


Int64s = NDArray[np.int64]

_MULTIPLIER, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_KEY_BYTES_MAX = 256
"""Longer keys are hashed one by one."""
ROWS_IN_TURN = 1000
"""So many rows without a key go to one partition before the next has its turn: few large batches, not many small ones."""


def in_turn(first_row: int, count: int, start: int, partitions: int) -> Int64s:
    """Partitions of rows without keys, of which the first is the `first_row`-th of its task; a task begins with partition `start`."""
    turn: Int64s = (start + (first_row + np.arange(count)) // ROWS_IN_TURN) % partitions
    return turn


def by_key(keys: Any, partitions: int) -> Int64s:
    """Partitions of keys by the rule that all Kafka clients agree on; of a null, anything."""
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    start, length = bounds[:-1], np.diff(bounds)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    small = np.where(length <= _KEY_BYTES_MAX, length, 0)
    found: Int64s = (_murmur2(content, start, small) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
    for row in np.flatnonzero(length > _KEY_BYTES_MAX):
        found[row] = partition_of(content[bounds[row] : bounds[row + 1]].tobytes(), partitions)
    return found


def _murmur2(data: NDArray[np.uint8], start: Int64s, length: Int64s) -> NDArray[np.uint32]:
    """`moldau.client.partitioning.murmur2` of many keys."""
    state = _SEED ^ length.astype(np.uint32)
    whole = length >> 2
    for word in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > word)
        at = start[rows] + 4 * word
        part = _little_endian(data, at, 4) * _MULTIPLIER
        part = (part ^ part >> np.uint32(24)) * _MULTIPLIER
        state[rows] = state[rows] * _MULTIPLIER ^ part
    for left in (1, 2, 3):
        rows = np.flatnonzero(length & 3 == left)
        state[rows] = (state[rows] ^ _little_endian(data, start[rows] + 4 * whole[rows], left)) * _MULTIPLIER
    state = (state ^ state >> np.uint32(13)) * _MULTIPLIER
    result: NDArray[np.uint32] = state ^ state >> np.uint32(15)
    return result


def _little_endian(data: NDArray[np.uint8], at: Int64s, count: int) -> NDArray[np.uint32]:
    number = np.zeros(len(at), np.uint32)
    for byte in range(count):
        number |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return number


def given(column: Any, otherwise: Int64s) -> Int64s:
    """The partitions in `column`, and those of `otherwise` where it has null."""
    numbers: Int64s = column.fill_null(-1).cast(pa.int64()).to_numpy(zero_copy_only=False)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, otherwise, numbers)


_SEQUENCES = 1 << 31
_PIECE_BYTES = 64 << 20


class TaskResult(NamedTuple):
    """What a task wrote; its transaction, if it has one and wrote anything."""

    rows: int
    transaction: TaskTransaction | None


class TaskFencedError(MoldauError):
    """The task's transaction was ended by another producer or the brokers while it wrote."""


class TaskWriter:
    """Writes rows, with `transactional_id` in a transaction. DeliveryError, RowError, TaskFencedError; WorldError, PeerError."""

    def __init__(self, options: WriteOptions, layout: FrameLayout, transactional_id: str | None = None, *, seed: int | None = None) -> None:
        self._options = options
        self._layout = layout
        self._transactional_id = transactional_id
        timeout_s = options.delivery_timeout_ms / 1000
        self._cluster = Cluster(options.bootstrap, client_id=options.client_id, timeout_s=timeout_s)
        self._producing = BatchSender(
            options.bootstrap,
            client_id=options.client_id,
            timeout_s=timeout_s,
            request_timeout_ms=options.request_timeout_ms,
            acks=options.acks,
        )
        self._transactions = TransactionRequests(self._cluster)
        self._owner: ProducerIdentity | None = None
        self._start = random.Random(seed).randrange(1 << 16)
        self._counts: dict[str, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, tuple[int, int]] = {}
        self._rows = 0

    def write(self, batches: Iterable[Any]) -> TaskResult:
        """Write Arrow record batches to the last row. Where that fails, what was begun is aborted, unless the brokers do not answer."""
        try:
            for batch in batches:
                for piece in pieces(batch, _PIECE_BYTES):
                    self._begin()
                    for sending in self._sendings(self._layout.columns(piece, self._rows)):
                        self._send(sending)
                    self._rows += piece.num_rows
            self._collect()
        except BaseException as error:
            cause = error.cause if isinstance(error, DeliveryError) else error
            if not isinstance(cause, WorldError):
                self._abort()
            if self._transactional_id is not None and is_fenced(cause):
                raise self._fenced(error) from error
            raise
        if self._owner is not None:
            reached("task written")
        return TaskResult(self._rows, self._transaction())

    def _begin(self) -> None:
        if self._owner is None and self._options.acks == ACKS_ALL:
            how = self._options.transactions
            self._owner = self._transactions.take_over(self._transactional_id, 0 if how is None else how.timeout_ms)
            reached("task begun")

    def _sendings(self, columns: Iterable[TopicRows]) -> Iterator[dict[TopicPartition, PartitionBatch]]:
        """Batches that can be sent together: one for each partition."""
        for each in columns:
            waiting = self._batches(each)
            while waiting:
                sending: dict[TopicPartition, PartitionBatch] = {}
                later: list[tuple[TopicPartition, PartitionBatch]] = []
                for where, batch in waiting:
                    if where in sending:
                        later.append((where, batch))
                    else:
                        sending[where] = batch
                yield sending
                waiting = later

    def _batches(self, columns: TopicRows) -> list[tuple[TopicPartition, PartitionBatch]]:
        """The rows of one topic as batches, those of a partition in the order of the rows."""
        partitions = self._partitions(columns)
        rows, numbers = columns.rows, columns.numbers
        if (partitions != partitions[0]).any():
            order = np.argsort(partitions, kind="stable")
            partitions, rows, numbers = partitions[order], rows.taken(order), numbers[order]
        sizes = size_estimates(rows)
        bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
        pieces = []
        for start, end in pairwise(bounds):
            cuts = [start, *(start + cut for cut in batch_ends(sizes[start:end], self._options.batch_bytes))]
            pieces += list(pairwise(cuts))
        deltas = np.arange(len(partitions)) - np.repeat([start for start, _ in pieces], [end - start for start, end in pieces])
        records = encode(rows, deltas)
        made = []
        for start, end in pieces:
            where = TopicPartition(columns.topic, int(partitions[start]))
            sequence = self._sequences.get(where, 0)
            self._sequences[where] = (sequence + end - start) % _SEQUENCES
            data = batch_of(records.payload(start, end), end - start, self._owner, sequence, self._options.compression)
            made.append((where, PartitionBatch(data, numbers[start:end].tolist())))
        return made

    def _partitions(self, columns: TopicRows) -> Any:
        count = self._counts.get(columns.topic)
        if count is None:
            count = self._counts[columns.topic] = partition_count(self._cluster, columns.topic)
        chosen = in_turn(int(columns.numbers[0]), len(columns.numbers), self._start, count)
        key = columns.rows.key
        if key is not None and key.null_count < len(key):
            hashed = by_key(key, count)
            chosen = np.where(key.is_null().to_numpy(zero_copy_only=False), chosen, hashed) if key.null_count else hashed
        if columns.partition is None:
            return chosen
        wanted = given(columns.partition, chosen)
        self._layout.check_partitions(wanted, columns, count)
        return wanted

    def _send(self, sending: dict[TopicPartition, PartitionBatch]) -> None:
        self._collect()
        new = sending.keys() - self._written.keys()
        if new and self._transactional_id is not None:
            assert self._owner is not None
            self._transactions.add(self._owner, new)
        self._producing.send(sending, self._transactional_id)
        for where, batch in sending.items():
            rows, first = self._written.get(where, (0, -1))
            self._written[where] = rows + len(batch.rows), first
        reached("task sent")

    def _collect(self) -> None:
        for where, offset in self._producing.wait().items():
            rows, first = self._written[where]
            self._written[where] = rows, offset if first < 0 else first

    def _transaction(self) -> TaskTransaction | None:
        if self._owner is None or self._transactional_id is None:
            return None
        return TaskTransaction(
            self._owner, tuple(WrittenRange(*where, rows, first) for where, (rows, first) in sorted(self._written.items()))
        )

    def _abort(self) -> None:
        """End what is open; should that fail too, the driver or the brokers do it."""
        if self._owner is not None and self._transactional_id is not None:
            with contextlib.suppress(MoldauError):
                self._transactions.end(self._owner, committed=False)

    def _fenced(self, error: BaseException) -> TaskFencedError:
        assert self._options.transactions is not None
        return TaskFencedError(
            f"transaction of {self._transactional_id} was ended while the task wrote: it took longer than transactionTimeout, "
            f"{self._options.transactions.timeout_ms} ms, or another query has this name ({error})"
        )

    def close(self) -> None:
        """Close the connections."""
        self._producing.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
