"""Hosts whose clocks are wrong, found by when their counts are published (pure).

Counts are published soon after events happened, or long after for a replay of old ones, but never before. A host is *ahead* if it has
published an event of the future. It is *behind* if the newest events that it ever published were much older than those of other hosts
of its topic: a replay is old on all hosts alike, and late events of a host that has current ones too do not count.
"""

from collections.abc import Iterable
from typing import NamedTuple

from moldau.audit.tiers import TierCounts
from moldau.audit.verdicts import SkewedHost
from moldau.tracking.audit_record import PRODUCER_TIER


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
