"""How far a group has read: committed offsets, and those that wait for their transaction to end.

Rules, as in Kafka: of a plain commit and one by a transaction the later in the log wins, whenever the transaction ends; a tombstone also
takes the offsets that wait; a commit for a topic that was deleted and created again since (another topic id) does not count.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from sys import getsizeof
from typing import NamedTuple

from moldau.broker.admission.state import Account, Budget
from moldau.model.steps import UNFINISHED, Steps

NO_TOPIC_ID = bytes(16)
NOT_SET = -1

OFFSET_COST = 270
"""Bytes that an offset takes beside its metadata."""
TOPIC_COST = 200
"""Bytes that the first offset of a topic takes beside itself."""
PENDING_COST = 420
"""Bytes that an offset which waits for a transaction takes beside its metadata."""
TRANSACTION_COST = 600
"""Bytes that a transaction takes beside its offsets."""
OFFSETS_PER_STEP = 100
"""Offsets of a transaction that is ended which count before other work runs: each takes about 0.5 us."""
INDEXED_PER_STEP = 1000
"""Places of a transaction that has ended which leave the index before other work runs: each takes about 0.1 us."""


class Commit(NamedTuple):
    """An offset that is to be committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes


class CommittedOffset(NamedTuple):
    """The offset to read next, and what was said with it."""

    offset: int
    leader_epoch: int
    """-1 where the client did not say it."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1 unless a client of an old version asked for a time of its own."""
    topic_id: bytes
    """Zero where an older broker wrote it."""
    order: int
    """Position among the commits of the offsets topic's partition: the later one has the larger."""


class GroupOffsets:
    """The offsets of one group.

    Invariants: no topic without an offset, no transaction without a pending one; `account` has what all of them take. While a transaction
    is being ended, its offsets are pending until the last of them counts, so that no reader of stable offsets sees a part of them.
    Every place in `pending` is in `_transactions_of` with its transaction.
    """

    __slots__ = ("_transactions_of", "account", "committed", "pending")

    def __init__(self, account: Account | None = None) -> None:
        self.account = Account(Budget.unlimited()) if account is None else account
        self.committed: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: dict[int, dict[tuple[str, int], CommittedOffset | None]] = {}
        """By transaction, a number; None for an offset that counts already, or is gone, while the transaction is being ended."""
        self._transactions_of: dict[tuple[str, int], int | dict[int, None]] | None = None
        """By place, the transaction that has a pending offset there, or all of them if they are several. A transaction that has ended
        leaves the index in steps, so only one that is in `pending` counts. None while it would be empty: most groups have none.
        """

    def __len__(self) -> int:
        return sum(map(len, self.committed.values()))

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an offset nor one that waits."""
        return not self.committed and not self.pending

    def growth(self, commits: Iterable[Commit], transaction: int | None = None) -> int:
        """Bytes that these would add, with a `transaction` when it commits them.

        The offsets of a group's only transaction replace those that are committed, so they count as much more as they are longer: a group
        that continues unchanged needs no room.
        """
        growth = 0
        waiting = {} if transaction is None else self.pending.get(transaction, {})
        is_only = transaction is None or len(self.pending) == (transaction in self.pending)
        nothing: dict[int, CommittedOffset] = {}
        for topic, partition, _, _, metadata, _ in commits:
            present = waiting.get((topic, partition)) if waiting else None
            if present is None and is_only:
                present = self.committed.get(topic, nothing).get(partition)
            if present is None:
                growth += text_size(metadata)
                if transaction is None:
                    growth += OFFSET_COST + (0 if topic in self.committed else TOPIC_COST)
                else:
                    growth += PENDING_COST + TRANSACTION_COST
            elif present.metadata != metadata:
                growth += text_size(metadata) - text_size(present.metadata)
        return growth

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Commit."""
        partitions = self.committed.get(topic)
        if partitions is None:
            partitions = self.committed[topic] = {}
            self.account.add(TOPIC_COST)
        present = partitions.get(partition)
        partitions[partition] = committed
        if present is None:
            self.account.add(OFFSET_COST + text_size(committed.metadata))
        elif present.metadata != committed.metadata:
            self.account.add(text_size(committed.metadata) - text_size(present.metadata))

    def put_all(self, offsets: Iterable[tuple[str, int, CommittedOffset]]) -> None:
        """The same for many, each with topic and partition."""
        growth, last_topic = 0, None
        partitions: dict[int, CommittedOffset] = {}
        for topic, partition, committed in offsets:
            if topic != last_topic:
                last_topic, partitions = topic, self.committed.setdefault(topic, {})
                growth += 0 if partitions else TOPIC_COST
            present = partitions.get(partition)
            partitions[partition] = committed
            if present is None:
                growth += OFFSET_COST + text_size(committed.metadata)
            elif present.metadata != committed.metadata:
                growth += text_size(committed.metadata) - text_size(present.metadata)
        self.account.add(growth)

    def put_pending(self, transaction: int, offsets: Iterable[tuple[str, int, CommittedOffset]]) -> None:
        """Commit when the transaction does, which is not being ended."""
        waiting = self.pending.setdefault(transaction, {})
        growth = 0 if waiting else TRANSACTION_COST
        for topic, partition, committed in offsets:
            place = topic, partition
            present = waiting.get(place)
            if present is None:
                self._index(place, transaction)
            waiting[place] = committed
            growth += text_size(committed.metadata) + (PENDING_COST if present is None else -text_size(present.metadata))
        self.account.add(growth)

    def remove(self, topic: str, partition: int) -> None:
        """Forget an offset, and those that wait to take its place."""
        partitions = self.committed.get(topic)
        if partitions is not None:
            gone = partitions.pop(partition, None)
            if gone is not None:
                self.account.add(-OFFSET_COST - text_size(gone.metadata))
            if not partitions:
                del self.committed[topic]
                self.account.add(-TOPIC_COST)
        place = topic, partition
        transactions = self._transactions_at(place)
        self._drop_from_index(place)
        for transaction in transactions:
            waiting = self.pending.get(transaction)
            if waiting is None:
                continue
            pending = waiting.pop(place, None)
            if pending is not None:
                self.account.add(-PENDING_COST - text_size(pending.metadata))
            if not waiting:
                self._forget(transaction)

    def end_transaction(self, transaction: int, *, committed: bool) -> Steps:
        """The transaction has ended: in steps its offsets count, unless a later commit is there, or go."""
        waiting = self.pending.get(transaction, {})
        for number, place in enumerate(list(waiting), 1):
            offset = waiting.get(place)
            if offset is not None:
                waiting[place] = None
                self.account.add(-PENDING_COST - text_size(offset.metadata))
                if committed:
                    self._put_unless_later(*place, offset)
            if number % OFFSETS_PER_STEP == 0:
                yield UNFINISHED
        self._forget(transaction)
        for number, place in enumerate(waiting, 1):
            self._leave_index(place, transaction)
            if number % INDEXED_PER_STEP == 0:
                yield UNFINISHED

    def _put_unless_later(self, topic: str, partition: int, offset: CommittedOffset) -> None:
        present = self.committed.get(topic, {}).get(partition)
        if present is None or offset.order > present.order:
            self.put(topic, partition, offset)

    def _forget(self, transaction: int) -> None:
        if self.pending.pop(transaction, None) is not None:
            self.account.add(-TRANSACTION_COST)

    def _transactions_at(self, place: tuple[str, int]) -> Collection[int]:
        found = None if self._transactions_of is None else self._transactions_of.get(place)
        if found is None:
            return ()
        return found if isinstance(found, dict) else (found,)

    def _index(self, place: tuple[str, int], transaction: int) -> None:
        index = self._transactions_of
        if index is None:
            index = self._transactions_of = {}
        present = index.get(place)
        if present is None:
            index[place] = transaction
        elif isinstance(present, dict):
            present[transaction] = None
        elif present != transaction:
            index[place] = {present: None, transaction: None}

    def _leave_index(self, place: tuple[str, int], transaction: int) -> None:
        index = self._transactions_of
        present = None if index is None else index.get(place)
        if present == transaction:
            self._drop_from_index(place)
        elif index is not None and isinstance(present, dict):
            present.pop(transaction, None)
            if len(present) == 1:
                (index[place],) = present

    def _drop_from_index(self, place: tuple[str, int]) -> None:
        if self._transactions_of is not None:
            self._transactions_of.pop(place, None)
            if not self._transactions_of:
                self._transactions_of = None

    def get(self, topic: str, partition: int, topic_id: bytes = NO_TOPIC_ID) -> CommittedOffset | None:
        """What is committed; None for nothing, and for an offset in another topic of that name than the one with `topic_id`."""
        partitions = self.committed.get(topic)
        found = None if partitions is None else partitions.get(partition)
        return None if found is None or is_other_topic(found.topic_id, topic_id) else found

    def is_of(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Whether the offset, or one that waits to take its place, was committed for the topic with this id."""
        place = topic, partition
        committed = self.committed.get(topic, {}).get(partition)
        waiting = (self.pending.get(transaction, {}).get(place) for transaction in self._transactions_at(place))
        return any(each is not None and each.topic_id == topic_id for each in (committed, *waiting))

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether a transaction that has not ended will change it."""
        return any(transaction in self.pending for transaction in self._transactions_at((topic, partition)))

    def pending_at(self, topic: str, partition: int) -> int:
        """How many offsets `remove` removes there beside the committed one, or somewhat more."""
        return len(self._transactions_at((topic, partition)))

    def has(self, topic: str, partition: int) -> bool:
        """Whether there is an offset, or one that waits."""
        return partition in self.committed.get(topic, ()) or self.is_pending(topic, partition)

    def each_place(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of all offsets, then of those that wait. One may come more than once; offsets may come and go meanwhile."""
        yield from self.each_committed_place()
        yield from self.each_pending_place()

    def each_committed_place(self, topics: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """Topic and partition of the offsets that count when the first is asked for, and of some that count later; of these `topics` if
        they are given. Time is O(1) for each offset and for each of these topics or of the group's, whichever are fewer.
        """
        few, many = sorted((self.committed if topics is None else topics, self.committed), key=len)
        for topic in [each for each in few if each in many]:
            for partition in list(self.committed.get(topic, ())):
                yield topic, partition

    def each_pending_place(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of the offsets that wait when the first is asked for, each once, also if their transactions end meanwhile;
        perhaps also of some whose transaction has just ended.
        """
        yield from list(self._transactions_of or ())

    def is_expired(self, topic: str, partition: int, rule: Callable[[str, CommittedOffset], bool]) -> bool:
        """Whether there is an offset that is too old; one that a transaction is about to change is not."""
        offset = self.committed.get(topic, {}).get(partition)
        return offset is not None and rule(topic, offset) and not self.is_pending(topic, partition)


def text_size(metadata: str) -> int:
    """Bytes that the text beside an offset takes; without a text, none."""
    return getsizeof(metadata) if metadata else 0


def is_other_topic(committed: bytes, present: bytes) -> bool:
    """Whether an offset was committed for another topic than the present one; not where either has no id."""
    return committed != present and NO_TOPIC_ID not in (committed, present)
