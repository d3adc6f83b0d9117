"""All tiers compared, each with those that it takes its events from, by topic and window: the report. Pure.

A tier is compared with the sum of those above it by producer instance and window; a difference is traced to the instances that wrote the
events. ``moldau.audit.tree`` is which tiers those are, ``moldau.audit.rules`` how patiently. An instance sends to one cluster: where
several take from producers it is at home in the one that has counted any event of it, otherwise in the one of its datacenter.

A window of a tier above which there are several is complete once each of these has counted everything up to its end: an event of one of
them may be on its way while all that is known agrees.

A *watermark* is the end of the newest window such that it and all windows of the topic before it are complete, from the producers down to
the tier, and settled. Late events reopen an old window: until they arrive in all tiers, the watermark goes back before it. Windows of hosts
with wrong clocks do not hold it up, nor raise it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moldau.audit.rules import Rules, covers, publishes_its_topics
from moldau.audit.tiers import SettledPair, SettledWindows, TierCount, TierCounts
from moldau.audit.tree import Feed, TierTree
from moldau.audit.verdicts import Report, SkewedHost, SourceLine, Verdict, WindowPair, joined
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.clock import moment
from moldau.tracking.counts import NOTHING, WINDOW_MS, Count, CountKey
from moldau.tracking.latencies import Latencies


class HostKey(NamedTuple):
    """A service of a topic on its host."""

    topic: str
    datacenter: str
    service: str
    host: str


def skewed_hosts(found: TierCounts, tolerance_ms: int, behind_ms: int) -> dict[HostKey, SkewedHost]:
    """The hosts ahead by more than `tolerance_ms`, and behind by more than `behind_ms`."""
    lags: dict[str, dict[HostKey, int]] = {}
    for host, lag_ms in _lags(found):
        topic = lags.setdefault(host.topic, {})
        topic[host] = min(lag_ms, topic.get(host, lag_ms))
    skewed: dict[HostKey, SkewedHost] = {}
    for topic in lags.values():
        for host, lag_ms in topic.items():
            others = [lag for other, lag in topic.items() if other != host and lag >= -tolerance_ms]
            if lag_ms < -tolerance_ms:
                skewed[host] = SkewedHost(*host, ahead_ms=-lag_ms)
            elif others and lag_ms - _middle(others) > behind_ms:
                skewed[host] = SkewedHost(*host, ahead_ms=_middle(others) - lag_ms)
    return skewed


def _middle(lags: list[int]) -> int:
    return sorted(lags)[(len(lags) - 1) // 2]


def _lags(found: TierCounts) -> Iterable[tuple[HostKey, int]]:
    """By host, how much later than its newest event a count was published; by producers, where there are some."""
    for known, lag_ms in found.lags.items():
        yield HostKey(*known), lag_ms
    tiers = [PRODUCER_TIER] if PRODUCER_TIER in found.counts else list(found.counts)
    for tier in tiers:
        for key, entry in found.counts[tier].items():
            if entry.lag_ms is not None:
                yield HostKey(key.topic, key.datacenter, key.service, key.host), entry.lag_ms


ByKey = dict[CountKey, TierCount]

_ORDER = list(Verdict)
_PLACES = {verdict: place for place, verdict in enumerate(Verdict)}
_UNHEARD = TierCount()


@dataclass(frozen=True, slots=True)
class Edge:
    """A tier and those above it, of one topic."""

    found: TierCounts
    rules: Rules
    uppers: Mapping[str, ByKey]
    """What the lower tier should have, by the tiers above it; together with a count of the same key in several of them."""
    lower: str
    behind: Collection[HostKey]
    """Hosts whose clocks are behind."""

    def windows(self, topic: str, lower: ByKey) -> list[WindowPair]:
        """All windows of the topic."""
        lines: dict[int, list[SourceLine]] = {}
        upper = _summed(list(self.uppers.values()))
        keys: Iterable[CountKey] = upper.keys() | lower.keys()
        for key in filter(self._is_whole, keys) if topic in self.found.forgotten_ms else keys:
            lines.setdefault(key.window_start_ms, []).append(self.line(key, upper.get(key, _UNHEARD), lower.get(key, _UNHEARD)))
        return [self._summed_up(topic, start_ms, found) for start_ms, found in lines.items()]

    def _is_whole(self, key: CountKey) -> bool:
        """Whether no count of it can be among the records that the audit topic has lost: they were all published later."""
        forgotten_ms = self.found.forgotten_ms.get(key.topic)
        if forgotten_ms is None or key.window_start_ms >= forgotten_ms + self.rules.skew_ms:
            return True
        instance = self.found.instances.get(key.instance)
        return instance is not None and instance.opened_ms is not None and instance.opened_ms >= forgotten_ms

    def _summed_up(self, topic: str, start_ms: int, lines: list[SourceLine]) -> WindowPair:
        lines.sort(key=lambda line: (_PLACES[line.verdict], not line.note, line.datacenter, line.service, line.host, line.instance))
        upper, lower, verdicts, settled = NOTHING, NOTHING, set(), True
        for line in lines:
            upper, lower, settled = upper + line.upper, lower + line.lower, settled and line.settled
            verdicts.add(line.verdict)
        verdict = _worst(verdicts, upper.count, lower.count) if len(verdicts) > 1 else lines[0].verdict
        undecided = () if all(line.skewed for line in lines) else self._undecided(topic, start_ms + WINDOW_MS)
        if undecided and verdict is Verdict.COMPLETE:
            verdict = Verdict.NOT_COUNTED
        settled = settled and not undecided
        name = joined(self.uppers)
        return WindowPair(topic, start_ms, name, self.lower, upper, lower, verdict, settled, tuple(lines), undecided)

    def _undecided(self, topic: str, end_ms: int) -> tuple[str, ...]:
        """Of several upper tiers those that have not counted everything up to a time."""
        if len(self.uppers) < 2:
            return ()
        return tuple(tier for tier in self.uppers if tier != PRODUCER_TIER and self.found.vouches_until(tier, topic) < end_ms)

    def _counted_by(self, key: CountKey) -> tuple[str, ...]:
        """The upper tiers that the difference of a key is about: those that have counted it; all of them if none did."""
        if len(self.uppers) == 1:
            return tuple(self.uppers)
        return tuple(tier for tier, counts in self.uppers.items() if key in counts) or tuple(self.uppers)

    def _lagging(self, key: CountKey, since_ms: int) -> tuple[str, int] | None:
        """One of those that has not counted everything up to a time, and up to when it has. Producers vouch by instance."""
        vouched = [(tier, self.found.vouches_until(tier, key.topic)) for tier in self._counted_by(key) if tier != PRODUCER_TIER]
        return next(((tier, counted_ms) for tier, counted_ms in vouched if counted_ms < since_ms), None)

    def line(self, key: CountKey, upper: TierCount, lower: TierCount) -> SourceLine:
        """One instance in one window."""
        changed_ms = max(upper.changed_ms, lower.changed_ms)
        ahead = key.window_start_ms > changed_ms + self.rules.skew_ms
        ended = ahead or self.rules.now_ms >= key.window_start_ms + WINDOW_MS
        due_ms = (changed_ms if ahead else max(changed_ms, key.window_start_ms + WINDOW_MS)) + self.rules.grace_of(self.lower)
        due = self.rules.now_ms >= due_ms
        verdict, note = self._judge(key, upper, lower, due=due, ended=ended)
        settled = due or (verdict is Verdict.COMPLETE and self._final(key))
        skewed = ahead or (bool(self.behind) and HostKey(key.topic, key.datacenter, key.service, key.host) in self.behind)
        until_ms = None
        if verdict is Verdict.NOT_DUE:
            until_ms = key.window_start_ms + WINDOW_MS if _agree(upper.count, lower.count) else due_ms
        return SourceLine(
            *key[2:], upper.count, lower.count, verdict, settled, note, skewed, lower.dead_letters, until_ms, self._counted_by(key)
        )

    def _judge(self, key: CountKey, upper: TierCount, lower: TierCount, *, due: bool, ended: bool) -> tuple[Verdict, str]:
        above, below = upper.count, lower.count
        if _agree(above, below):
            note = "" if above.bytes == below.bytes else f"but {below.bytes:,} bytes, not {above.bytes:,}"
            return (Verdict.COMPLETE if ended else Verdict.NOT_DUE), note
        if not due:
            unheard = self.lower not in self.found.heard_ms
            return (Verdict.NOT_COUNTED, f"tier {self.lower} has published nothing yet") if unheard else (Verdict.NOT_DUE, "")
        if below.count > above.count:
            return self._judge_more(key, lower, f"{below.count - above.count:,} more than {above.count:,}")
        missing = f"{above.count - below.count:,} of {above.count:,}" if below.count < above.count else "some"
        if (counted_ms := self.found.vouches_until(self.lower, key.topic)) < upper.changed_ms:
            return Verdict.NOT_COUNTED, f"{missing} not counted; tier {self.lower} {_counted_up_to(counted_ms)}"
        if below.count < above.count:
            return Verdict.LOSS, f"{missing} missing"
        if (lags := self._lagging(key, lower.changed_ms)) is not None:
            return Verdict.NOT_COUNTED, f"not the same {above.count:,}; tier {lags[0]} {_counted_up_to(lags[1])}"
        return Verdict.HIDDEN_LOSS, f"as many, but not the same {above.count:,}"

    def _judge_more(self, key: CountKey, lower: TierCount, more: str) -> tuple[Verdict, str]:
        if (lags := self._lagging(key, lower.changed_ms)) is not None:
            return Verdict.NOT_COUNTED, f"{more}; tier {lags[0]} {_counted_up_to(lags[1])}"
        if PRODUCER_TIER not in self._counted_by(key):
            return Verdict.DUPLICATION, more
        return self._judge_more_than_producers(key, lower, more)

    def _judge_more_than_producers(self, key: CountKey, lower: TierCount, more: str) -> tuple[Verdict, str]:
        instance = self.found.instances.get(key.instance)
        if instance is not None and (instance.final or instance.vouched_ms >= lower.changed_ms + self.rules.vouch_ms):
            return Verdict.DUPLICATION, more
        heard_ms = lower.changed_ms if instance is None else instance.heard_ms
        what = "never said that it opened" if instance is None else "closed, but not all that it counted is here"
        if instance is not None and instance.closed_ms is None:
            what = f"silent since {moment(heard_ms)}"
        if self.rules.now_ms < heard_ms + self.rules.producer_timeout_ms:
            return Verdict.PRODUCER_INCOMPLETE, f"{more}; instance {key.instance} {what}"
        return Verdict.COMPLETE, f"counted from the log, {more}; instance {key.instance} {what}"

    def _final(self, key: CountKey) -> bool:
        instance = self.found.instances.get(key.instance)
        return instance is not None and instance.final


def _agree(above: Count, below: Count) -> bool:
    return (above.count, above.checksum) == (below.count, below.checksum)


def _worst(verdicts: set[Verdict], above: int, below: int) -> Verdict:
    """The verdict for a window with these among its instances: one host's loss is not made good by another one's duplication."""
    if verdicts >= {Verdict.LOSS, Verdict.DUPLICATION}:
        return Verdict.HIDDEN_LOSS if above == below else Verdict.LOSS
    return min(verdicts, key=_ORDER.index)


def _summed(parts: Sequence[ByKey]) -> ByKey:
    """The counts of several tiers; of one as they are."""
    if len(parts) == 1:
        return parts[0]
    total: ByKey = {}
    for part in parts:
        for key, entry in part.items():
            known = total.get(key)
            total[key] = entry if known is None else TierCount(known.count + entry.count, max(known.changed_ms, entry.changed_ms))
    return total


def _counted_up_to(time_ms: int) -> str:
    return f"has counted everything only up to {moment(time_ms)}" if time_ms else "has published nothing yet"


_NOTHING_SETTLED = SettledWindows()


def watermarks(
    pairs: Iterable[WindowPair], tree: TierTree, now_ms: int, settled: Mapping[str, SettledWindows]
) -> dict[tuple[str, str], int | None]:
    """By topic and lower tier, in ms; None while nothing is complete. `settled` are windows that no longer have pairs."""
    windows: dict[str, dict[int, dict[str, bool]]] = {}
    lower_tiers: dict[str, set[str]] = {}
    for topic, each in settled.items():
        lower_tiers[topic] = {tier for tier in each.tiers if tier in each.shares and tree.feeds(tier, each.tiers)}
    for pair in pairs:
        lower_tiers.setdefault(pair.topic, set()).add(pair.lower_tier)
        if not pair.skewed and pair.window_start_ms <= now_ms:
            sound = pair.sound and pair.window_end_ms <= now_ms
            windows.setdefault(pair.topic, {}).setdefault(pair.window_start_ms, {})[pair.lower_tier] = sound
    found: dict[tuple[str, str], int | None] = {}
    for topic, lowers in sorted(lower_tiers.items()):
        before = settled.get(topic, _NOTHING_SETTLED)
        for tier in tree.names:
            if tier in lowers:
                found[topic, tier] = _watermark(windows.get(topic, {}), lowers & {tier, *tree.above(tier)}, before)
    return found


def _watermark(windows: Mapping[int, Mapping[str, bool]], tiers: set[str], settled: SettledWindows) -> int | None:
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
    """Compare all tiers with those above them."""
    tree = _tree(found, rules)
    tiers = tree.names
    skewed = skewed_hosts(found, rules.skew_ms, rules.behind_ms)
    pairs: list[WindowPair] = []
    settled: list[SettledPair] = []
    uncovered: dict[str, list[str]] = {}
    topics = set()
    for topic, counting, theirs in compared(found, rules):
        topics.add(topic)
        pairs += theirs
        settled += _settled(found, tree, topic, counting, [pair for pair in theirs if rules.shows(pair)])
        for tier in tiers:
            if tier not in counting and tier not in rules.only:
                uncovered.setdefault(tier, []).append(topic)
    shown = [pair for pair in pairs if rules.shows(pair)]
    return Report(
        tiers=tiers,
        pairs=tuple(sorted(shown, key=lambda pair: (pair.topic, pair.window_start_ms, tiers.index(pair.lower_tier)))),
        watermarks=watermarks(pairs, tree, rules.now_ms, {topic: each for topic, each in found.settled.items() if topic in topics}),
        untracked=_untracked(found, tiers, rules.topics),
        skewed=tuple(each for host, each in sorted(skewed.items()) if rules.topics is None or host.topic in rules.topics),
        gaps=tuple(gap for gap in found.gaps if gap.tier in tiers and (rules.topics is None or gap.topic in rules.topics)),
        unreadable=tuple(found.unreadable),
        uncovered={tier: tuple(topics) for tier, topics in uncovered.items()},
        awaited=tuple(tier for tier in uncovered if not publishes_its_topics(found, tier)) if rules.tiers and rules.topics else (),
        unheard=tuple(sorted(set(rules.topics or ()) - topics)),
        dead_letters={
            (tier, topic): count
            for (tier, topic), count in sorted(found.dead_letters.items())
            if count and tier in tiers and (rules.topics is None or topic in rules.topics)
        },
        settled=tuple(settled),
        shared={tier: tuple(clusters) for tier in tiers if len(clusters := found.clusters_of(tier)) > 1},
        latencies=_latencies(found, tiers, rules),
    )


def _tree(found: TierCounts, rules: Rules) -> TierTree:
    return rules.tree or TierTree.chain(found.tiers)


def compared(found: TierCounts, rules: Rules) -> Iterator[tuple[str, list[str], list[WindowPair]]]:
    """By topic: the tiers that have to count it, and all windows of all edges among them."""
    tree = _tree(found, rules)
    behind = {host for host, each in skewed_hosts(found, rules.skew_ms, rules.behind_ms).items() if each.ahead_ms < 0}
    by_topic = _by_topic(found, tree.names, rules.topics)
    homes = _Homes(found, tree)
    for topic in found.settled:
        if rules.topics is None or topic in rules.topics:
            by_topic.setdefault(topic, {})
    for topic, by_tier in sorted(by_topic.items()):
        counting = counting_tiers(found, rules, topic)
        pairs: list[WindowPair] = []
        for lower in counting:
            feeds = tree.feeds(lower, counting)
            if feeds:
                uppers = {feed.tier: homes.of(feed, by_tier.get(feed.tier, {})) for feed in feeds}
                pairs += Edge(found, rules, uppers, lower, behind).windows(topic, by_tier.get(lower, {}))
        yield topic, counting, pairs


class _Homes:
    """Which of the tiers that take from producers an instance sends to."""

    def __init__(self, found: TierCounts, tree: TierTree) -> None:
        self._locals = tree.locals
        self._of_instances: dict[str, str] = {}
        if len(self._locals) > 1:
            for tier in self._locals:
                for instance, tiers in found.counted_by.items():
                    if tier.name in tiers:
                        self._of_instances.setdefault(instance, tier.name)
                for key in found.counts.get(tier.name, ()):
                    if key.instance not in self._of_instances or key.datacenter in tier.datacenters:
                        self._of_instances[key.instance] = tier.name

    def of(self, feed: Feed, counts: ByKey) -> ByKey:
        """What comes by this feed of the counts of its tier."""
        if not feed.homes or len(feed.homes) == len(self._locals):
            return counts
        return {key: entry for key, entry in counts.items() if self._home(key) in feed.homes}

    def _home(self, key: CountKey) -> str:
        known = self._of_instances.get(key.instance)
        if known is not None:
            return known
        return next((tier.name for tier in self._locals if key.datacenter in tier.datacenters), self._locals[0].name)


def counting_tiers(found: TierCounts, rules: Rules, topic: str) -> list[str]:
    """The tiers that have to count a topic, in order."""
    return [
        tier for tier in _tree(found, rules).names if (rules.only[tier](topic) if tier in rules.only else covers(found, tier, topic))
    ]  # fmt: skip


def _settled(found: TierCounts, tree: TierTree, topic: str, counting: Sequence[str], pairs: Iterable[WindowPair]) -> Iterator[SettledPair]:
    """What is settled, for edges whose tiers had all counted it; a window that has late events is among `pairs`, and not counted twice."""
    known = found.settled.get(topic)
    if known is None:
        return
    shares = known.shares
    again = Counter(pair.lower_tier for pair in pairs if pair.lower_tier in shares and pair.window_start_ms in shares[pair.lower_tier])
    for lower in counting:
        uppers = [feed.tier for feed in tree.feeds(lower, counting)]
        if uppers and lower in shares and {lower, *uppers} <= set(known.tiers):
            share = shares[lower]
            yield SettledPair(topic, joined(uppers), lower, share.count, share.windows - again[lower], share.dead_letters)


def _untracked(found: TierCounts, tiers: Collection[str], topics: Collection[str] | None) -> dict[tuple[str, str], Count]:
    return {
        (tier, topic): count
        for (tier, topic), count in sorted(found.untracked.items())
        if tier in tiers and (topics is None or topic in topics)
    }


def _latencies(found: TierCounts, tiers: Sequence[str], rules: Rules) -> dict[tuple[str, str, int], Latencies]:
    return {
        (topic, tier, start_ms): found.latencies[tier, topic, start_ms]
        for tier, topic, start_ms in sorted(found.latencies, key=lambda window: (window[1], window[2], window[0]))
        if tier in tiers and (rules.topics is None or topic in rules.topics) and rules.shows_window(start_ms)
    }


def _by_topic(found: TierCounts, tiers: Iterable[str], topics: Collection[str] | None) -> dict[str, dict[str, ByKey]]:
    split: dict[str, dict[str, ByKey]] = {}
    for tier in tiers:
        for key, entry in found.counts.get(tier, {}).items():
            if topics is None or key.topic in topics:
                split.setdefault(key.topic, {}).setdefault(tier, {})[key] = entry
    return split
