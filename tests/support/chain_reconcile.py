"""Comparing a chain of tiers, pair by pair, as it was done before there were trees: slow to extend, and obvious. For a property test."""

from collections.abc import Iterable
from itertools import pairwise

from moldau.audit.reconcile import skewed_hosts
from moldau.audit.rules import Rules, covers
from moldau.audit.tiers import TierCount, TierCounts
from moldau.audit.verdicts import Verdict
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.clock import moment
from moldau.tracking.counts import WINDOW_MS, Count, CountKey

Line = tuple[CountKey, str, str, Count, Count, Verdict, str, bool, bool]
"""What, by which two tiers, their counts, the verdict, its note, whether it is settled, whether its host's clock is wrong."""

_UNHEARD = TierCount()


def compared_pairwise(found: TierCounts, tiers: tuple[str, ...], rules: Rules) -> list[Line]:
    """Each instance and window of each topic, as each two neighbours counted it."""
    topics = {key.topic for tier in tiers for key in found.counts.get(tier, ())}
    lines: list[Line] = []
    for topic in sorted(topics):
        counting = [tier for tier in tiers if covers(found, tier, topic)]
        for upper, lower in pairwise(counting):
            above = {key: entry for key, entry in found.counts.get(upper, {}).items() if key.topic == topic}
            below = {key: entry for key, entry in found.counts.get(lower, {}).items() if key.topic == topic}
            lines += [_line(found, rules, (upper, lower), key, above.get(key, _UNHEARD), below.get(key, _UNHEARD)) for key in above | below]
    return sorted(lines, key=lambda line: (line[0], line[2]))


def pairwise_watermarks(lines: Iterable[Line], tiers: tuple[str, ...], now_ms: int) -> dict[tuple[str, str], int | None]:
    """Up to when each topic is complete, from the first tier down to each."""
    lines = list(lines)
    found: dict[tuple[str, str], int | None] = {}
    for topic, lower in sorted({(line[0].topic, line[2]) for line in lines}):
        down_to = tiers[: tiers.index(lower) + 1]
        starts: dict[int, bool] = {}
        for line in lines:
            start_ms = line[0].window_start_ms
            if line[0].topic == topic and not line[8] and start_ms <= now_ms:
                sound = line[5] is Verdict.COMPLETE and line[7] and start_ms + WINDOW_MS <= now_ms
                starts[start_ms] = starts.get(start_ms, True) and (sound or line[2] not in down_to)
        unsound = min((start_ms for start_ms, sound in starts.items() if not sound), default=None)
        ends = [start_ms + WINDOW_MS for start_ms in starts if unsound is None or start_ms < unsound]
        found[topic, lower] = max(ends, default=None)
    return found


def _line(found: TierCounts, rules: Rules, tiers: tuple[str, str], key: CountKey, upper: TierCount, lower: TierCount) -> Line:
    changed_ms = max(upper.changed_ms, lower.changed_ms)
    ahead = key.window_start_ms > changed_ms + rules.skew_ms
    ended = ahead or rules.now_ms >= key.window_start_ms + WINDOW_MS
    due = rules.now_ms >= (changed_ms if ahead else max(changed_ms, key.window_start_ms + WINDOW_MS)) + rules.grace_of(tiers[1])
    verdict, note = _judge(found, rules, tiers, key, upper, lower, due=due, ended=ended)
    instance = found.instances.get(key.instance)
    settled = due or (verdict is Verdict.COMPLETE and instance is not None and instance.final)
    behind = [host for host, each in skewed_hosts(found, rules.skew_ms, rules.behind_ms).items() if each.ahead_ms < 0]
    skewed = ahead or (key.topic, key.datacenter, key.service, key.host) in behind
    return key, *tiers, upper.count, lower.count, verdict, note, settled, skewed


def _judge(
    found: TierCounts, rules: Rules, tiers: tuple[str, str], key: CountKey, upper: TierCount, lower: TierCount, *, due: bool, ended: bool
) -> tuple[Verdict, str]:
    above, below = upper.count, lower.count
    if (above.count, above.checksum) == (below.count, below.checksum):
        return Verdict.COMPLETE if ended else Verdict.NOT_DUE, ""
    if not due:
        unheard = tiers[1] not in found.heard_ms
        return (Verdict.NOT_COUNTED, f"tier {tiers[1]} has published nothing yet") if unheard else (Verdict.NOT_DUE, "")
    above_ms, below_ms = (found.vouches_until(tier, key.topic) for tier in tiers)
    if below.count > above.count:
        more = f"{below.count - above.count:,} more than {above.count:,}"
        if tiers[0] == PRODUCER_TIER:
            return _more_than_producers(found, rules, key, lower, more)
        return (
            (Verdict.DUPLICATION, more) if above_ms >= lower.changed_ms else (Verdict.NOT_COUNTED, f"{more}; {_lags(tiers[0], above_ms)}")
        )
    missing = f"{above.count - below.count:,} of {above.count:,}" if below.count < above.count else "some"
    if below_ms < upper.changed_ms:
        return Verdict.NOT_COUNTED, f"{missing} not counted; {_lags(tiers[1], below_ms)}"
    if below.count < above.count:
        return Verdict.LOSS, f"{missing} missing"
    if tiers[0] != PRODUCER_TIER and above_ms < lower.changed_ms:
        return Verdict.NOT_COUNTED, f"not the same {above.count:,}; {_lags(tiers[0], above_ms)}"
    return Verdict.HIDDEN_LOSS, f"as many, but not the same {above.count:,}"


def _more_than_producers(found: TierCounts, rules: Rules, key: CountKey, lower: TierCount, more: str) -> tuple[Verdict, str]:
    instance = found.instances.get(key.instance)
    if instance is not None and (instance.final or instance.vouched_ms >= lower.changed_ms + rules.vouch_ms):
        return Verdict.DUPLICATION, more
    heard_ms = lower.changed_ms if instance is None else instance.heard_ms
    what = "never said that it opened" if instance is None else "closed, but not all that it counted is here"
    if instance is not None and instance.closed_ms is None:
        what = f"silent since {moment(heard_ms)}"
    if rules.now_ms < heard_ms + rules.producer_timeout_ms:
        return Verdict.PRODUCER_INCOMPLETE, f"{more}; instance {key.instance} {what}"
    return Verdict.COMPLETE, f"counted from the log, {more}; instance {key.instance} {what}"


def _lags(tier: str, time_ms: int) -> str:
    return f"tier {tier} " + (f"has counted everything only up to {moment(time_ms)}" if time_ms else "has published nothing yet")
