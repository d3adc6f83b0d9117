"""What is stored of a transactional id: a value, replaced as a whole by each step once the new one is stored. Its states:

    (new id) ──> Empty ──add──> Ongoing ──commit──> PrepareCommit ──markers written──> CompleteCommit
                   │              │ ^                                                        │
                   │            add └─┘ ──abort──> PrepareAbort ──markers written──> CompleteAbort
                   │                                  ^                                      │
                   └──────── abort (version 2) ───────┴─────────── abort (version 2) ────────┤
                                                                                             │
                   Empty <────────────────── InitProducerId ─────────────────────────────────┤
                 Ongoing <───────────────────── add ─────────────────────────────────────────┘

Two more states are never stored. A transaction that is late, or whose producer is replaced by another, is in PrepareEpochFence until its
abort is stored as PrepareAbort. An id that has not been used for long is Dead until its tombstone is stored and it is forgotten.

The numbers and names are Kafka's: they stand in ``__transaction_state`` and in the answers of DescribeTransactions and ListTransactions.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Set
from enum import IntEnum
from struct import pack, unpack_from
from typing import NamedTuple

from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, drain
from moldau.protocol.varint import read_uvarint, uvarint

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
"""Stands only in markers and in decided transactions: no producer ever holds it, so there is always one more to fence with."""
LAST_EPOCH = EPOCH_MAX - 1
"""The last epoch that a producer is given."""
UNTIMED_MS = 2**31 - 1
"""The timeout of a transaction that another system decides (KIP-939); it is never aborted for being late."""

OLD_PROTOCOL = 0
"""The producer's epoch stays the same from one transaction to the next."""
EPOCH_PER_TRANSACTION = 2
"""``transaction.version`` 2: each end of a transaction raises the epoch (KIP-890)."""

_NO_TAGS = b"\0"


class TransactionState(IntEnum):
    """Where a transactional id stands. The numbers are on disk: do not change."""

    EMPTY = 0
    """A producer has been given its id and epoch; no transaction yet."""
    ONGOING = 1
    """At least one partition has been added."""
    PREPARE_COMMIT = 2
    """Decided: the markers that commit are being written."""
    PREPARE_ABORT = 3
    """Decided: the markers that abort are being written."""
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name as clients and tools know it."""
        return _LABELS[self]

    @property
    def is_decided(self) -> bool:
        """Whether the outcome stands, but not yet in every partition."""
        return self is TransactionState.PREPARE_COMMIT or self is TransactionState.PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        """Whether a transaction has ended, and none has begun since."""
        return self is TransactionState.COMPLETE_COMMIT or self is TransactionState.COMPLETE_ABORT

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction: the only states in which an id may expire, or be given to another producer at once."""
        return self is TransactionState.EMPTY or self.is_complete


_LABELS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
BY_LABEL = {label: state for state, label in _LABELS.items()}

MOVES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.ONGOING: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_EPOCH_FENCE}
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.DEAD: frozenset(),
}
"""Where each state may go. A new id begins in Empty."""


class Partitions(Collection[TopicPartition]):
    """The partitions of a transaction, a value that never changes, kept as the bytes that the topic's record has for them.

    Each partition that a producer adds has the record of its transaction written again, with all partitions. So for each topic its entry in
    that record is kept, and an addition encodes the entries of its own topics only: with 10,000 partitions it takes about a millisecond,
    where sorting and encoding all of them takes 6 to 20.

    Invariants: each of `_entries` is the topic as Kafka's `TransactionLogValue` of version 1 has it, its numbers ascending, at least one;
    `count` is how many numbers they have together.
    """

    __slots__ = ("_entries", "count")

    def __init__(self, entries: dict[str, bytes], count: int) -> None:
        """See `partitions_of`."""
        self._entries = entries
        self.count = count
        """How many they are."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[TopicPartition]:
        return (TopicPartition(topic, number) for topic, entry in self._entries.items() for number in _numbers(entry))

    def __contains__(self, partition: object) -> bool:
        return isinstance(partition, TopicPartition) and not self.missing((partition,))

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, Partitions) else NotImplemented

    def __repr__(self) -> str:
        return f"Partitions({list(self)})"

    def by_topic(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Each topic with its partitions, in the order in which the topics came."""
        return ((topic, _numbers(entry)) for topic, entry in self._entries.items())

    def missing(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that are not among them."""
        there: dict[str, frozenset[int]] = {}
        missing: list[TopicPartition] = []
        for each in wanted:
            numbers = there.get(each.topic)
            if numbers is None:
                numbers = there[each.topic] = frozenset(_numbers(self._entries.get(each.topic)))
            if each.partition not in numbers:
                missing.append(each)
        return missing

    def __or__(self, added: "Partitions") -> "Partitions":
        """These and the `added` ones; the same object if they are among these already."""
        entries, count = self._entries, self.count + added.count
        united: dict[str, bytes] = {}
        for topic, entry in added._entries.items():
            if topic not in entries:
                continue
            mine, other = _numbers(entries[topic]), _numbers(entry)
            both = {*mine, *other}
            count += len(both) - len(mine) - len(other)
            united[topic] = entries[topic] if len(both) == len(mine) else _entry(topic, both)
        if count == self.count:
            return self
        return Partitions({**entries, **added._entries, **united}, count)

    def encoded(self) -> bytes:
        """The array of topics as it is stored."""
        return uvarint(len(self._entries) + 1) + b"".join(self._entries.values())

    @property
    def encoded_bytes(self) -> int:
        """The length of the entries of all topics."""
        return sum(map(len, self._entries.values()))


NO_PARTITIONS = Partitions({}, 0)


def partitions_of(partitions: Iterable[TopicPartition]) -> Partitions:
    """All of them."""
    return drain(gathered(partitions))


def gathered(partitions: Iterable[TopicPartition]) -> Generator[Pause, None, Partitions]:
    """The same, in steps."""
    topics: dict[str, set[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, set()).add(number)
        yield None
    entries: dict[str, bytes] = {}
    for topic, numbers in topics.items():
        entries[topic] = _entry(topic, numbers)
        yield None
    return Partitions(entries, sum(map(len, topics.values())))


def _entry(topic: str, numbers: Set[int]) -> bytes:
    name = topic.encode()
    packed = pack(f">{len(numbers)}i", *sorted(numbers))
    return b"".join((uvarint(len(name) + 1), name, uvarint(len(numbers) + 1), packed, _NO_TAGS))


def _numbers(entry: bytes | None) -> tuple[int, ...]:
    if entry is None:
        return ()
    size, position = read_uvarint(entry, 0)
    count, position = read_uvarint(entry, position + size - 1)
    return unpack_from(f">{count - 1}i", entry, position)


class TransactionMetadata(NamedTuple):
    """A transactional id as it is stored. Times are in milliseconds since 1970, -1 for none.

    * `producer_id`, `epoch`: the producer that owns the id now. `epoch` is -1 while a new id has not been stored.
    * `previous_producer_id`: that of the value before this one.
    * `next_producer_id`: of a decided transaction with the last epoch, the id that its producer continues with; else -1.
    * `last_epoch`: the epoch that the same producer had before; -1 when another producer has taken over.
    * `client_version`: `EPOCH_PER_TRANSACTION` or `OLD_PROTOCOL`, of the request that led here.
    """

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    start_ms: int
    updated_ms: int
    client_version: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give to a producer."""
        return self.epoch >= LAST_EPOCH

    @property
    def is_committed(self) -> bool:
        """Whether the decision is to commit."""
        return self.state is TransactionState.PREPARE_COMMIT

    def is_late(self, now_ms: int) -> bool:
        """Whether it is a transaction that has been open for longer than its producer asked for."""
        return self.state is TransactionState.ONGOING and self.timeout_ms != UNTIMED_MS and self.start_ms + self.timeout_ms < now_ms


def new_transaction(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A transactional id that is not stored yet."""
    return TransactionMetadata(
        producer_id,
        NO_PRODUCER_ID,
        NO_PRODUCER_ID,
        NO_EPOCH,
        NO_EPOCH,
        timeout_ms,
        TransactionState.EMPTY,
        NO_PARTITIONS,
        -1,
        now_ms,
        OLD_PROTOCOL,
    )
