"""How many producers all logs of a broker remember together (`producer.ids.max`).

The sender chooses the producer id, so a peer can make a partition remember as many producers as it sends batches. At the bound the one that
has been idle for longest is evicted, found by the second-chance rule in O(1): all of them are in a queue in the order in which they came;
the first is evicted unless it was used since it was put there, in which case it goes to the end.

While logs are loaded the order in which producers come is that of folders, and says nothing of when they wrote. The queue is a heap then,
by the timestamp of the last record of each: one that wrote just before the stop may send its last batch again.

A producer whose transaction is ongoing is never evicted, nor one with a staged marker. To evict an idle one has the effect of its expiry
(`producer.id.expiration.ms`), only sooner: its next batch is accepted with any sequence, and a duplicate is not recognised. The epoch
of one with a transactional id is not lost with it: the transaction coordinator knows it (`epoch_given`), so one that was fenced stays so.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush, heapreplace
from typing import Protocol

from moldau.model.log_throttle import LogThrottle
from moldau.ports.probe import reached

_LOG = logging.getLogger(__name__)

ALONE_MAX = 50_000
"""For logs without a broker."""
LOOKS = 64
"""Entries of the queue that are examined for one that may be evicted."""
STALE_MIN = 1000
"""Stale entries that the queue may hold before it is swept."""
NOTES_INTERVAL_S = 60.0
BUSY = -1
GONE = -2


class ProducerMemory(Protocol):
    """What remembers something of producers, each by its id."""

    def last_use(self, producer_id: int, state: object) -> int:
        """When `state` of the producer was used last (ms; while the bound `is_loading`, the timestamp of its last record); `BUSY` if it
        may not be evicted now, `GONE` if there is no such state.
        """

    def forget(self, producer_id: int) -> None:
        """Remember nothing of the producer."""


class ProducerBound:
    """Invariant: `held` counts the producers of all logs; each has one entry in the queue, which may hold stale entries too."""

    __slots__ = ("_heap", "_limit", "_line", "_notes", "_number", "epoch_given", "evicted", "held", "is_loading", "refused")

    def __init__(
        self, limit: Callable[[], int] = lambda: ALONE_MAX, epoch_given: Callable[[int], int | None] = lambda _producer_id: None
    ) -> None:
        self.held = 0
        self.evicted = 0
        self.refused = 0
        self.epoch_given = epoch_given
        """The epoch that the transaction coordinator gave a producer last, None for one without a transactional id. PeerError."""
        self._limit = limit
        self._line: deque[tuple[ProducerMemory, int, object, int]] = deque()
        self.is_loading = False
        self._heap: list[tuple[int, int, ProducerMemory, int, object]] = []
        """Time of the last use as it was looked at last, a number that no other has, and whose it is."""
        self._number = 0
        self._notes = LogThrottle(NOTES_INTERVAL_S, 2)

    @property
    def limit(self) -> int:
        """The value of the setting."""
        return self._limit()

    def admit(self, owner: ProducerMemory, producer_id: int, state: object, now_ms: int, *, always: bool = False) -> bool:
        """Count one more, and evict the one that is idle for longest if need be; False if none may be evicted.

        `always`: it is in the log already, and has to be remembered.
        """
        limit = self._limit()
        if self.held >= limit:
            evicted = self._evict(limit, now_ms)
            if not evicted and not always:
                self.refused += 1
                if self._notes.due("refused", now_ms / 1000):
                    _LOG.warning("producers refused: setting=producer.ids.max limit=%d refused_so_far=%d", limit, self.refused)
                return False
        self.held += 1
        if self.is_loading:
            self._number += 1
            heappush(self._heap, (BUSY, self._number, owner, producer_id, state))
            return True
        self._line.append((owner, producer_id, state, now_ms))
        if len(self._line) > 2 * self.held + STALE_MIN:
            self.sweep()
        return True

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Evict by the time of the last record, and have the queue in this order afterwards."""
        self.is_loading = True
        try:
            yield
            uses = sorted((owner.last_use(producer_id, state), number) for _, number, owner, producer_id, state in self._heap)
        finally:
            self.is_loading = False
        known = {number: (owner, producer_id, state) for _, number, owner, producer_id, state in self._heap}
        self._heap = []
        for used_ms, number in uses:
            if used_ms != GONE:
                owner, producer_id, state = known[number]
                self._line.append((owner, producer_id, state, owner.last_use(producer_id, state)))

    def released(self, count: int = 1) -> None:
        """This many are no longer remembered."""
        self.held -= count

    def sweep(self) -> None:
        """Drop the stale entries of the queue."""
        self._line = deque(each for each in self._line if each[0].last_use(each[1], each[2]) != GONE)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {"producer_ids": self.held, "producer_ids_evicted": self.evicted, "producer_ids_refused": self.refused}

    def _evict(self, limit: int, now_ms: int) -> bool:
        """Evict one, or two where the limit was lowered; whether one was evicted."""
        if self.is_loading:
            goes = self._evict_earliest()
        else:
            goes = self._evict_one(idle=True) or self._evict_one(idle=False)
            if goes and self.held >= limit:
                self._evict_one(idle=True)
        if goes and self._notes.due("evicted", now_ms / 1000):
            _LOG.warning(
                "idle producers evicted to make room for new ones: setting=producer.ids.max limit=%d evicted_so_far=%d",
                limit,
                self.evicted,
            )
        return goes

    def _evict_one(self, *, idle: bool) -> bool:
        looks = 0
        while self._line and looks < LOOKS:
            owner, producer_id, state, noted_ms = self._line.popleft()
            used_ms = owner.last_use(producer_id, state)
            if used_ms == GONE:
                continue
            looks += 1
            if used_ms == BUSY or (idle and used_ms != noted_ms):
                self._line.append((owner, producer_id, state, used_ms))
                continue
            owner.forget(producer_id)
            self.evicted += 1
            reached("producers: evicted one")
            return True
        return False

    def _evict_earliest(self) -> bool:
        heap = self._heap
        busy: list[tuple[int, int, ProducerMemory, int, object]] = []
        evicted = False
        while heap and not evicted and len(busy) < LOOKS:
            noted_ms, number, owner, producer_id, state = heap[0]
            used_ms = owner.last_use(producer_id, state)
            if used_ms >= 0 and used_ms != noted_ms:
                heapreplace(heap, (used_ms, number, owner, producer_id, state))
                continue
            first = heappop(heap)
            if used_ms == BUSY:
                busy.append(first)
            elif used_ms != GONE:
                owner.forget(producer_id)
                self.evicted += 1
                reached("producers: evicted one")
                evicted = True
        for each in busy:
            heappush(heap, each)
        return evicted
