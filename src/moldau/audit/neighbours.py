"""Two neighbouring tiers compared, by window, and traced to the producer instances that wrote them. Pure.

Counts are published soon after events happened, or long after for a replay of old ones, but never before. A host is *ahead* if it has
published an event of the future. It is *behind* if the newest events that it ever published were much older than those of other hosts
of its topic: a replay is old on all hosts alike, and late events of a host that has current ones too do not count.

For each instance in a window, *upper* is the count of the tier nearer to the producers:

==============================================  ===================================================================================
the same count and checksum                     complete
not the same, and changed within the grace      not yet due; "not counted yet" while the lower tier has never said anything
lower count lower or the same, with another     not counted yet: the lower tier lags; never a loss
checksum, and the lower tier does not vouch
lower count lower                               loss
same count, other checksum                      loss hidden by duplication; "not counted yet" where the upper one is a tier that lags
lower count higher, upper tier vouches          duplication
lower count higher, upper is the producer,      producer counts incomplete; once the instance has been silent for the producer
which does not vouch                            timeout the log's count is taken as what it sent, and it is complete
lower count higher, upper is another tier,      not counted yet: the upper tier lags
which does not vouch
==============================================  ===================================================================================

A tier *vouches* for what the other one counted if it has said since that it has counted everything (`TierCounts.vouches_until`): by marks,
or by newer counts where a tier publishes no marks.

A producer instance *vouches* for a window when it has closed and everything that it says to have counted was read, or when it has
published something a good while after the lower tier last counted events of it: an instance publishes all that changed every few seconds,
so what is not counted by then is no event of its own. So a killed instance, whose last events it never counted, is never taken for one
whose events were doubled. A window is *due* when neither tier has changed it for the grace of the lower tier, and it has ended; late
events reopen it. A window of which the audit topic may have lost records, by its retention, is not compared: the counts of one tier go
before those of the next.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCount, TierCounts
from moldau.audit.verdicts import SkewedHost, SourceLine, Verdict, WindowPair
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.clock import moment
from moldau.tracking.counts import NOTHING, WINDOW_MS, Count, CountKey


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
        for key, told in found.counts[tier].items():
            if told.lag_ms is not None:
                yield HostKey(key.topic, key.datacenter, key.service, key.host), told.lag_ms


ByKey = dict[CountKey, TierCount]

_ORDER = list(Verdict)
_UNHEARD = TierCount()


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two tiers of which one comes after the other."""

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

    def line(self, key: CountKey, upper: TierCount, lower: TierCount) -> SourceLine:
        """One instance in one window."""
        changed_ms = max(upper.changed_ms, lower.changed_ms)
        ahead = key.window_start_ms > changed_ms + self.rules.skew_ms
        ended = ahead or self.rules.now_ms >= key.window_start_ms + WINDOW_MS
        due_ms = (changed_ms if ahead else max(changed_ms, key.window_start_ms + WINDOW_MS)) + self.rules.grace_of(self.lower)
        due = self.rules.now_ms >= due_ms
        verdict, note = self._judge(key, upper, lower, due=due, ended=ended)
        settled = due or (verdict is Verdict.COMPLETE and self._final(key))
        skewed = ahead or HostKey(key.topic, key.datacenter, key.service, key.host) in self.behind
        judged_ms = key.window_start_ms + WINDOW_MS if _agree(upper.count, lower.count) else due_ms
        until_ms = judged_ms if verdict is Verdict.NOT_DUE else None
        return SourceLine(*key[2:], upper.count, lower.count, verdict, settled, note, skewed, lower.dead_letters, until_ms)

    def _judge(self, key: CountKey, upper: TierCount, lower: TierCount, *, due: bool, ended: bool) -> tuple[Verdict, str]:
        above, below = upper.count, lower.count
        if _agree(above, below):
            note = "" if above.bytes == below.bytes else f"but {below.bytes:,} bytes, not {above.bytes:,}"
            return (Verdict.COMPLETE if ended else Verdict.NOT_DUE), note
        if not due:
            unheard = self.lower not in self.found.heard_ms
            return (Verdict.NOT_COUNTED, f"tier {self.lower} has published nothing yet") if unheard else (Verdict.NOT_DUE, "")
        if below.count > above.count:
            more = f"{below.count - above.count:,} more than {above.count:,}"
            return self._judge_more(key, lower, more) if self.upper == PRODUCER_TIER else self._judge_more_than_a_tier(key, lower, more)
        missing = f"{above.count - below.count:,} of {above.count:,}" if below.count < above.count else "some"
        if (counted_ms := self.found.vouches_until(self.lower, key.topic)) < upper.changed_ms:
            return Verdict.NOT_COUNTED, f"{missing} not counted; tier {self.lower} {_heard(counted_ms)}"
        if below.count < above.count:
            return Verdict.LOSS, f"{missing} missing"
        counted_ms = self.found.vouches_until(self.upper, key.topic)
        if self.upper != PRODUCER_TIER and counted_ms < lower.changed_ms:
            return Verdict.NOT_COUNTED, f"not the same {above.count:,}; tier {self.upper} {_heard(counted_ms)}"
        return Verdict.HIDDEN_LOSS, f"as many, but not the same {above.count:,}"

    def _judge_more(self, key: CountKey, lower: TierCount, more: str) -> tuple[Verdict, str]:
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

    def _judge_more_than_a_tier(self, key: CountKey, lower: TierCount, more: str) -> tuple[Verdict, str]:
        vouched_ms = self.found.vouches_until(self.upper, key.topic)
        if vouched_ms >= lower.changed_ms:
            return Verdict.DUPLICATION, more
        return Verdict.NOT_COUNTED, f"{more}; tier {self.upper} {_heard(vouched_ms)}"

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


def _heard(time_ms: int) -> str:
    return f"has counted everything only up to {moment(time_ms)}" if time_ms else "has published nothing yet"
