"""Decisions of a driver, written before it ends the transactions of its tasks, and the compacted topic that holds them.

The key is the query's name, so compaction keeps the last record of each query; the value is JSON with sorted names, version 1::

    {"batch": 7, "query": "flights", "run": "0c4e...", "state": "decided", "time_ms": 1357000000000, "version": 1,
     "transactions": [{"epoch": 3, "id": "moldau-spark-flights-0-0", "producer_id": 12,
                       "written": [["departures", 0, 500, 1000]]}]}

``written`` has topic, partition, rows and the offset of the first of them, to find out what is missing. ``run`` is Spark's
id of the query, which lives in its checkpoint: with a new checkpoint the numbers of batches begin again from 0.

A decision is written under the driver's own transactional id. So a driver that another one has replaced can no longer decide, and
what it has half written is committed or aborted before the new driver reads.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, Self

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.client.fetched_batches import VisibleBatches, checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchLimits
from moldau.lake.writing.producing import BatchSender, DeliveryError, PartitionBatch
from moldau.lake.writing.transactions import ProducerIdentity, TransactionRequests
from moldau.model.errors import ErrorCode, MoldauError, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import RecordBatchBuilder, iterate
from moldau.protocol.records.compression import Compression

DECISIONS_TOPIC = "_spark_commits"
_VERSION = 1
_TASK_PREFIX, _DRIVER_PREFIX = "moldau-spark-", "moldau-spark:"


class DecisionError(MoldauError):
    """A record of the decisions' topic that cannot be read."""


class DecisionState(Enum):
    """How far a decision has been carried out."""

    DECIDED = "decided"
    """To be committed, come what may; perhaps some of it is."""
    DONE = "done"
    """All of it is committed."""


class WrittenRange(NamedTuple):
    """What a task has in one partition: so many rows, from an offset on."""

    topic: str
    partition: int
    rows: int
    first_offset: int

    def __str__(self) -> str:
        return f"{self.rows} rows in {self.topic}-{self.partition} from offset {self.first_offset} on"


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction of one task, all written and not ended."""

    owner: ProducerIdentity
    written: tuple[WrittenRange, ...]

    def __str__(self) -> str:
        return f"{self.owner}: {', '.join(map(str, self.written))}"

    def to_json(self) -> dict[str, Any]:
        """As it stands in a decision."""
        owner = self.owner
        return {"id": owner.transactional_id, "producer_id": owner.producer_id, "epoch": owner.epoch, "written": self.written}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """KeyError, TypeError."""
        owner = ProducerIdentity(fields["id"], fields["producer_id"], fields["epoch"])
        return cls(owner, tuple(WrittenRange(*where) for where in fields["written"]))


@dataclass(frozen=True, slots=True)
class Decision:
    """One batch of one query is to be seen, whole."""

    query: str
    run: str
    batch: int
    state: DecisionState
    transactions: tuple[TaskTransaction, ...]
    time_ms: int

    @property
    def done(self) -> "Decision":
        """The same, carried out; its transactions are no longer used."""
        return replace(self, state=DecisionState.DONE, transactions=())

    def covers(self, run: str, batch: int) -> bool:
        """Whether that batch has been decided, so that it is not to be written again."""
        return self.run == run and batch <= self.batch

    def to_bytes(self) -> bytes:
        """The value of the record."""
        transactions = [each.to_json() for each in self.transactions]
        fields = {
            "version": _VERSION, "query": self.query, "run": self.run, "batch": self.batch, "state": self.state.value,
            "transactions": transactions, "time_ms": self.time_ms,
        }  # fmt: skip
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "Decision":
        """Read a record's value. DecisionError."""
        try:
            fields = json.loads(value)
            if fields["version"] != _VERSION:
                raise DecisionError(f"a decision of version {fields['version']}; version {_VERSION} is read here")
            transactions = tuple(map(TaskTransaction.from_json, fields["transactions"]))
            state = DecisionState(fields["state"])
            return cls(fields["query"], fields["run"], fields["batch"], state, transactions, fields["time_ms"])
        except (ValueError, KeyError, TypeError) as error:
            raise DecisionError(f"a decision that cannot be read ({error!r}): {value[:200]!r}") from error


def driver_id(query: str) -> str:
    """The transactional id under which a query's decisions are written; who takes it over is the query's driver from then on."""
    return _DRIVER_PREFIX + query


def task_id(query: str, task: int, attempt: int) -> str:
    """The transactional id of one attempt of a task. Attempts do not fence each other: two may be done, and Spark names the one that
    counts."""
    return f"{_TASK_PREFIX}{query}-{task}-{attempt}"


def ids_of(query: str, transactional_ids: Iterable[str]) -> list[str]:
    """Those of `transactional_ids` that tasks of this query have."""
    found = []
    for each in transactional_ids:
        name, *numbers = each.rsplit("-", 2)
        if name == _TASK_PREFIX + query and len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            found.append(each)
    return found


TIMEOUT_MS = 10_000
"""How long a decision's own transaction may stay open: it holds back the readers of other queries' decisions."""
_STABLE_WAIT_S = 60.0
_PAUSE_S = 0.05
_FIRST_LOOK = 64
_GROWTH = 8
_VALUE_BYTES_MAX = 64 << 20
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "max.message.bytes": str(16 << 20)}


class DecisionLog:
    """The decisions of one query in `topic`. WorldError, PeerError."""

    def __init__(
        self,
        cluster: Cluster,
        producing: BatchSender,
        topic: str,
        query: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._producing = producing
        self._transactions = TransactionRequests(cluster)
        self._where = TopicPartition(topic, 0)
        self._key = query.encode()
        self._monotonic, self._sleep = monotonic, sleep
        self._sequence = 0

    def ensure(self) -> None:
        """Make the topic if there is none: compacted, one partition, as many replicas as the brokers make by default."""
        try:
            self._cluster.topic(self._where.topic)
        except RequestFailedError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            try:
                Admin(self._cluster).create_topic(self._where.topic, 1, configs=_CONFIGS)
            except RequestFailedError as second:
                if second.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def last(self) -> Decision | None:
        """The query's last decision. DecisionError. WorldError if transactions of other queries' drivers stay open too long."""
        start, end = self._bounds()
        count = _FIRST_LOOK
        while end > start:
            begin = max(start, end - count)
            value = self._last_value(begin, end)
            if value is not None:
                return Decision.from_bytes(value) if value else None
            if begin == start:
                return None
            count *= _GROWTH
        return None

    def write(self, owner: ProducerIdentity, decision: Decision, *, forget: bool = False) -> None:
        """Write it as `owner`, who is the driver; `forget`: a tombstone in its place. It counts once this has returned.

        RequestFailedError: another driver took over, and nothing is written. ConnectionLostError: unknown; the next driver finds out.
        """
        builder = RecordBatchBuilder(
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
            base_sequence=self._sequence,
            transactional=True,
            compression=Compression.NONE if forget else Compression.GZIP,
        )
        builder.append(decision.time_ms, self._key, None if forget else decision.to_bytes())
        self._transactions.add(owner, [self._where])
        try:
            self._producing.send({self._where: PartitionBatch(builder.build(), range(1))}, owner.transactional_id)
            self._producing.wait()
        except DeliveryError as error:
            raise error.cause from error
        self._sequence += 1
        self._transactions.end(owner, committed=True)

    def _bounds(self) -> tuple[int, int]:
        """First offset, and the present end, once all that lies before it is decided: a later decision of ours may lie after what is
        still open of another query."""
        end = self._cluster.list_offsets({self._where: LATEST})[self._where].offset
        deadline = self._monotonic() + _STABLE_WAIT_S
        while self._cluster.list_offsets({self._where: LATEST}, isolation_level=READ_COMMITTED)[self._where].offset < end:
            self._pause(deadline, f"a transaction before offset {end} is not ended")
        return self._cluster.list_offsets({self._where: EARLIEST})[self._where].offset, end

    def _last_value(self, begin: int, end: int) -> bytes | None:
        """The last value under our key from `begin` to before `end`; empty for a tombstone, None without any."""
        found: bytes | None = None
        limits = FetchLimits(isolation_level=READ_COMMITTED, partition_max_bytes=_VALUE_BYTES_MAX, max_bytes=_VALUE_BYTES_MAX)
        offset, deadline = begin, self._monotonic() + _STABLE_WAIT_S
        while offset < end:
            fetched = self._cluster.fetch(self._where.topic, self._where.partition, offset, limits)
            visible, after = VisibleBatches(fetched.aborted), offset
            for header, batch in checked_batches(self._where, fetched, offset):
                after = header.last_offset + 1
                if not visible.shows(header, batch):
                    continue
                for record in iterate(batch, max_decompressed_bytes=_VALUE_BYTES_MAX, with_headers=False):
                    if record.key == self._key and begin <= record.offset < end:
                        found = record.value or b""
            if after > offset:
                offset = after
            elif fetched.last_stable_offset >= end:  # compaction left nothing up to the end
                break
            else:  # a new leader does not know yet that all of it is committed; a decision that it hides now must not be missed
                self._pause(deadline, f"its leader shows nothing from offset {offset} to {end}")
        return found

    def _pause(self, deadline: float, problem: str) -> None:
        if self._monotonic() > deadline:
            raise WorldError(f"partition {self._where}: {problem}", retriable=True)
        self._sleep(_PAUSE_S)
