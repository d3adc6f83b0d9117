"""What the clients of a run did and saw, kept in columns: a run of ten minutes has millions of entries.

**Words.** A *value* is the number of a send, unique in the run; it travels as the record's value. A *partition* is a small number for
a topic and partition. *Producer*, *reader* and *transaction* are numbers too, given out by the methods here. Times are seconds
since the start of the run. An operation that was begun and whose outcome is not known is UNKNOWN: it may have taken effect.

**Outcomes.** FAILED means that it certainly took no effect. A transaction that was never asked to commit counts as failed without a
report: no other client can commit it.

The methods may be called by several threads. Each one is a few appends under one lock.
"""

import threading
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf

NONE = -1
"""No offset, no transaction, no source: where a number stands in a column."""
POSITION = -1
"""In the column of a reader's values: not a record, the position was set (to NONE: it is unknown)."""
NOT_OURS = -2
"""In the column of a reader's values: a record with a value that is no number of a send."""


class Outcome(IntEnum):
    """What is known of an operation."""

    UNKNOWN = 0
    OK = 1
    FAILED = 2


@dataclass(slots=True)
class HistoryProducer:
    """One client instance that sends."""

    name: str
    idempotent: bool
    durable: bool
    """Whether it asks for acks=all: only then a broker promises to keep what it acknowledged."""
    transactional_id: str
    copies_for: str
    """The group whose records it copies exactly once; empty: none."""
    ready_at: float = inf
    """When it had its producer id: from then on those before it with the same transactional id are fenced."""
    gone_at: float = inf
    """When it was given up, with whatever it had not finished."""
    begun_at: float = -inf
    """When it was made, before anything was asked in its name; kept of transactional ones."""


@dataclass(slots=True, repr=False)
class Sends:
    """A row per value."""

    producer: "array[int]" = field(default_factory=lambda: array("H"))
    partition: "array[int]" = field(default_factory=lambda: array("H"))
    transaction: "array[int]" = field(default_factory=lambda: array("i"))
    source: "array[int]" = field(default_factory=lambda: array("q"))
    """The value of which this is a copy, or NONE."""
    outcome: "array[int]" = field(default_factory=lambda: array("b"))
    offset: "array[int]" = field(default_factory=lambda: array("q"))
    """As acknowledged; NONE where the producer did not ask (acks=0)."""
    begun: "array[float]" = field(default_factory=lambda: array("d"))
    ended: "array[float]" = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.producer)


@dataclass(slots=True)
class HistoryTransaction:
    """From begin to what its producer knows of the end."""

    producer: int
    begun: float
    commit_asked: float = inf
    ended: float = inf
    reported: Outcome = Outcome.UNKNOWN

    @property
    def outcome(self) -> Outcome:
        """What is certain from the producer's side alone."""
        return Outcome.FAILED if self.commit_asked == inf else self.reported


@dataclass(slots=True, repr=False)
class Reader:
    """One consumer instance: a row per record and per set position, and a row per poll."""

    name: str
    committed: bool
    """read_committed, or read_uncommitted."""
    group: str
    partition: "array[int]" = field(default_factory=lambda: array("H"))
    offset: "array[int]" = field(default_factory=lambda: array("q"))
    value: "array[int]" = field(default_factory=lambda: array("q"))
    epoch: "array[int]" = field(default_factory=lambda: array("i"))
    """The leader epoch of the record's batch, or NONE where the client does not give it."""
    poll: "array[int]" = field(default_factory=lambda: array("i"))
    poll_begun: "array[float]" = field(default_factory=lambda: array("d"))
    poll_ended: "array[float]" = field(default_factory=lambda: array("d"))
    poll_transaction: "array[int]" = field(default_factory=lambda: array("i"))


@dataclass(slots=True)
class OffsetCommit:
    """A group's offset of one partition: asked to be this."""

    group: str
    partition: int
    offset: int
    transaction: int
    begun: float
    ended: float = inf
    reported: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class OffsetSeen:
    """A group's offset of one partition as fetched (with require-stable); NONE: there is none."""

    group: str
    partition: int
    offset: int
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class EndSeen:
    """The end of a partition as ListOffsets returned it: of what is committed, or of everything."""

    partition: int
    offset: int
    committed: bool
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """A reader got the error that a position is out of range."""

    reader: int
    partition: int
    offset: int
    at: float


@dataclass(slots=True)
class Outage:
    """From when until when no client may expect an answer, and why."""

    begun: float
    what: str
    ended: float = inf
    cut: bool = False
    """Whether brokers do not reach one another, so that a leader that was deposed may answer for a while."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A power cut at which a partition lost what was written at `from_offset` and after; `epoch` is the last leader epoch of that log."""

    partition: int
    from_offset: int
    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class StateLoss:
    """A power cut at which a coordinator's topic lost records: of this group, or of this transactional id."""

    name: str
    is_group: bool
    at: float


@dataclass(frozen=True, slots=True)
class Eviction:
    """The broker forgot an idempotent producer to make room for another: what it sends again may be stored twice."""

    at: float


@dataclass(slots=True, repr=False)
class History:
    """The whole run. `clock` gives seconds; the first reading is the start."""

    clock: Callable[[], float] = time.monotonic
    partitions: list[str] = field(default_factory=list)
    producers: list[HistoryProducer] = field(default_factory=list)
    sends: Sends = field(default_factory=Sends)
    transactions: list[HistoryTransaction] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    offset_commits: list[OffsetCommit] = field(default_factory=list)
    offsets_seen: list[OffsetSeen] = field(default_factory=list)
    ends_seen: list[EndSeen] = field(default_factory=list)
    out_of_range: list[OutOfRange] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    state_losses: list[StateLoss] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    forward_groups: set[str] = field(default_factory=set)
    """Those whose members commit only forward of where they were assigned, so that only a member of the past commits an older offset."""
    ended: float = 0.0
    _start: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        """Seconds since the first reading."""
        at = self.clock()
        if self._start is None:
            self._start = at
        self.ended = at - self._start
        return self.ended

    # Who takes part

    def add_partition(self, name: str) -> int:
        """A partition, called `topic-number`."""
        self.partitions.append(name)
        return len(self.partitions) - 1

    def add_producer(
        self, name: str, *, idempotent: bool = True, durable: bool = True, transactional_id: str = "", copies_for: str = ""
    ) -> int:
        """A client instance that sends."""
        with self._lock:
            begun_at = self.now() if transactional_id else -inf
            self.producers.append(HistoryProducer(name, idempotent, durable, transactional_id, copies_for, begun_at=begun_at))
            return len(self.producers) - 1

    def producer_ready(self, producer: int) -> None:
        """It has its producer id and epoch."""
        self.producers[producer].ready_at = self.now()

    def producer_gone(self, producer: int) -> None:
        """It was closed, killed or forgotten."""
        self.producers[producer].gone_at = self.now()

    def add_reader(self, name: str, *, committed: bool = True, group: str = "") -> int:
        """A client instance that polls; `group`: the one it is a member of, if it is."""
        with self._lock:
            self.readers.append(Reader(name, committed, group))
            return len(self.readers) - 1

    # Sending

    def send(self, producer: int, partition: int, *, transaction: int = NONE, source: int = NONE) -> int:
        """A send begins; the value to be sent. The order of these calls is the order in which the producer gets the records."""
        sends, at = self.sends, self.now()
        with self._lock:
            sends.producer.append(producer)
            sends.partition.append(partition)
            sends.transaction.append(transaction)
            sends.source.append(source)
            sends.outcome.append(Outcome.UNKNOWN)
            sends.offset.append(NONE)
            sends.begun.append(at)
            sends.ended.append(inf)
            return len(sends) - 1

    def send_ended(self, value: int, outcome: Outcome, offset: int = NONE) -> None:
        """What the producer reported; its offset, if it is OK."""
        self.sends.ended[value] = self.now()
        self.sends.offset[value] = offset
        self.sends.outcome[value] = outcome

    def begin(self, producer: int) -> int:
        """A transaction begins."""
        with self._lock:
            self.transactions.append(HistoryTransaction(producer, self.now()))
            return len(self.transactions) - 1

    def ask_commit(self, transaction: int) -> None:
        """Its commit is about to be asked for. From now on it may be committed."""
        self.transactions[transaction].commit_asked = self.now()

    def transaction_ended(self, transaction: int, outcome: Outcome) -> None:
        """Committed (OK) or aborted (FAILED), certainly."""
        entry = self.transactions[transaction]
        entry.ended, entry.reported = self.now(), outcome

    # Polling

    def position(self, reader: int, partition: int, offset: int) -> None:
        """The reader's next record is that of `offset` or the first after it; NONE: it is unknown, or it does not read the partition."""
        self._row(self.readers[reader], partition, offset, POSITION, NONE, NONE)

    def _row(self, entry: Reader, partition: int, offset: int, value: int, epoch: int, poll: int) -> None:
        entry.partition.append(partition)
        entry.offset.append(offset)
        entry.value.append(value)
        entry.epoch.append(epoch)
        entry.poll.append(poll)

    def polled(self, reader: int, begun: float, records: Iterable[tuple[int, int, int, int]], *, transaction: int = NONE) -> None:
        """A poll that began at `begun` gave these (partition, offset, value, leader epoch); `transaction`: the one whose input they are."""
        entry, at = self.readers[reader], self.now()
        poll = len(entry.poll_begun)
        entry.poll_begun.append(begun)
        entry.poll_ended.append(at)
        entry.poll_transaction.append(transaction)
        for partition, offset, value, epoch in records:
            self._row(entry, partition, offset, value, epoch, poll)

    def told_out_of_range(self, reader: int, partition: int, offset: int) -> None:
        """The broker said that this position is out of range."""
        self.out_of_range.append(OutOfRange(reader, partition, offset, self.now()))

    # Offsets

    def commit_offset(self, group: str, partition: int, offset: int, *, transaction: int = NONE) -> int:
        """A commit of a group's offset begins; its number. One within a transaction ends with that."""
        with self._lock:
            self.offset_commits.append(OffsetCommit(group, partition, offset, transaction, self.now()))
            return len(self.offset_commits) - 1

    def offset_commit_ended(self, number: int, outcome: Outcome) -> None:
        """What the commit's caller received."""
        entry = self.offset_commits[number]
        entry.ended, entry.reported = self.now(), outcome

    def saw_offset(self, group: str, partition: int, offset: int, begun: float) -> None:
        """A fetch that began at `begun` gave this as the group's offset."""
        self.offsets_seen.append(OffsetSeen(group, partition, offset, begun, self.now()))

    def saw_end(self, partition: int, offset: int, begun: float, *, committed: bool) -> None:
        """A look-up that began at `begun` gave this as the partition's end."""
        self.ends_seen.append(EndSeen(partition, offset, committed, begun, self.now()))

    # Faults

    def outage(self, what: str, *, cut: bool = False) -> Outage:
        """A fault begins; with `cut` one that keeps brokers from one another."""
        entry = Outage(self.now(), what, cut=cut)
        self.outages.append(entry)
        return entry

    def healed(self, outage: Outage) -> None:
        """It is over: answers may be expected again."""
        outage.ended = self.now()

    def lost(self, partition: int, from_offset: int, at: float, epoch: int) -> None:
        """A power cut at `at` legally lost the records at `from_offset` and after, of leader epochs up to `epoch`.

        What was acknowledged there may be gone. Later records at these offsets carry a higher leader epoch.
        """
        self.losses.append(Loss(partition, from_offset, at, epoch))

    def lost_group(self, group: str, at: float) -> None:
        """A power cut at `at` legally lost offsets of this group."""
        self.state_losses.append(StateLoss(group, True, at))

    def lost_transactional_id(self, transactional_id: str, at: float) -> None:
        """A power cut at `at` legally lost state of this transactional id: its transactions may end otherwise than was answered."""
        self.state_losses.append(StateLoss(transactional_id, False, at))

    def evicted(self) -> None:
        """The broker forgets one of its idempotent producers before it has expired, as it has to at the bound of all of them."""
        self.evictions.append(Eviction(self.now()))
