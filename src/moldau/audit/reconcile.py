"""Neighbouring tiers compared, by topic and window, and traced to the producer instances behind them (missions H3, H4). Pure.

For each instance in a window, *upper* is the count of the tier nearer to the producers:

==============================================  ===================================================================================
the same count and checksum                     complete
not the same, and changed within the grace      not yet due; "no counts yet" while the lower tier has never said anything
lower count lower                               loss
same count, other checksum                      loss hidden by duplication
lower count higher, upper tier vouches          duplication
lower count higher, upper is the producer,      producer counts incomplete; once the instance has been silent for the producer
which does not vouch                            timeout the log's count stands for what it sent, and it is complete
lower count higher, upper is another tier,      no counts yet: the upper tier is behind
which does not vouch
==============================================  ===================================================================================

A producer instance *vouches* for a window when it has closed and everything that it says to have counted was read, or when it has
published something a good while after the lower tier last counted events of it: an instance publishes all that changed every few seconds,
so what is not counted by then is no event of its own. So a killed instance, whose last events nobody counted, is never taken for one
whose events were doubled. A window is *due* when neither tier has changed it for the grace of the lower tier, and it has ended; late
events reopen it. A window of which the audit topic may have lost records, by its retention, is not compared: the counts of one tier go
before those of the next.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from moldau.audit.complete_until import watermarks
from moldau.audit.coverage import covers
from moldau.audit.settled import SettledPair
from moldau.audit.skew import HostKey, skewed_hosts
from moldau.audit.tiers import NOTHING, TierCounts, Told
from moldau.audit.verdicts import Report, SourceLine, Verdict, WindowPair
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.counts import WINDOW_MS, Count, CountKey

GRACE_MS = 120_000
PRODUCER_TIMEOUT_MS = 300_000
_ORDER = list(Verdict)
_UNHEARD = Told()


@dataclass(frozen=True, slots=True)
class Rules:
    """How tiers are compared. Times in ms."""

    now_ms: int
    tiers: tuple[str, ...] = ()
    """From the producers down; empty: producers, then auditors, then loads, each as they were first heard of."""
    grace_ms: int = GRACE_MS
    """How long a lower tier may take after the last change."""
    graces_ms: Mapping[str, int] = field(default_factory=dict)
    """The same by tier, where it is another."""
    only: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    """The topics that a tier is meant to count, if it is another answer than that of `covers`."""
    producer_timeout_ms: int = PRODUCER_TIMEOUT_MS
    """So long after the last sign of life of an instance that did not close, the log's count stands for its own."""
    vouch_ms: int = 180_000
    """How much later than the lower tier's last change an open instance has to be heard of: it counts an event when that is acknowledged,
    which may be two minutes after it is in the log; and clocks differ."""
    skew_ms: int = 300_000
    """Event times so far in the future are a wrong clock's."""
    behind_ms: int = 172_800_000
    """So much older than other hosts' events are those of a host whose clock is behind."""
    topics: Collection[str] | None = None
    """Only these; None: all."""
    since_ms: int | None = None
    """Only windows that end later; watermarks know the others too."""

    def grace_of(self, tier: str) -> int:
        """The grace of a lower tier."""
        return self.graces_ms.get(tier, self.grace_ms)

    def shows(self, pair: WindowPair) -> bool:
        """Whether a window is wanted in the report."""
        return self.since_ms is None or pair.window_end_ms > self.since_ms


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
        unheard=tuple(sorted(set(rules.topics or ()) - topics)),
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
            pairs += _Compared(found, rules, upper, lower, behind).windows(topic, by_tier.get(upper, {}), by_tier.get(lower, {}))
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
            yield SettledPair(topic, upper, lower, known.count, known.windows - again)


def _untracked(found: TierCounts, tiers: Collection[str], topics: Collection[str] | None) -> dict[tuple[str, str], Count]:
    return {
        (tier, topic): count
        for (tier, topic), count in sorted(found.untracked.items())
        if tier in tiers and (topics is None or topic in topics)
    }


ByKey = dict[CountKey, Told]


def _by_topic(found: TierCounts, tiers: Iterable[str], topics: Collection[str] | None) -> dict[str, dict[str, ByKey]]:
    split: dict[str, dict[str, ByKey]] = {}
    for tier in tiers:
        for key, told in found.counts.get(tier, {}).items():
            if topics is None or key.topic in topics:
                split.setdefault(key.topic, {}).setdefault(tier, {})[key] = told
    return split


@dataclass(frozen=True, slots=True)
class _Compared:
    """Two neighbouring tiers."""

    found: TierCounts
    rules: Rules
    upper: str
    lower: str
    behind: Collection[HostKey]
    """Hosts whose clocks are behind."""

    def windows(self, topic: str, upper: ByKey, lower: ByKey) -> list[WindowPair]:
        """All windows of a topic."""
        lines: dict[int, list[SourceLine]] = {}
        for key in filter(self._is_whole, upper.keys() | lower.keys()):
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
        lines.sort(key=lambda line: (_ORDER.index(line.verdict), not line.note, line.datacenter, line.service, line.host, line.instance))
        upper, lower = sum((line.upper for line in lines), NOTHING), sum((line.lower for line in lines), NOTHING)
        verdict = _worst({line.verdict for line in lines}, upper.count, lower.count)
        settled = all(line.settled for line in lines)
        return WindowPair(topic, start_ms, self.upper, self.lower, upper, lower, verdict, settled, tuple(lines))

    def line(self, key: CountKey, upper: Told, lower: Told) -> SourceLine:
        """One instance in one window."""
        changed_ms = max(upper.changed_ms, lower.changed_ms)
        ahead = key.window_start_ms > changed_ms + self.rules.skew_ms
        ended = ahead or self.rules.now_ms >= key.window_start_ms + WINDOW_MS
        due_ms = (changed_ms if ahead else max(changed_ms, key.window_start_ms + WINDOW_MS)) + self.rules.grace_of(self.lower)
        due = self.rules.now_ms >= due_ms
        verdict, note = self._judge(key, upper, lower, due=due, ended=ended)
        settled = due or (verdict is Verdict.COMPLETE and self._final(key))
        skewed = ahead or HostKey(key.topic, key.datacenter, key.service, key.host) in self.behind
        return SourceLine(*key[2:], upper.count, lower.count, verdict, settled, note, skewed)

    def _judge(self, key: CountKey, upper: Told, lower: Told, *, due: bool, ended: bool) -> tuple[Verdict, str]:
        above, below = upper.count, lower.count
        if (above.count, above.checksum) == (below.count, below.checksum):
            note = "" if above.bytes == below.bytes else f"but {below.bytes:,} bytes, not {above.bytes:,}"
            return (Verdict.COMPLETE if ended else Verdict.NOT_DUE), note
        if not due:
            unheard = self.lower not in self.found.heard_ms
            return (Verdict.NO_COUNTS, f"tier {self.lower} has published nothing yet") if unheard else (Verdict.NOT_DUE, "")
        if below.count < above.count:
            return Verdict.LOSS, self._with_silence(f"{above.count - below.count:,} of {above.count:,} missing", upper)
        if below.count == above.count:
            return Verdict.HIDDEN_LOSS, f"as many, but not the same {above.count:,}"
        more = f"{below.count - above.count:,} more than {above.count:,}"
        return self._judge_more(key, lower, more) if self.upper == PRODUCER_TIER else self._judge_more_than_a_tier(lower, more)

    def _judge_more(self, key: CountKey, lower: Told, more: str) -> tuple[Verdict, str]:
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

    def _judge_more_than_a_tier(self, lower: Told, more: str) -> tuple[Verdict, str]:
        vouched_ms = self.found.vouches_until(self.upper)
        if vouched_ms >= lower.changed_ms:
            return Verdict.DUPLICATION, more
        return Verdict.NO_COUNTS, f"{more}; tier {self.upper} {_heard(vouched_ms)}"

    def _with_silence(self, missing: str, upper: Told) -> str:
        vouched_ms = self.found.vouches_until(self.lower)
        return missing if vouched_ms >= upper.changed_ms else f"{missing}; tier {self.lower} {_heard(vouched_ms)}"

    def _final(self, key: CountKey) -> bool:
        instance = self.found.instances.get(key.instance)
        return instance is not None and instance.final


def _worst(verdicts: set[Verdict], above: int, below: int) -> Verdict:
    """The verdict for a window with these among its instances: one host's loss is not made good by another one's duplication."""
    if verdicts >= {Verdict.LOSS, Verdict.DUPLICATION}:
        return Verdict.HIDDEN_LOSS if above == below else Verdict.LOSS
    return min(verdicts, key=_ORDER.index)


def _heard(time_ms: int) -> str:
    return f"has counted everything only up to {moment(time_ms)}" if time_ms else "has published nothing yet"


def moment(time_ms: int) -> str:
    """A time as people read it, in UTC: ``2013-01-01T12:00:05Z``; one beyond the years that there are as a number."""
    from datetime import UTC, datetime, timedelta

    try:
        return f"{(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time_ms // 1000)).isoformat()[:19]}Z"
    except OverflowError:
        return f"@{time_ms}"
