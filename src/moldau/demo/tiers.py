"""What the tiers have counted, looked at while the demonstration runs: read from the audit topic again and again, kept as a timeline."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import escape

from moldau.audit.follow import read_audits
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.svg import document, shortened
from moldau.audit.tiers import TierCounts
from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Report
from moldau.client.cluster import Cluster
from moldau.model.errors import MoldauError
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import NOTHING, WINDOW_MS, Count

LOCAL_TIER = "local"
LAKE_TIER = "lake"
TIERS = (PRODUCER_TIER, LOCAL_TIER, LAKE_TIER)
_LOOK_S = 2.0
_END_LOOK_S = 0.5
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """For the picture: events counted by each tier, `moments` by seconds since the beginning, `days` by days since 1970."""

    moments: tuple[tuple[float, Mapping[str, int]], ...] = ()
    days: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


class TierWatch:
    """Reads the audit topic in a thread of its own until `finish`; `on_totals` is called with the events of each tier."""

    def __init__(self, clusters: Mapping[str, str], tree: TierTree, topic: str, on_totals: Callable[[Mapping[str, int]], object]) -> None:
        """`clusters` have the audit topics, by their names there."""
        self._tree = tree
        self._topic = topic
        self._on_totals = on_totals
        self._found = TierCounts()
        self._clusters = {name: Cluster(bootstrap, client_id="moldau-demo") for name, bootstrap in clusters.items()}
        self._arrived: dict[str, int] = {}
        self._moments: list[tuple[float, Mapping[str, int]]] = []
        self._begun = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau demo tiers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            with suppress(MoldauError):  # the end asks once more, and reports what is wrong
                self._look()
            self._ending.wait(_LOOK_S)

    def _look(self) -> None:
        before = self._found.records
        read_audits(self._clusters, self._found)
        if self._moments and self._found.records == before:
            return
        totals = {
            tier: sum(entry.count.count for key, entry in self._found.counts.get(tier, {}).items() if key.topic == self._topic)
            for tier in self._tree.names
        }
        untracked = {tier: count.count for (tier, topic), count in self._found.untracked.items() if topic == self._topic}
        self._arrived = {tier: total + untracked.get(tier, 0) for tier, total in totals.items()}
        self._moments.append((time.monotonic() - self._begun, totals))
        self._on_totals(totals)

    def stop(self) -> None:
        """End the thread."""
        self._ending.set()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()

    def arrived(self, tier: str) -> int:
        """How many records this tier has published that it has counted, tracked events or not."""
        return self._arrived.get(tier, 0)

    def finish(self, limit_s: float = 0.0) -> tuple[Report, Timeline]:
        """A last look, when all tiers have published everything: the audit's report, and the timeline. The client's errors.

        Looks again, for so long at most, until all tiers have the same sums, or all auditors have counted everything that was in the logs
        when this began.

        The producers have ended. So nothing is waited for: every window is over, and for what hosts of an earlier run sent and did not
        count before they were killed the log stands.
        """
        self._ending.set()
        self._thread.join()
        begun_ms, end = now_ms(), time.monotonic() + limit_s
        try:
            self._look()
            while not self._sums_agree() and not self._all_counted_since(begun_ms) and time.monotonic() < end:
                time.sleep(_END_LOOK_S)
                self._look()
        finally:
            self._close()
        windows = [key.window_start_ms for counts in self._found.counts.values() for key in counts]
        at_ms = max(now_ms(), max(windows, default=0) + WINDOW_MS)
        every = dict.fromkeys(self._tree.names, lambda _topic: True)
        rules = Rules(now_ms=at_ms, tree=self._tree, grace_ms=0, producer_timeout_ms=0, topics={self._topic}, only=every)
        totals = dict(self._moments[-1][1]) if self._moments else {}
        moments = (*self._moments, (time.monotonic() - self._begun, totals))
        return reconcile(self._found, rules), Timeline(moments, self._by_day())

    def _sums_agree(self) -> bool:
        totals = self._moments[-1][1]
        produced = sum(totals[tier.name] for tier in self._tree.locals) == totals[PRODUCER_TIER]
        others = (tier for tier in self._tree.tiers if tier.sources and tier not in self._tree.locals)
        return produced and all(totals[tier.name] == sum(totals[source] for source in tier.sources) for tier in others)

    def _all_counted_since(self, time_ms: int) -> bool:
        auditors = self._found.auditors & set(self._tree.names)
        return bool(auditors) and all(self._found.vouches_until(tier, self._topic) >= time_ms for tier in auditors)

    def produced(self) -> dict[int, Count]:
        """What producers have counted, by window."""
        windows: dict[int, Count] = {}
        for key, each in self._found.counts.get(PRODUCER_TIER, {}).items():
            if key.topic == self._topic:
                windows[key.window_start_ms] = windows.get(key.window_start_ms, NOTHING) + each.count
        return windows

    def _by_day(self) -> dict[str, dict[int, int]]:
        days: dict[str, dict[int, int]] = {}
        for tier in self._tree.names:
            for key, entry in self._found.counts.get(tier, {}).items():
                if key.topic == self._topic:
                    day = key.window_start_ms // _DAY_MS
                    by_day = days.setdefault(tier, {})
                    by_day[day] = by_day.get(day, 0) + entry.count.count
        return days


COLOURS = {"producer": "#1f6f8b", "local": "#d9822b", "lake": "#3a7d44"}
_WIDTH, _HEIGHT = 900, 560
_LEFT, _RIGHT, _PANEL = 80, 870, 170
_TOPS = (70, 330)
_POINTS_MAX = 2_000
_NAME_MAX = 24
"""Characters of a topic's name that the title has room for."""
_LINE = {"producer": "", "local": ' stroke-dasharray="7 4"', "lake": ' stroke-dasharray="2 3"'}

Points = Sequence[tuple[float, float]]


def draw(timeline: Timeline, topic: str, verdict: str) -> str:
    """The whole file."""
    title = f"Events of topic {escape(shortened(topic, _NAME_MAX))}, as each tier counted them: {escape(verdict)}"
    running = {tier: [(seconds, float(totals.get(tier, 0))) for seconds, totals in timeline.moments] for tier in TIERS}
    days = {tier: _every_day(timeline.days.get(tier, {}), timeline.days) for tier in TIERS}
    parts = [
        f'<text x="{_LEFT}" y="28" font-size="17">{title}</text>',
        *_legend(),
        *_panel(_TOPS[0], "counted so far, by seconds of this run", running, _seconds),
        *_panel(_TOPS[1], "counted in the end, by day of the events (UTC)", days, _day),
    ]
    return document(_WIDTH, _HEIGHT, parts)


def _every_day(counts: Mapping[int, int], all_tiers: Mapping[str, Mapping[int, int]]) -> list[tuple[float, float]]:
    """A day that another tier has and this one lacks is 0, and no gap."""
    days = sorted({day for each in all_tiers.values() for day in each})
    return [(float(day), float(counts.get(day, 0))) for day in days]


def _legend() -> list[str]:
    parts = []
    for number, tier in enumerate(TIERS):
        x = _LEFT + 130 * number
        parts.append(f'<line x1="{x}" x2="{x + 30}" y1="46" y2="46" stroke="{COLOURS[tier]}" stroke-width="2.5"{_LINE[tier]}/>')
        parts.append(f'<text x="{x + 38}" y="50">{tier}</text>')
    return parts


def _panel(top: int, title: str, lines: Mapping[str, Points], label: Callable[[float], str]) -> list[str]:
    xs = [x for points in lines.values() for x, _ in points] or [0.0]
    x_min, x_max = min(xs), max(xs)
    y_max = max([y for points in lines.values() for _, y in points], default=0.0) or 1.0
    bottom = top + _PANEL

    def place(x: float, y: float) -> str:
        across = (x - x_min) / (x_max - x_min) if x_max > x_min else 0.0
        return f"{_LEFT + across * (_RIGHT - _LEFT):.1f},{bottom - y / y_max * (_PANEL - 15):.1f}"

    parts = [
        f'<text x="{_LEFT}" y="{top + 2}" fill="#555">{title}</text>',
        f'<path d="M{_LEFT},{top + 10} V{bottom} H{_RIGHT}" fill="none" stroke="#999"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (_PANEL - 15)
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{share * y_max:,.0f}</text>')
        x = _LEFT + share * (_RIGHT - _LEFT)
        anchor = "end" if share == 1.0 else "middle"  # the last one would end beyond the edge
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="{anchor}" fill="#555">{label(x_min + share * (x_max - x_min))}</text>'
        )
    for tier, points in lines.items():
        kept = points[:: max(1, len(points) // _POINTS_MAX)]
        drawn = " ".join(place(x, y) for x, y in kept)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{COLOURS[tier]}" stroke-width="2"{_LINE[tier]}/>')
    return parts


def _seconds(x: float) -> str:
    return f"{x:.0f} s"


def _day(x: float) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=round(x)):%d %b %Y}"
