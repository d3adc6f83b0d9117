"""Appends of one partition that are written and wait to be acknowledged: for the disk, for the in-sync replicas, or for both.

Three things end a wait, and the first one removes the append from the gate, so that no second can: the partition's offset of its level
passes the append (`open`), what it waits for has failed (`fail`), or its time is over (`expire`). How far a level has come, the machine of
the partition decides (`Partition.open_offset`); the gate only compares.

Only a wait for the in-sync replicas has a deadline: a sync ends by itself, in success or in an error.

Appends of one level open in the order of their offsets. Appends of different levels do not: with `flush.messages` an append that waits for
the disk may open after a later one that does not.

An append whose connection is closed is `abandoned` and needs no answer. They are removed together once they are half of a gate, so a gate
holds at most twice what the requests in flight of all connections allow, whatever timeout clients ask for.

Cost: a tuple per append that waits, and one comparison per level when the partition's offsets move.
"""

from bisect import bisect_right
from collections import deque
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.broker.replicas.partition_events import Level
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.broker.replicas.partition import Partition

    class GatedPartition(Protocol):
        """A partition, as far as what waits there cares."""

        gate: "CommitGate | None"


class GatedAppend(Protocol):
    """Batches appended together, perhaps to several partitions, as far as a gate cares."""

    @property
    def deadline_s(self) -> float:
        """Monotonic time until which it waits for in-sync replicas; inf for no limit."""

    def resolve(self, place: int, error: PeerError | StorageError | None) -> None:
        """Its batch number `place` has reached its level, or never will. Called once per wait. It may wait again, but must not run what
        waits for the append: that belongs to the queue of completions.
        """

    @property
    def is_abandoned(self) -> bool:
        """Whether its connection is closed, so that it needs no answer."""


class GatedWait:
    """What waits for records that are written already; a `GatedAppend`, and a delayed operation of its request."""

    __slots__ = ("_done", "_opened", "_partition", "deadline_s", "is_abandoned")

    def __init__(
        self,
        partition: "GatedPartition",
        done: "Callable[[PeerError | StorageError | None], object]",
        opened: "deque[Callable[[], object]]",
        deadline_s: float = inf,
    ) -> None:
        """`opened`: the queue of completions, which takes `done` with the outcome."""
        self._partition = partition
        self._done = done
        self._opened = opened
        self.deadline_s = deadline_s
        self.is_abandoned = False

    def resolve(self, place: int, error: PeerError | StorageError | None) -> None:
        """As `GatedAppend`."""
        self._opened.append(partial(self._done, error))

    def finish(self) -> None:
        """The broker stops: it is acknowledged as soon as it may be, and no sooner."""

    def cancel(self) -> None:
        """Its connection is lost: `done` is not called, and it leaves the gate early."""
        self.is_abandoned = True
        self._done = _nothing
        if self._partition.gate is not None:
            self._partition.gate.abandoned()


def _nothing(error: PeerError | StorageError | None) -> None:
    """For a wait without a request."""


class _Entry(NamedTuple):
    last_offset: int
    append: GatedAppend
    place: int


_LAST_OFFSET = attrgetter("last_offset")


class CommitGate:
    """See the module.

    Invariant: `deadline_s` is not after the deadline of any append that waits for in-sync replicas.
    Invariant: offsets rise within each queue, and no queue is empty.
    """

    __slots__ = ("_abandoned", "_queues", "deadline_s", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.deadline_s = inf
        """When to call `expire`: monotonic time before which no deadline passes."""
        self._queues: dict[Level, deque[_Entry]] = {}
        self._abandoned = 0
        """Batches that were abandoned since the last sweep, at the least those that wait here."""

    def __len__(self) -> int:
        """Batches that wait."""
        return sum(map(len, self._queues.values()))

    def waits_for_disk(self, flushed_offset: int) -> bool:
        """Whether a sync is wanted: something waits for the disk that has every record before `flushed_offset`."""
        return any(level & Level.FLUSHED and queue[-1].last_offset >= flushed_offset for level, queue in self._queues.items())

    def wait(self, level: Level, last_offset: int, append: GatedAppend, place: int) -> None:
        """Let batch `place` of `append` wait until its record at `last_offset`, which is written, has reached `level`. To be called where
        the partition's open offset has not passed it already.

        Offsets rise from call to call but for a batch that an idempotent producer repeats, which waits for the offset that is stored.
        """
        entry = _Entry(last_offset, append, place)
        queue = self._queues.get(level)
        if queue is None:
            queue = self._queues[level] = deque()
        if not queue or queue[-1].last_offset <= last_offset:
            queue.append(entry)
        else:
            queue.insert(bisect_right(queue, last_offset, key=_LAST_OFFSET), entry)
        if level & Level.REPLICATED:
            self.deadline_s = min(self.deadline_s, append.deadline_s)

    def abandoned(self) -> None:
        """A batch that may wait here has been abandoned."""
        self._abandoned += 1
        if 2 * self._abandoned < len(self):
            return
        self._abandoned = 0
        for level in list(self._queues):
            waiting = deque(entry for entry in self._queues.pop(level) if not entry.append.is_abandoned)
            if waiting:
                self._queues[level] = waiting
        if not self._queues:
            self.deadline_s = inf

    def open(self, partition: "Partition") -> None:
        """The partition's offsets have moved: resolve the appends that have reached their levels."""
        opened: list[_Entry] = []
        for level in list(self._queues):
            queue = self._queues[level]
            open_offset = partition.open_offset(level)
            while queue and queue[0].last_offset < open_offset:
                opened.append(queue.popleft())
            if not queue:
                del self._queues[level]
        if not self._queues:
            self.deadline_s = inf
        for entry in opened:
            entry.append.resolve(entry.place, None)

    def fail(self, error: PeerError | StorageError, level: Level) -> None:
        """Resolve the appends that wait for `level`, alone or with others, with `error`; all that wait if it is WRITTEN."""
        failed: list[_Entry] = []
        for each in [each for each in self._queues if each & level == level]:
            failed += self._queues.pop(each)
        if not self._queues:
            self.deadline_s = inf
        for entry in failed:
            entry.append.resolve(entry.place, error)

    def expire(self, now_s: float) -> None:
        """Resolve with REQUEST_TIMED_OUT the appends that have waited for in-sync replicas until their deadline. Their records stay in the
        log and may be committed later.
        """
        if now_s < self.deadline_s:
            return
        expired: list[tuple[Level, _Entry]] = []
        self.deadline_s = inf
        for level in [level for level in self._queues if level & Level.REPLICATED]:
            waiting: deque[_Entry] = deque()
            for entry in self._queues.pop(level):
                deadline_s = entry.append.deadline_s
                if deadline_s <= now_s:
                    expired.append((level, entry))
                else:
                    waiting.append(entry)
                    self.deadline_s = min(self.deadline_s, deadline_s)
            if waiting:
                self._queues[level] = waiting
        for level, entry in expired:
            wanted = str(level.name).lower().replace("|", " and ")
            text = f"{self.topic_partition}: offset {entry.last_offset} is written, but was not {wanted} within the request's timeout"
            entry.append.resolve(entry.place, PeerError(ErrorCode.REQUEST_TIMED_OUT, text))
