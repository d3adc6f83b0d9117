"""The edges of a tree of tiers, each with what its ends have: all windows and topics of a report together. Pure.

A tier that takes from several is compared with their sum; which of them had an event is known by the instance, so each edge has its part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Report, SourceLine, Verdict, WindowPair
from moldau.tracking.latencies import NO_LATENCIES, Latencies

_ORDER = list(Verdict)


@dataclass(frozen=True, slots=True)
class TierEdge:
    """What a tier should have of another one, and has."""

    upper: str
    lower: str
    above: int = 0
    """Events that the upper tier has for it."""
    below: int = 0
    verdict: Verdict | None = None
    """The worst of its windows; None where nothing was compared."""
    lag: int = 0
    """How many events of the upper tier the lower one is not known to have."""
    more: int = 0
    """How many it has that the upper one has not."""
    latencies: Latencies = NO_LATENCIES
    """From `track` to the lower tier, of all its events, whichever tier they came from."""


def edges_of(report: Report, tree: TierTree) -> list[TierEdge]:
    """Those of the tree, from the producers down, and those that were compared over a tier between them that does not count."""
    found = {(source, tier.name): TierEdge(source, tier.name) for tier in tree.tiers for source in tier.sources}
    for pair in report.pairs:
        for upper, line in _parts(pair):
            key = (upper, pair.lower_tier)
            found[key] = _joined(found.get(key, TierEdge(*key)), pair, line)
    for settled in report.settled:
        if (key := (settled.upper_tier, settled.lower_tier)) in found:
            edge, count = found[key], settled.count.count
            found[key] = TierEdge(*key, edge.above + count, edge.below + count, edge.verdict or Verdict.COMPLETE, edge.lag, edge.more)
    latencies = latencies_of(report)
    return [replace(edge, latencies=latencies.get(edge.lower, NO_LATENCIES)) for edge in found.values()]


def events_of(report: Report, tree: TierTree) -> dict[str, int]:
    """How many events each tier has counted, of those that were compared; tiers of which nothing was compared are left out."""
    found: dict[str, int] = {}
    edges = edges_of(report, tree)
    for name in tree.names:
        into = [edge.below for edge in edges if edge.lower == name and edge.verdict is not None]
        out = [edge.above for edge in edges if edge.upper == name and edge.verdict is not None]
        if into or out:
            found[name] = sum(into) if into else sum(out)
    return found


def latencies_of(report: Report) -> Mapping[str, Latencies]:
    """By tier: how long all events were on their way to it, since `track`."""
    found: dict[str, Latencies] = {}
    parts: dict[str, dict[int, int]] = {}
    for (_, tier, _), each in report.latencies.items():
        counts = parts.setdefault(tier, {})
        for bucket, count in each.counts:
            counts[bucket] = counts.get(bucket, 0) + count
    for tier, counts in parts.items():
        found[tier] = Latencies.of(counts) or NO_LATENCIES
    return found


def _parts(pair: WindowPair) -> Iterator[tuple[str, SourceLine]]:
    for line in pair.sources:
        for upper in line.upper_tiers[:1] or (pair.upper_tier,):  # an instance sends to one cluster
            yield upper, line


def _joined(edge: TierEdge, pair: WindowPair, line: SourceLine) -> TierEdge:
    above, below = line.upper.count, line.lower.count
    verdict = Verdict.NOT_COUNTED if edge.upper in pair.undecided and not line.verdict.alarming else line.verdict
    worst = min(filter(None, (edge.verdict, verdict)), key=_ORDER.index)
    return TierEdge(
        edge.upper,
        edge.lower,
        edge.above + above,
        edge.below + below,
        worst,
        edge.lag + max(0, above - below),
        edge.more + max(0, below - above),
    )
