"""All tiers compared, each with the next one, by topic and window: the report. Pure.

``moldau.audit.neighbours`` is how two tiers are compared, ``moldau.audit.rules`` how patiently.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from moldau.audit.complete_until import watermarks
from moldau.audit.coverage import covers, says_what_it_counts
from moldau.audit.neighbours import ByKey, Neighbours
from moldau.audit.rules import Rules
from moldau.audit.settled import SettledPair
from moldau.audit.skew import skewed_hosts
from moldau.audit.tiers import TierCounts
from moldau.audit.verdicts import Report, WindowPair
from moldau.tracking.counts import Count


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
