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

from moldau.client.cluster import Cluster
from moldau.lake.writing.columns import Given, Layout, pieces
from moldau.lake.writing.decisions import TaskTransaction, Written
from moldau.lake.writing.encoding import batch_ends, batch_of, encode, size_estimates
from moldau.lake.writing.options import WriteOptions
from moldau.lake.writing.partitions import by_key, given, in_turn
from moldau.lake.writing.points import reached
from moldau.lake.writing.producing import ACKS_ALL, Batch, DeliveryError, Producing
from moldau.lake.writing.topics import partition_count
from moldau.lake.writing.transactions import Owner, Transactions, is_fenced
from moldau.model.errors import MoldauError, WorldError
from moldau.model.identity import TopicPartition

_SEQUENCES = 1 << 31
_PIECE_BYTES = 64 << 20


class TaskResult(NamedTuple):
    """What a task wrote; its transaction, if it has one and wrote anything."""

    rows: int
    transaction: TaskTransaction | None


class TaskFencedError(MoldauError):
    """The task's transaction was ended by somebody else while it wrote."""


class TaskWriter:
    """Writes rows, with `transactional_id` in a transaction. DeliveryError, RowError, TaskFencedError; WorldError, PeerError."""

    def __init__(self, options: WriteOptions, layout: Layout, transactional_id: str | None = None, *, seed: int | None = None) -> None:
        self._options = options
        self._layout = layout
        self._transactional_id = transactional_id
        timeout_s = options.delivery_timeout_ms / 1000
        self._cluster = Cluster(options.bootstrap, client_id=options.client_id, timeout_s=timeout_s)
        self._producing = Producing(
            options.bootstrap,
            client_id=options.client_id,
            timeout_s=timeout_s,
            request_timeout_ms=options.request_timeout_ms,
            acks=options.acks,
        )
        self._transactions = Transactions(self._cluster)
        self._owner: Owner | None = None
        self._start = random.Random(seed).randrange(1 << 16)
        self._counts: dict[str, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, tuple[int, int]] = {}
        self._rows = 0

    def write(self, batches: Iterable[Any]) -> TaskResult:
        """Write Arrow record batches to the last row. Where that fails, what was begun is aborted, unless the brokers are away."""
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

    def _sendings(self, columns: Iterable[Given]) -> Iterator[dict[TopicPartition, Batch]]:
        """Batches that can be sent together: one for each partition."""
        for each in columns:
            waiting = self._batches(each)
            while waiting:
                sending: dict[TopicPartition, Batch] = {}
                later: list[tuple[TopicPartition, Batch]] = []
                for where, batch in waiting:
                    if where in sending:
                        later.append((where, batch))
                    else:
                        sending[where] = batch
                yield sending
                waiting = later

    def _batches(self, columns: Given) -> list[tuple[TopicPartition, Batch]]:
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
            made.append((where, Batch(data, numbers[start:end].tolist())))
        return made

    def _partitions(self, columns: Given) -> Any:
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

    def _send(self, sending: dict[TopicPartition, Batch]) -> None:
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
        return TaskTransaction(self._owner, tuple(Written(*where, rows, first) for where, (rows, first) in sorted(self._written.items())))

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
