"""The completion watermark: up to when everything is there, by topic and tier. Pure.

It is the end of the newest window such that it and all windows of the topic before it are complete, from the producers down to the tier,
and settled. Late events reopen an old window: until they are through, the watermark goes back before it. Windows of hosts with wrong
clocks do not hold it up, nor raise it.
"""

from collections.abc import Iterable, Mapping, Sequence

from moldau.audit.settled import Settled
from moldau.audit.verdicts import WindowPair
from moldau.tracking.counts import WINDOW_MS

_NOTHING_SETTLED = Settled()


def watermarks(
    pairs: Iterable[WindowPair], tiers: Sequence[str], now_ms: int, settled: Mapping[str, Settled] | None = None
) -> dict[tuple[str, str], int | None]:
    """By topic and lower tier, in ms; None while nothing is complete. `settled` are windows of which there are no pairs any more."""
    windows: dict[str, dict[int, dict[str, bool]]] = {}
    lower_tiers: dict[str, set[str]] = {topic: set(each.tiers[1:]) for topic, each in (settled or {}).items()}
    for pair in pairs:
        lower_tiers.setdefault(pair.topic, set()).add(pair.lower_tier)
        if not pair.skewed and pair.window_start_ms <= now_ms:
            sound = pair.sound and pair.window_end_ms <= now_ms
            windows.setdefault(pair.topic, {}).setdefault(pair.window_start_ms, {})[pair.lower_tier] = sound
    found: dict[tuple[str, str], int | None] = {}
    for topic, lowers in sorted(lower_tiers.items()):
        before = (settled or {}).get(topic, _NOTHING_SETTLED)
        for number, tier in enumerate(tiers):
            if tier in lowers:
                found[topic, tier] = _watermark(windows.get(topic, {}), lowers.intersection(tiers[: number + 1]), before)
    return found


def _watermark(windows: Mapping[int, Mapping[str, bool]], tiers: set[str], settled: Settled) -> int | None:
    """The end of the last window before the first one that is not sound in all of `tiers`; a tier may know nothing of a window.

    Settled windows are sound in the tiers that had counted them, and in no others.
    """
    unsound = {start_ms for start_ms, by_tier in windows.items() if not all(by_tier.get(tier, True) for tier in tiers)}
    if not tiers.issubset(settled.tiers):  # it is only known that the others have these
        unsound |= {start_ms for start_ms, _ in settled.spans}
    first_unsound = min(unsound, default=None)
    newest = max((start_ms + WINDOW_MS for start_ms in windows if first_unsound is None or start_ms < first_unsound), default=None)
    return max((each for each in (newest, settled.newest_before(first_unsound)) if each is not None), default=None)
