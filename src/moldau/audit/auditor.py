"""The console auditor: counts every topic of a cluster as a tier of its own, exactly once.

It reads whole batches from the raw connections, counts the events by their headers alone, and every few seconds, or when there is much
to publish, commits the counts together with the offsets that they reach up to, in one transaction. So an auditor that dies at any moment
has either published a range of the log or not; the next one continues after it. Only one auditor of a tier can be at work: a second one
takes over, and the first ends with `FencedError`.

Failures that may pass are retried (brokers that do not answer, a transaction whose end is unknown, or that brokers ended while this
process was stopped): counts that are not published are thrown away, and counted again from the offsets of the last transaction.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Final, Protocol

from moldau.audit.events import SchemaCheck
from moldau.audit.points import reached
from moldau.audit.publishing import Counted, OverdueError, Publisher
from moldau.audit.reading import TopicReader
from moldau.audit.recent import RecentLatencies
from moldau.audit.tally import Tally
from moldau.audit.walker import Walker
from moldau.client.cluster import Cluster
from moldau.client.failures import FencedError, TransactionAbortedError, TransactionError
from moldau.model.errors import ErrorCode, MoldauError, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.tracking.clock import now_ms
from moldau.tracking.latencies import Latencies

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
    """So often it publishes a mark that all is counted, while nothing arrives."""
    stop_s: float = 5.0
    """After `stop` it ends within this time, whether or not brokers answer."""
    fast: bool | None = None
    """Whether to count with numpy; None: if it is installed."""


class AuditProgress(Protocol):
    """Receives the statistics of a round, and decides when it ends."""

    @property
    def stopping(self) -> bool:
        """Whether the auditor was asked to end."""

    def add(self, **more: int) -> None:
        """Add to the statistics."""

    def set_partitions(self, count: int) -> None:
        """So many are read now."""

    def note_latencies(self, latencies: Mapping[tuple[str, int], Latencies]) -> None:
        """Of events whose counts were just published."""


class AuditRound:
    """Counts what `reading` brings, and publishes it."""

    def __init__(self, options: AuditorOptions, teller: AuditProgress, publisher: Publisher, reading: TopicReader, walker: Walker) -> None:
        self._options = options
        self._auditor = teller
        self._publisher = publisher
        self._reading = reading
        self._walker = walker
        self._tally = Tally()
        self._published: dict[TopicPartition, int] = {}
        """Up to where counts are published, also of partitions that the brokers no longer know."""
        self._caught_up_ms: int | None = None
        self._damaged: dict[TopicPartition, tuple[int, float]] = {}

    def run_round(self, *, once: bool) -> None:
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
            self._auditor.set_partitions(len(self._reading.positions))
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
        """Whether everything before `ends` is counted. A partition that the brokers no longer know is looked up: it may come back.

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
        seen_ms = now_ms()
        if wait and not answers:
            time.sleep(_NOTHING_S)
        for where, fetched in answers.items():
            if len(fetched.records):
                try:
                    position = self._reading.positions[where]
                    self._reading.positions[where] = self._walker.walk(where, fetched, position, self._tally, seen_ms)
                except PeerError as error:
                    self._note_damage(where, error, may_wait=wait)
                else:
                    self._damaged.pop(where, None)
        self._auditor.add(records=self._tally.records - before)
        self._caught_up_ms = self._reading.caught_up_at(asked_ms)
        reached("fetch counted")

    def _note_damage(self, where: TopicPartition, error: PeerError, *, may_wait: bool) -> None:
        """One failure may come from the network; more are damage in the log: then only this partition waits, and is retried later."""
        times = self._damaged.get(where, (0, 0.0))[0] + 1
        again = time.monotonic() + (_KEEP_AWAY_S if times >= _CORRUPT_TRIES else 0.0)
        self._damaged[where] = (times, again)
        if times < _CORRUPT_TRIES:
            return
        position = self._reading.positions[where]
        if not may_wait:
            raise PeerError(error.code, f"{where} at offset {position}: {error.message}") from error
        log.error("damaged batch, counting of the partition is suspended: partition=%s position=%d reason=%s", where, position, error)

    def _publish(self, caught_up_ms: int | None) -> None:
        if not self._changed and caught_up_ms is None:
            return
        counted, gaps = Counted(self._tally.counts(), self._tally.latencies()), list(self._reading.gaps)
        for attempt in range(_ABORTED_TRIES):
            offsets = self._offsets()
            try:
                self._publisher.publish(counted, offsets, caught_up_ms, self._reading.topic_ids, gaps)
                break
            except TransactionAbortedError as error:
                if attempt == _ABORTED_TRIES - 1:
                    raise
                log.warning("transaction of counts aborted, retrying: tier=%s reason=%s", self._options.tier, error)
                self._reading.discover()
        self._auditor.add(published=self._tally.records, transactions=1)
        self._auditor.note_latencies(counted.latencies)
        log.info("counts published: tier=%s keys=%d records=%d", self._options.tier, len(counted.counts), self._tally.records)
        self._tally.clear()
        del self._reading.gaps[: len(gaps)]
        self._published = self._reading.left() | offsets

    def _offsets(self) -> dict[TopicPartition, int]:
        """Up to where the counts reach: also in partitions that brokers do not know, unless they were deleted for certain.

        Otherwise, if a broker only did not know a partition for a moment, an auditor that dies now would have it counted again.
        """
        left = {where: position for where, position in self._reading.left().items() if self._published.get(where) != position}
        for where in self._reading.gone(left, lambda: self._auditor.stopping):
            del left[where]
        return left | self._reading.positions


class _Every:
    """Due every so many seconds."""

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


__all__ = ["Auditor", "AuditorOptions"]


_PATIENCE_S = 5.0
"""Between two attempts after a failure."""
_STEP_S = 0.1
"""The one who waits for an auditor looks so often whether it is to stop."""


class _StopError(Exception):
    """The auditor is to end."""


class Auditor:
    """Counts the cluster that `bootstrap_servers` belongs to. `run` once; `stop` from any thread, or from a signal handler.

    The work is done in a thread of its own, so that `stop` does not wait for brokers that do not answer.
    """

    def __init__(self, bootstrap_servers: str, options: AuditorOptions, *, is_tracked: SchemaCheck | None = None) -> None:
        self.options = options
        self._bootstrap_servers = bootstrap_servers
        self._is_tracked = is_tracked
        self._stopping = False
        self._publisher: Publisher | None = None
        self._overdue: OverdueError | None = None
        """Until the tier is taken over again: why it was lost, though perhaps no other auditor has it."""
        self._troubles: set[tuple[type, ErrorCode | None]] = set()
        """What was logged of the present outage."""
        self.recent = RecentLatencies()
        self._totals = {"records": 0, "published": 0, "transactions": 0, "partitions": 0, "restarts": 0}

    def stop(self) -> None:
        """End soon: what is counted is published first."""
        self._stopping = True

    def statistics(self) -> dict[str, int]:
        """Records counted and published, transactions, partitions, and how often it restarted after a failure."""
        return dict(self._totals)

    def run(self, *, once: bool = False) -> None:
        """Count until `stop`; with `once` up to where the logs end now.

        FencedError: another auditor of this tier has taken over. With `once` also WorldError, PeerError, TransactionError, which otherwise
        are logged, and the work is restarted.

        After `stop` it ends within `stop_s` seconds. If brokers do not answer by then, the next auditor counts again what is not published.
        """
        ended: Future[None] = Future()

        def work() -> None:
            try:
                self._run(once=once)
            except BaseException as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=work, name=f"moldau audit {self.options.tier}", daemon=True).start()
        try:
            self._wait_for(ended)
        except BaseException:
            if not ended.done():  # Ctrl-C, which was not turned into `stop`
                self._stopping = True
                self._wait_for(ended)
            raise
        if ended.done():
            ended.result()

    def _wait_for(self, ended: "Future[None]") -> None:
        """Until it has ended, or `stop_s` after `stop`."""
        deadline: float | None = None
        while not wait([ended], _STEP_S).done:
            if self._stopping:
                deadline = deadline or time.monotonic() + self.options.stop_s
                if time.monotonic() >= deadline:
                    self._give_up()
                    return

    def _give_up(self) -> None:
        log.warning(
            "audit ended before it could publish: tier=%s; unpublished counts are counted again by the next auditor", self.options.tier
        )
        publisher = self._publisher
        if publisher is not None:
            publisher.abandon()

    def _run(self, *, once: bool) -> None:
        while True:
            try:
                self._work(once=once)
            except FencedError:
                raise
            except (WorldError, PeerError, TransactionError) as error:
                if once:
                    raise
                if isinstance(error, OverdueError):
                    self._overdue = error
                self._log_interruption(error)
                self._totals["restarts"] += 1
                self._rest(_PATIENCE_S)
            else:
                return
            if self._stopping:
                return

    def _log_interruption(self, error: MoldauError) -> None:
        """Once for each outage and kind of trouble: it is tried again every few seconds, perhaps for hours."""
        kind = (type(error), error.code if isinstance(error, PeerError) else None)
        level = logging.DEBUG if kind in self._troubles else logging.WARNING
        then = "ending" if self._stopping else "retrying"
        log.log(level, "audit interrupted, %s: tier=%s reason=%s", then, self.options.tier, error)
        self._troubles.add(kind)

    def _work(self, *, once: bool) -> None:
        publisher = self._publisher = Publisher(self._bootstrap_servers, self.options.tier, self.options.topics)
        try:
            with Cluster(self._bootstrap_servers, client_id=f"moldau-audit-{self.options.tier}", sleep=self._pause) as cluster:
                if self._overdue is not None:
                    publisher.check_not_replaced(cluster, self._overdue)
                places = publisher.take_over(cluster)
                self._overdue = None
                reached("offsets read")
                reading, walker = TopicReader(cluster, self.options.topics, places), Walker(self._is_tracked, fast=self.options.fast)
                AuditRound(self.options, self, publisher, reading, walker).run_round(once=once)
        except _StopError:
            log.info("audit stopped while no broker answered: tier=%s", self.options.tier)
        finally:
            publisher.close()
            self._publisher = None  # its threads end with it, and look for no brokers any more

    @property
    def interrupted(self) -> bool:
        """Whether it was interrupted, and has published nothing since."""
        return bool(self._troubles)

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stopping

    def set_partitions(self, count: int) -> None:
        """So many are read now."""
        self._totals["partitions"] = count

    def note_latencies(self, latencies: Mapping[tuple[str, int], Latencies]) -> None:
        """They are the most recent ones now."""
        self.recent.add(latencies)

    def add(self, **more: int) -> None:
        """Add to the statistics. What was published ends an outage."""
        for name, number in more.items():
            self._totals[name] += number
        if self._troubles and more.get("transactions"):
            log.warning("audit resumed, counts are published again: tier=%s", self.options.tier)
            self._troubles.clear()

    def _pause(self, seconds: float) -> None:
        """Wait before another try, unless we are to end."""
        if self._stopping:
            raise _StopError
        time.sleep(min(seconds, 0.2))

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.1)
