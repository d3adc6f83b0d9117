"""The audit watched for months: counts that no comparison needs are dropped.

Once an hour windows that are settled (`moldau.audit.tiers`) leave the counts, latencies of windows older than a day are dropped, and
whatever the audit topic itself does not keep any
longer goes: counts, instances and gaps older than its month. Guids are kept for a day or two; they make a record that is published twice
harmless. So one that comes later than that, and a tier that joins when windows are settled, have the whole topic read again.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.audit.follow import read_audits
from moldau.audit.reconcile import compared, counting_tiers, reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import SettledWindows, TierCount, TierCounts
from moldau.audit.verdicts import Report, Verdict, WindowPair
from moldau.client.cluster import Cluster
from moldau.tracking.audit_record import AUDIT_RETENTION_MS, PRODUCER_TIER
from moldau.tracking.counts import CountKey

EVERY_MS: Final = 3_600_000
SETTLED_MS: Final = 24 * 3_600_000
"""A window has to be untouched for so long."""


class Watch:
    """The audit over time: each look reads the new records."""

    def __init__(self) -> None:
        self.found = TierCounts()
        self._forgot_ms: int | None = None
        self._guids_ms = 0

    def look(self, clusters: Mapping[str, Cluster], rules: Rules) -> Report:
        """How the tiers compare now, by the audit topics of these. UnreachableError, ConnectionLostError, RequestFailedError."""
        self.found = read_audits(clusters, self.found)
        if any(not set(counting_tiers(self.found, rules, topic)).issubset(each.tiers) for topic, each in self.found.settled.items()):
            self.found.stale = True
            self.found = read_audits(clusters, self.found)
        return self.compare(rules)

    def compare(self, rules: Rules) -> Report:
        """How they compare, by what was read so far."""
        if self._forgot_ms is None:
            self._forgot_ms = self._guids_ms = rules.now_ms
        if rules.now_ms >= self._forgot_ms + EVERY_MS:
            self._forgot_ms = rules.now_ms
            forget(self.found, rules)
            if rules.now_ms >= self._guids_ms + SETTLED_MS:
                self._guids_ms = rules.now_ms
                self.found.forget_guids()
        return reconcile(self.found, rules)


def forget(found: TierCounts, rules: Rules) -> None:
    """Take out of the counts what no comparison by these rules needs."""
    windows: dict[tuple[str, int], list[WindowPair]] = {}
    tiers: dict[str, tuple[str, ...]] = {}
    for topic, counting, pairs in compared(found, rules):
        tiers[topic] = tuple(counting)
        for pair in pairs:
            windows.setdefault((topic, pair.window_start_ms), []).append(pair)
    keys: dict[tuple[str, int], list[tuple[str, CountKey, TierCount]]] = {}
    for tier, counts in found.counts.items():
        for key, entry in counts.items():
            keys.setdefault((key.topic, key.window_start_ms), []).append((tier, key, entry))
    for (topic, start_ms), theirs in keys.items():
        changed_ms = max(entry.changed_ms for _, _, entry in theirs)
        pairs = windows.get((topic, start_ms), [])
        wanted = rules.topics is None or topic in rules.topics
        if changed_ms < rules.now_ms - AUDIT_RETENTION_MS or not wanted:
            _drop(found, theirs)
        elif pairs and changed_ms < rules.now_ms - SETTLED_MS and all(map(_is_settled, pairs)):
            _note_lags(found, theirs)
            _drop(found, theirs)
            settled = found.settled.setdefault(topic, SettledWindows())
            settled.shared_by(tiers[topic])
            lowers = {pair.lower_tier: pair.lower for pair in pairs}
            settled.add(start_ms, lowers, shown=rules.shows(pairs[0]), skewed=all(pair.skewed for pair in pairs))
            for tier, _, entry in theirs:
                if entry.dead_letters and rules.shows(pairs[0]):
                    settled.share(tier).dead_letters += entry.dead_letters
    found.latencies = {window: each for window, each in found.latencies.items() if window[2] >= rules.now_ms - SETTLED_MS}
    _forget_the_old(found, rules.now_ms - AUDIT_RETENTION_MS)


def _is_settled(pair: WindowPair) -> bool:
    """Whether each instance has the same count in both tiers, so that taking it away changes no difference: another one has a note."""
    return pair.settled and pair.verdict is Verdict.COMPLETE and not pair.noteworthy


def _drop(found: TierCounts, theirs: Iterable[tuple[str, CountKey, TierCount]]) -> None:
    for tier, key, _ in theirs:
        del found.counts[tier][key]
        found.counted_by.setdefault(key.instance, set()).add(tier)


def _note_lags(found: TierCounts, theirs: Iterable[tuple[str, CountKey, TierCount]]) -> None:
    for tier, key, entry in theirs:
        if entry.lag_ms is not None and (tier == PRODUCER_TIER or PRODUCER_TIER not in found.counts):
            host = (key.topic, key.datacenter, key.service, key.host)
            found.lags[host] = min(entry.lag_ms, found.lags.get(host, entry.lag_ms))


def _forget_the_old(found: TierCounts, before_ms: int) -> None:
    """Drop what retention has deleted from the audit topic too."""
    instances = {key.instance for counts in found.counts.values() for key in counts}
    for name in [name for name, each in found.instances.items() if each.heard_ms < before_ms and name not in instances]:
        del found.instances[name]
    for name in found.counted_by.keys() - found.instances.keys():
        del found.counted_by[name]
    found.gaps = [gap for gap in found.gaps if gap.time_ms >= before_ms]
