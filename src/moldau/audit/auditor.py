"""The console auditor: counts every topic of a cluster as a tier of its own, exactly once (mission H2).

It reads whole batches from the raw connections, counts the events by their headers alone, and every few seconds, or when there is much
to say, publishes the counts together with the offsets that they reach up to, in one transaction. So an auditor that dies at any moment
has either published a stretch of the log or not; the next one goes on behind it. Only one auditor of a tier can be at work: a second one
takes over, and the first ends with `FencedError`.

What may pass is waited for (brokers that are away, a transaction whose end is not known): counts that are not published are thrown away,
and counted again from the offsets of the last transaction.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from moldau.audit.events import SchemaCheck
from moldau.audit.points import reached
from moldau.audit.publishing import Publisher
from moldau.audit.reading import Reading
from moldau.audit.tally import Tally
from moldau.audit.walker import Walker
from moldau.client.cluster import Cluster
from moldau.client.failures import FencedError, TransactionAbortedError, TransactionError
from moldau.model.errors import PeerError, WorldError
from moldau.model.identity import TopicPartition

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0
"""Between two attempts to go on after a failure."""
_NOTHING_S = 0.2
"""Between two looks at a cluster without topics."""
_CORRUPT_TRIES = 3
_KEEP_AWAY_S = 60.0
"""So long a partition whose next batch is damaged is left alone."""
_ABORTED_TRIES = 5


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
    fast: bool | None = None
    """Whether to count with numpy; None: if it is there."""


class _StopError(Exception):
    """The auditor is to end."""


class Auditor:
    """Counts the cluster that `bootstrap` belongs to. `run` in one thread; `stop` from any, or from a signal handler."""

    def __init__(self, bootstrap: str, options: AuditorOptions, *, is_tracked: SchemaCheck | None = None) -> None:
        self.options = options
        self._bootstrap = bootstrap
        self._is_tracked = is_tracked
        self._stopping = False
        self._told = {"records": 0, "published": 0, "transactions": 0, "partitions": 0, "restarts": 0}

    def stop(self) -> None:
        """End soon: what is counted is published first."""
        self._stopping = True

    def statistics(self) -> dict[str, int]:
        """Records counted and published, transactions, partitions, and how often it began anew after a failure."""
        return dict(self._told)

    def run(self, *, once: bool = False) -> None:
        """Count until `stop`; with `once` up to where the logs end now.

        FencedError: another auditor of this tier has taken over. With `once` also WorldError, PeerError, TransactionError, which otherwise
        are logged, and the work begun anew.
        """
        while True:
            try:
                self._work(once=once)
            except FencedError:
                raise
            except (WorldError, PeerError, TransactionError) as error:
                if once:
                    raise
                log.warning("audit interrupted: tier=%s reason=%s", self.options.tier, error)
                self._told["restarts"] += 1
                self._rest(_PATIENCE_S)
            else:
                return
            if self._stopping:
                return

    def _work(self, *, once: bool) -> None:
        publisher = Publisher(self._bootstrap, self.options.tier, self.options.topics)
        try:
            with Cluster(self._bootstrap, client_id=f"moldau-audit-{self.options.tier}", sleep=self._pause) as cluster:
                committed = publisher.take_over(cluster)
                reached("offsets read")
                _Round(self, cluster, publisher, Reading(cluster, self.options.topics, committed)).go_on(once=once)
        except _StopError:
            log.info("audit stopped while brokers were away: tier=%s", self.options.tier)
        finally:
            publisher.close()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stopping

    def tell(self, **more: int) -> None:
        """Add to the statistics."""
        for name, number in more.items():
            self._told[name] += number

    def walker(self) -> Walker:
        """Counts as the options say."""
        return Walker(self._is_tracked, fast=self.options.fast)

    def _pause(self, seconds: float) -> None:
        """Wait before another try, unless we are to end."""
        if self._stopping:
            raise _StopError
        time.sleep(min(seconds, 0.2))

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.1)


class _Round:
    """From taking the tier over to the end, or to a failure that throws away what is not published."""

    def __init__(self, auditor: Auditor, cluster: Cluster, publisher: Publisher, reading: Reading) -> None:
        self._auditor = auditor
        self._options = auditor.options
        self._cluster = cluster
        self._publisher = publisher
        self._reading = reading
        self._walker = auditor.walker()
        self._tally = Tally()
        self._published: dict[TopicPartition, int] = {}
        self._caught_up_ms: int | None = None
        self._damaged: dict[TopicPartition, tuple[int, float]] = {}

    def go_on(self, *, once: bool) -> None:
        """Count and publish, to the end of the logs as they are now, or until the auditor is to stop."""
        begun_ms = _now_ms()
        self._reading.discover()
        self._published = dict(self._reading.positions)
        ends = self._reading.latest() if once else {}
        discover, publish = _Every(self._options.discover_s), _Every(self._options.interval_s)
        mark = _Every(self._options.mark_s, due=True)
        while not self._auditor.stopping:
            if once and all(self._reading.positions.get(where, end) >= end for where, end in ends.items()):
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

    @property
    def _changed(self) -> bool:
        return self._published != self._reading.positions

    def _count(self, *, wait: bool) -> None:
        if wait and not self._reading.positions:
            time.sleep(_NOTHING_S)
        asked_ms = _now_ms()
        before = self._tally.records
        for where, fetched in self._reading.fetch(wait=wait).items():
            if len(fetched.records) and self._damaged.get(where, (0, 0.0))[1] <= time.monotonic():
                try:
                    self._reading.positions[where] = self._walker.walk(where.topic, fetched, self._reading.positions[where], self._tally)
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
        counts, offsets = self._tally.counts(), dict(self._reading.positions)
        for attempt in range(_ABORTED_TRIES):
            try:
                self._publisher.publish(counts, offsets, caught_up_ms, self._reading.topic_ids)
                break
            except TransactionAbortedError as error:
                if attempt == _ABORTED_TRIES - 1:
                    raise
                log.warning("counts not taken, trying again: tier=%s reason=%s", self._options.tier, error)
                self._reading.discover()
                offsets = {where: offset for where, offset in offsets.items() if where in self._reading.positions}
        self._auditor.tell(published=self._tally.records, transactions=1)
        log.info("counts published: tier=%s keys=%d records=%d", self._options.tier, len(counts), self._tally.records)
        self._tally.clear()
        self._published = dict(self._reading.positions)


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


def _now_ms() -> int:
    return int(time.time() * 1000)
