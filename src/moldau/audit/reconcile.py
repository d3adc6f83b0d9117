"""All tiers compared, each with the next one, by topic and window: the report. Pure.

It is the end of the newest window such that it and all windows of the topic before it are complete, from the producers down to the tier,
and settled. Late events reopen an old window: until they are through, the watermark goes back before it. Windows of hosts with wrong
clocks do not hold it up, nor raise it.

``moldau.audit.neighbours`` is how two tiers are compared, ``moldau.audit.rules`` how patiently.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from moldau.audit.neighbours import ByKey, Neighbours, skewed_hosts
from moldau.audit.rules import Rules, covers, says_what_it_counts
from moldau.audit.tiers import Settled, SettledPair, TierCounts
from moldau.audit.verdicts import Report, WindowPair
from moldau.tracking.counts import WINDOW_MS, Count

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


def reconcile(found: TierCounts, rules: Rules) -> Report:
    """Compare all neighbouring tiers."""
    tiers = rules.tiers or found.tiers
    skewed = skewed_hosts(found, rules.skew_ms, rules.behind_ms)
    pairs: list[WindowPair] = []
    settled: list[SettledPair] = []
    uncovered: dict[str, list[str]] = {}
    topics = set()
    for topic, counting, theirs in compared(found, rules):
        topics.add(topic)
        pairs += theirs
        settled += _settled(found, topic, counting, [pair for pair in theirs if rules.shows(pair)])
        for tier in tiers:
            if tier not in counting and tier not in rules.only:
                uncovered.setdefault(tier, []).append(topic)
    shown = [pair for pair in pairs if rules.shows(pair)]
    return Report(
        tiers=tuple(tiers),
        pairs=tuple(sorted(shown, key=lambda pair: (pair.topic, pair.window_start_ms, tiers.index(pair.lower_tier)))),
        watermarks=watermarks(pairs, tiers, rules.now_ms, {topic: each for topic, each in found.settled.items() if topic in topics}),
        untracked=_untracked(found, tiers, rules.topics),
        skewed=tuple(each for host, each in sorted(skewed.items()) if rules.topics is None or host.topic in rules.topics),
        gaps=tuple(gap for gap in found.gaps if gap.tier in tiers and (rules.topics is None or gap.topic in rules.topics)),
        unreadable=tuple(found.unreadable),
        uncovered={tier: tuple(topics) for tier, topics in uncovered.items()},
        awaited=tuple(tier for tier in uncovered if not says_what_it_counts(found, tier)) if rules.tiers and rules.topics else (),
        unheard=tuple(sorted(set(rules.topics or ()) - topics)),
        dead_letters={
            (tier, topic): count
            for (tier, topic), count in sorted(found.dead_letters.items())
            if count and tier in tiers and (rules.topics is None or topic in rules.topics)
        },
        settled=tuple(settled),
    )


def compared(found: TierCounts, rules: Rules) -> Iterator[tuple[str, list[str], list[WindowPair]]]:
    """By topic: the tiers that are meant to count it, and all windows of all neighbours among them."""
    tiers = rules.tiers or found.tiers
    behind = {host for host, each in skewed_hosts(found, rules.skew_ms, rules.behind_ms).items() if each.ahead_ms < 0}
    by_topic = _by_topic(found, tiers, rules.topics)
    for topic in found.settled:
        if rules.topics is None or topic in rules.topics:
            by_topic.setdefault(topic, {})
    for topic, by_tier in sorted(by_topic.items()):
        counting = counting_tiers(found, rules, topic)
        pairs: list[WindowPair] = []
        for upper, lower in pairwise(counting):
            pairs += Neighbours(found, rules, upper, lower, behind).windows(topic, by_tier.get(upper, {}), by_tier.get(lower, {}))
        yield topic, counting, pairs


def counting_tiers(found: TierCounts, rules: Rules, topic: str) -> list[str]:
    """The tiers that are meant to count a topic, in order."""
    return [
        tier for tier in rules.tiers or found.tiers if (rules.only[tier](topic) if tier in rules.only else covers(found, tier, topic))
    ]  # fmt: skip


def _settled(found: TierCounts, topic: str, counting: Sequence[str], pairs: Iterable[WindowPair]) -> Iterator[SettledPair]:
    """What is settled, for neighbours that had both counted it; a window that has late events is among `pairs`, and not counted twice."""
    known = found.settled.get(topic)
    for upper, lower in pairwise(counting):
        if known is not None and upper in known.tiers and lower in known.tiers:
            again = sum(pair.lower_tier == lower and pair.window_start_ms in known for pair in pairs)
            yield SettledPair(topic, upper, lower, known.count, known.windows - again, known.dead_letters.get(lower, 0))


def _untracked(found: TierCounts, tiers: Collection[str], topics: Collection[str] | None) -> dict[tuple[str, str], Count]:
    return {
        (tier, topic): count
        for (tier, topic), count in sorted(found.untracked.items())
        if tier in tiers and (topics is None or topic in topics)
    }


def _by_topic(found: TierCounts, tiers: Iterable[str], topics: Collection[str] | None) -> dict[str, dict[str, ByKey]]:
    split: dict[str, dict[str, ByKey]] = {}
    for tier in tiers:
        for key, told in found.counts.get(tier, {}).items():
            if topics is None or key.topic in topics:
                split.setdefault(key.topic, {}).setdefault(tier, {})[key] = told
    return split
