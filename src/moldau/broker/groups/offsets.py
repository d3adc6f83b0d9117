"""How far a group has read: committed offsets, and those that wait for their transaction to end.

Rules, as in Kafka: of a plain commit and one by a transaction the later in the log wins, whenever the transaction ends; a tombstone also
takes the offsets that wait; a commit for a topic that has been made anew since (another topic id) does not count.
"""

from collections.abc import Callable, Iterable, Iterator
from sys import getsizeof
from typing import NamedTuple

from moldau.model.budget import Account, Budget

NO_TOPIC_ID = bytes(16)
NOT_SET = -1

OFFSET_COST = 270
"""Bytes that an offset takes beside its metadata."""
TOPIC_COST = 200
"""Bytes that the first offset of a topic takes beside itself."""
PENDING_COST = 330
"""Bytes that an offset which waits for a transaction takes beside its metadata."""
PRODUCER_COST = 600
"""Bytes that a transaction takes beside its offsets."""


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

    Invariants: no topic without an offset, no producer without a pending one; `account` has what all of them take.
    """

    __slots__ = ("account", "committed", "pending")

    def __init__(self, account: Account | None = None) -> None:
        self.account = Account(Budget.unlimited()) if account is None else account
        self.committed: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: dict[int, dict[tuple[str, int], CommittedOffset]] = {}
        """By producer id."""

    def __len__(self) -> int:
        return sum(map(len, self.committed.values()))

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an offset nor one that waits."""
        return not self.committed and not self.pending

    def growth(self, commits: Iterable[Commit], producer_id: int | None = None) -> int:
        """Bytes that these would add, with a `producer_id` when its transaction commits them.

        The offsets of a group's only transaction replace those that are committed, so they count as much more as they are longer: a group
        that goes on as before needs no room.
        """
        growth = 0
        waiting = {} if producer_id is None else self.pending.get(producer_id, {})
        is_only = producer_id is None or not self.pending.keys() - {producer_id}
        for each in commits:
            present = waiting.get((each.topic, each.partition))
            if present is None and is_only:
                present = self.committed.get(each.topic, {}).get(each.partition)
            if present is not None:
                if present.metadata != each.metadata:
                    growth += text_size(each.metadata) - text_size(present.metadata)
                continue
            growth += text_size(each.metadata)
            if producer_id is None:
                growth += OFFSET_COST + (0 if each.topic in self.committed else TOPIC_COST)
            else:
                growth += PENDING_COST + PRODUCER_COST
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

    def put_pending(self, producer_id: int, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Commit when the producer's transaction does."""
        growth = text_size(committed.metadata)
        waiting = self.pending.get(producer_id)
        if waiting is None:
            waiting = self.pending[producer_id] = {}
            growth += PRODUCER_COST
        present = waiting.get((topic, partition))
        growth += PENDING_COST if present is None else -text_size(present.metadata)
        waiting[topic, partition] = committed
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
        for producer_id, waiting in list(self.pending.items()):
            gone = waiting.pop((topic, partition), None)
            if gone is not None:
                self.account.add(-PENDING_COST - text_size(gone.metadata))
            if not waiting:
                del self.pending[producer_id]
                self.account.add(-PRODUCER_COST)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The producer's transaction has ended: its offsets count now, unless a later commit is there, or are gone."""
        waiting = self.pending.pop(producer_id, None)
        if waiting is None:
            return
        self.account.add(-PRODUCER_COST - sum(PENDING_COST + text_size(each.metadata) for each in waiting.values()))
        if not committed:
            return
        for (topic, partition), offset in waiting.items():
            present = self.committed.get(topic, {}).get(partition)
            if present is None or offset.order > present.order:
                self.put(topic, partition, offset)

    def get(self, topic: str, partition: int, topic_id: bytes = NO_TOPIC_ID) -> CommittedOffset | None:
        """What is committed; None for nothing, and for an offset in another topic of that name than the one with `topic_id`."""
        partitions = self.committed.get(topic)
        found = None if partitions is None else partitions.get(partition)
        return None if found is None or is_other_topic(found.topic_id, topic_id) else found

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether a transaction that has not ended will change it."""
        return any((topic, partition) in waiting for waiting in self.pending.values())

    def has(self, topic: str, partition: int) -> bool:
        """Whether there is an offset, or one that waits."""
        place = topic, partition
        return partition in self.committed.get(topic, ()) or any(place in waiting for waiting in self.pending.values())

    def places(self) -> set[tuple[str, int]]:
        """Topic and partition of all offsets, of those that wait too."""
        found = {(topic, partition) for topic, partitions in self.committed.items() for partition in partitions}
        for waiting in self.pending.values():
            found.update(waiting)
        return found

    def expired(self, is_expired: Callable[[str, CommittedOffset], bool]) -> Iterator[tuple[str, int]]:
        """Topic and partition of the offsets that are too old; one that a transaction is about to change is not."""
        for topic, partitions in self.committed.items():
            for partition, offset in partitions.items():
                if is_expired(topic, offset) and not self.is_pending(topic, partition):
                    yield topic, partition


def text_size(metadata: str) -> int:
    """Bytes that the text beside an offset takes; without a text, none."""
    return getsizeof(metadata) if metadata else 0


def is_other_topic(committed: bytes, present: bytes) -> bool:
    """Whether an offset was committed for another topic than the present one; not where either has no id."""
    return committed != present and NO_TOPIC_ID not in (committed, present)
