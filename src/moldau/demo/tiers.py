"""What the tiers have counted, looked at while the demonstration runs: read from the audit topic again and again, kept as a timeline."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from moldau.audit.follow import read_audit
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.verdicts import Report
from moldau.client.cluster import Cluster
from moldau.model.errors import MoldauError
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import NOTHING, WINDOW_MS, Count

LOCAL_TIER = "local"
LAKE_TIER = "lake"
TIERS = (PRODUCER_TIER, LOCAL_TIER, LAKE_TIER)
_LOOK_S = 1.0
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """For the picture: events counted by each tier, `moments` by seconds since the beginning, `days` by days since 1970."""

    moments: tuple[tuple[float, Mapping[str, int]], ...] = ()
    days: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


class TierWatch:
    """Reads the audit topic in a thread of its own until `finish`; `told` is called with the events of each tier."""

    def __init__(self, bootstrap: str, topic: str, told: Callable[[Mapping[str, int]], object]) -> None:
        self._topic = topic
        self._told = told
        self._found = TierCounts()
        self._cluster = Cluster(bootstrap, client_id="moldau-demo")
        self._moments: list[tuple[float, Mapping[str, int]]] = []
        self._begun = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau demo tiers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            with suppress(MoldauError):  # the end asks once more, and says what is wrong
                self._look()
            self._ending.wait(_LOOK_S)

    def _look(self) -> None:
        before = self._found.records
        read_audit(self._cluster, self._found)
        if self._moments and self._found.records == before:
            return
        totals = {
            tier: sum(told.count.count for key, told in self._found.counts.get(tier, {}).items() if key.topic == self._topic)
            for tier in TIERS
        }
        self._moments.append((time.monotonic() - self._begun, totals))
        self._told(totals)

    def stop(self) -> None:
        """No more looks."""
        self._ending.set()
        self._thread.join()
        self._cluster.close()

    def finish(self) -> tuple[Report, Timeline]:
        """A last look, when all tiers have published everything: the audit's report, and the timeline. The client's errors.

        Nobody publishes any more. So nothing is waited for: every window is over, and for what hosts of an earlier run sent and did not
        count before they were killed the log stands.
        """
        self._ending.set()
        self._thread.join()
        try:
            self._look()
        finally:
            self._cluster.close()
        windows = [key.window_start_ms for counts in self._found.counts.values() for key in counts]
        at_ms = max(now_ms(), max(windows, default=0) + WINDOW_MS)
        every = dict.fromkeys(TIERS, lambda _topic: True)
        rules = Rules(now_ms=at_ms, tiers=TIERS, grace_ms=0, producer_timeout_ms=0, topics={self._topic}, only=every)
        totals = dict(self._moments[-1][1]) if self._moments else {}
        moments = (*self._moments, (time.monotonic() - self._begun, totals))
        return reconcile(self._found, rules), Timeline(moments, self._by_day())

    def told(self) -> dict[int, Count]:
        """What producers have counted, by window."""
        windows: dict[int, Count] = {}
        for key, each in self._found.counts.get(PRODUCER_TIER, {}).items():
            if key.topic == self._topic:
                windows[key.window_start_ms] = windows.get(key.window_start_ms, NOTHING) + each.count
        return windows

    def _by_day(self) -> dict[str, dict[int, int]]:
        days: dict[str, dict[int, int]] = {}
        for tier in TIERS:
            for key, told in self._found.counts.get(tier, {}).items():
                if key.topic == self._topic:
                    day = key.window_start_ms // _DAY_MS
                    by_day = days.setdefault(tier, {})
                    by_day[day] = by_day.get(day, 0) + told.count.count
        return days
