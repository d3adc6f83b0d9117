"""One round of an auditor: from taking the tier over to the end, or to a failure that throws away what is not published."""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from moldau.audit.points import reached
from moldau.audit.publishing import Publisher
from moldau.audit.reading import TopicReader
from moldau.audit.tally import Tally
from moldau.audit.walker import Walker
from moldau.client.failures import TransactionAbortedError
from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)

_NOTHING_S: Final = 0.2
"""Between two looks at a cluster where nothing can be read."""
_CORRUPT_TRIES: Final = 3
_KEEP_AWAY_S: Final = 60.0
"""So long a partition whose next batch is damaged is left alone."""
_ABORTED_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class AuditorOptions:
    """How an auditor works. Seconds."""

    tier: str
    topics: re.Pattern[str] | None = None
    """Matches whole names; None: all topics that do not begin with an underscore."""
    interval_s: float = 10.0
    """Counts are published so often."""
    keys_max: int = 10_000
    """And when there are so many of them."""
    discover_s: float = 5.0
    """New topics and partitions are looked for so often."""
    mark_s: float = 30.0
    """So often it says that all is counted, while nothing comes."""
    stop_s: float = 5.0
    """So long it may take to end when it is told to; brokers that are away are not waited for any longer."""
    fast: bool | None = None
    """Whether to count with numpy; None: if it is there."""


class Teller(Protocol):
    """Who wants to know how it goes, and says when to end."""

    @property
    def stopping(self) -> bool:
        """Whether the auditor was asked to end."""

    def tell(self, **more: int) -> None:
        """Add to the statistics."""

    def tell_partitions(self, count: int) -> None:
        """So many are read now."""


class Round:
    """Counts what `reading` brings, and publishes it."""

    def __init__(self, options: AuditorOptions, teller: Teller, publisher: Publisher, reading: TopicReader, walker: Walker) -> None:
        self._options = options
        self._auditor = teller
        self._publisher = publisher
        self._reading = reading
        self._walker = walker
        self._tally = Tally()
        self._published: dict[TopicPartition, int] = {}
        """Up to where counts are published, also of partitions that are gone."""
        self._caught_up_ms: int | None = None
        self._damaged: dict[TopicPartition, tuple[int, float]] = {}

    def go_on(self, *, once: bool) -> None:
        """Count and publish, to the end of the logs as they are now, or until the auditor is to stop."""
        begun_ms = now_ms()
        if once:
            self._reading.wait_until_readable()
        else:
            self._reading.discover()
        self._published = dict(self._reading.positions)
        ends = self._reading.latest() if once else {}
        discover, publish = _Every(self._options.discover_s), _Every(self._options.interval_s)
        mark = _Every(self._options.mark_s, due=True)
        while not self._auditor.stopping:
            self._auditor.tell_partitions(len(self._reading.positions))
            if once and self._reached(ends):
                self._caught_up_ms = begun_ms
                break
            if not once and discover.due():
                self._reading.discover()
            self._count(wait=not once)
            if len(self._tally) >= self._options.keys_max or publish.due():
                marking = self._caught_up_ms is not None and (self._changed or mark.due())
                self._publish(self._caught_up_ms if marking else None)
        self._publish(self._caught_up_ms)
        reached("before the end")

    def _reached(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether everything before `ends` is counted. A partition that has gone meanwhile is looked for: it may come back.

        A log that ends before that was cut: then its end is another one.
        """
        away = ends.keys() - self._reading.positions.keys()
        if away:
            for where in self._reading.gone(away, lambda: self._auditor.stopping):
                del ends[where]
        if away or self._reading.unreadable:
            self._reading.wait_until_readable()
        cut = {where for where, end in ends.items() if self._reading.ends.get(where, end) < end}
        if cut:
            ends |= self._reading.latest(cut)
        return all(where in self._reading.positions and self._reading.positions[where] >= end for where, end in ends.items())

    @property
    def _changed(self) -> bool:
        moved = (self._published.get(where) != position for where, position in self._reading.positions.items())
        return bool(self._tally or self._reading.gaps) or any(moved)

    def _count(self, *, wait: bool) -> None:
        asked_ms = now_ms()
        before = self._tally.records
        resting = {where for where, (_, again) in self._damaged.items() if again > time.monotonic()}
        answers = self._reading.fetch(wait=wait, without=resting)
        if wait and not answers:
            time.sleep(_NOTHING_S)
        for where, fetched in answers.items():
            if len(fetched.records):
                try:
                    self._reading.positions[where] = self._walker.walk(where, fetched, self._reading.positions[where], self._tally)
                except PeerError as error:
                    self._note_damage(where, error, may_wait=wait)
                else:
                    self._damaged.pop(where, None)
        self._auditor.tell(records=self._tally.records - before)
        self._caught_up_ms = self._reading.caught_up_at(asked_ms)
        reached("fetch counted")

    def _note_damage(self, where: TopicPartition, error: PeerError, *, may_wait: bool) -> None:
        """Once may be the way from the broker; more often is the log: then the others go on, and this one is looked at again later."""
        times = self._damaged.get(where, (0, 0.0))[0] + 1
        again = time.monotonic() + (_KEEP_AWAY_S if times >= _CORRUPT_TRIES else 0.0)
        self._damaged[where] = (times, again)
        if times < _CORRUPT_TRIES:
            return
        position = self._reading.positions[where]
        if not may_wait:
            raise PeerError(error.code, f"{where} at offset {position}: {error.message}") from error
        log.error("damaged batch, the partition is not counted on: partition=%s position=%d reason=%s", where, position, error)

    def _publish(self, caught_up_ms: int | None) -> None:
        if not self._changed and caught_up_ms is None:
            return
        counts, gaps = self._tally.counts(), list(self._reading.gaps)
        for attempt in range(_ABORTED_TRIES):
            offsets = self._offsets()
            try:
                self._publisher.publish(counts, offsets, caught_up_ms, self._reading.topic_ids, gaps)
                break
            except TransactionAbortedError as error:
                if attempt == _ABORTED_TRIES - 1:
                    raise
                log.warning("counts not taken, trying again: tier=%s reason=%s", self._options.tier, error)
                self._reading.discover()
        self._auditor.tell(published=self._tally.records, transactions=1)
        log.info("counts published: tier=%s keys=%d records=%d", self._options.tier, len(counts), self._tally.records)
        self._tally.clear()
        del self._reading.gaps[: len(gaps)]
        self._published = self._reading.left() | offsets

    def _offsets(self) -> dict[TopicPartition, int]:
        """Up to where the counts reach: also in partitions that are gone, unless they were deleted for certain.

        Otherwise, if a broker only did not know a partition for a moment, an auditor that dies now would have it counted again.
        """
        left = {where: position for where, position in self._reading.left().items() if self._published.get(where) != position}
        for where in self._reading.gone(left, lambda: self._auditor.stopping):
            del left[where]
        return left | self._reading.positions


class _Every:
    """Says every so many seconds that it is time."""

    def __init__(self, seconds: float, *, due: bool = False, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._next = monotonic() + (0.0 if due else seconds)

    def due(self) -> bool:
        """Whether it is; then the next time begins."""
        now = self._monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
