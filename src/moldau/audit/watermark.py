"""The completion watermark: up to when everything is there, by topic and tier (mission H3).

It is the end of the newest window such that it and all windows of the topic before it are complete, from the producers down to the tier,
and settled. Late events reopen an old window: until they are through, the watermark goes back before it. Windows of hosts with wrong
clocks do not hold it up, nor raise it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from moldau.audit.verdicts import WindowPair
from moldau.tracking.counts import WINDOW_MS

if TYPE_CHECKING:
    from moldau.audit.reconcile import Rules

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def watermarks(pairs: Iterable[WindowPair], tiers: Sequence[str], now_ms: int) -> dict[tuple[str, str], int | None]:
    """By topic and lower tier, in ms; None while nothing is complete. Pure."""
    windows: dict[str, dict[int, dict[str, bool]]] = {}
    lower_tiers: dict[str, set[str]] = {}
    for pair in pairs:
        lower_tiers.setdefault(pair.topic, set()).add(pair.lower_tier)
        if not pair.skewed and pair.window_start_ms <= now_ms:
            sound = pair.sound and pair.window_end_ms <= now_ms
            windows.setdefault(pair.topic, {}).setdefault(pair.window_start_ms, {})[pair.lower_tier] = sound
    found: dict[tuple[str, str], int | None] = {}
    for topic, lowers in sorted(lower_tiers.items()):
        for number, tier in enumerate(tiers):
            if tier in lowers:
                found[topic, tier] = _watermark(windows.get(topic, {}), lowers.intersection(tiers[: number + 1]))
    return found


def _watermark(windows: Mapping[int, Mapping[str, bool]], tiers: set[str]) -> int | None:
    """The end of the last window before the first one that is not sound in all of `tiers`; a tier may know nothing of a window."""
    newest = None
    for start_ms in sorted(windows):
        if not all(windows[start_ms].get(tier, True) for tier in tiers):
            break
        newest = start_ms + WINDOW_MS
    return newest


def completion_watermark(topic: str, tier: str, *, bootstrap: str, rules: "Rules | None" = None) -> datetime | None:
    """Up to when the tier has everything of the topic, asked of the audit topic now; None if that cannot be said of any window.

    ConnectionLostError, RequestFailedError, and the like if the brokers cannot be asked.
    """
    import time

    from moldau.audit.reconcile import Rules, reconcile
    from moldau.audit.tiers import read_audit
    from moldau.client.cluster import Cluster

    with Cluster(bootstrap, client_id="moldau-audit") as cluster:
        found = read_audit(cluster)
    report = reconcile(found, rules or Rules(now_ms=int(time.time() * 1000)))
    time_ms = report.watermarks.get((topic, tier))
    return None if time_ms is None else _EPOCH + timedelta(milliseconds=time_ms)
