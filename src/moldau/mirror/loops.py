"""Whether several mirrors fit together: loops, rings, and topics of a target that several of them claim.

A merge skips the records that come from its target, so a ring of merges ends by itself. A copy skips nothing: batches and offsets are the
source's. So one copy in a ring makes it a loop, and a copy's topic in the target can have no other source. Two copies in opposite
directions are how a cluster is moved: while one of them runs, the topics of the other's target are no copies, and its partitions halt.

What the files say are patterns, so this holds for the topics that are known: those that exist, and those that a file names exactly.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import NamedTuple

from moldau.mirror.flows import Flow, Place, PlannedMirror, carry, follow
from moldau.mirror.plan.values import Mode
from moldau.model.topic_names import is_allowed

_TOPICS_SHOWN = 5


class Severity(Enum):
    """What a finding means for the mirrors that it names."""

    ERROR = "error"
    """They must not run together."""
    WARNING = "warning"
    NOTICE = "notice"
    """Nothing is wrong."""


class Kind(Enum):
    """What was found, and a text about it."""

    SAME_CLUSTER = "a source and the target are the same cluster"
    SAME_SOURCE = "two sources are the same cluster, its records would be merged twice"
    SAME_NAME = "mirrors of one target need different names, or they share one group"
    LOOP = "a loop with a copy in it: records would circle for ever"
    TARGET_TWICE = "several mirrors write one topic of the target, and one of them is a copy, which needs it for itself"
    BOTH_WAYS = "copies in both directions, as for moving a cluster: only one of them may run at a time"
    GROWING_NAMES = "a ring in which each round makes a topic with a longer name; leave out the names that begin with those of sources"
    RING = "a ring of merges; no record returns"
    POSSIBLE_RING = "a ring of clusters; no topic that is known takes the whole way"

    @property
    def severity(self) -> Severity:
        """The worst come first in the order of this class."""
        match self:
            case Kind.RING | Kind.POSSIBLE_RING:
                return Severity.NOTICE
            case Kind.BOTH_WAYS | Kind.GROWING_NAMES:
                return Severity.WARNING
            case _:
                return Severity.ERROR


_RINGS = (Kind.LOOP, Kind.BOTH_WAYS, Kind.RING, Kind.GROWING_NAMES)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, with the mirrors that cause it together."""

    kind: Kind
    mirrors: tuple[PlannedMirror, ...]
    clusters: tuple[str, ...]
    """Cluster ids, in their order."""
    topics: tuple[str, ...] = ()
    """The topics it was found by."""

    def __str__(self) -> str:
        clusters, topics = self.clusters, self.topics
        text = f"{', '.join(map(str, self.mirrors))}: {self.kind.value}: cluster{_plural(clusters)} {', '.join(clusters)}"
        if not topics:
            return text
        more = len(topics) - _TOPICS_SHOWN
        shown = ", ".join(topics[:_TOPICS_SHOWN])
        return f"{text}; topic{_plural(topics)} {shown}{f' and {more} more' if more > 0 else ''}"


def _plural(things: Sequence[str]) -> str:
    return "s" if len(things) > 1 else ""


class _Link(NamedTuple):
    """A mirror from a cluster to another."""

    mirror: PlannedMirror
    source_id: str
    target_id: str


def find(mirrors: Sequence[PlannedMirror], topics: Mapping[str, Iterable[str]]) -> list[Finding]:
    """What is wrong or remarkable with these mirrors, the worst first. `topics` are those that exist, by cluster id."""
    known = _known(mirrors, topics)
    flows = follow(mirrors, known)
    found = [*_same_clusters(mirrors), *_same_names(mirrors)]
    found += _rings_of_topics(mirrors, flows.flows)
    found += _claimed_targets(mirrors, flows.flows)
    found += _growing_names(mirrors, flows.growing, known)
    found += _possible_rings(mirrors, found)
    kinds = list(Kind)
    return sorted(found, key=lambda finding: kinds.index(finding.kind))


def _known(mirrors: Sequence[PlannedMirror], topics: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The topics that exist, and those whose names are patterns: they are expected in every source."""
    known = {cluster_id: {*names} for cluster_id, names in topics.items()}
    for mirror in mirrors:
        named = {pattern.pattern for pattern in mirror.plan.topics.include if is_allowed(pattern.pattern)}
        for cluster_id in mirror.source_ids.values():
            known.setdefault(cluster_id, set()).update(named)
    return known


def _same_clusters(mirrors: Sequence[PlannedMirror]) -> Iterator[Finding]:
    for mirror in mirrors:
        ids = list(mirror.source_ids.values())
        if mirror.target_id in ids:
            yield Finding(Kind.SAME_CLUSTER, (mirror,), (mirror.target_id,))
        for cluster_id in dict.fromkeys(ids):
            if ids.count(cluster_id) > 1:
                yield Finding(Kind.SAME_SOURCE, (mirror,), (cluster_id,))


def _same_names(mirrors: Sequence[PlannedMirror]) -> Iterator[Finding]:
    for one, other in combinations(mirrors, 2):
        if (one.plan.name, one.target_id) == (other.plan.name, other.target_id):
            yield Finding(Kind.SAME_NAME, (one, other), (one.target_id,))


def _rings_of_topics(mirrors: Sequence[PlannedMirror], flows: Iterable[Flow]) -> Iterator[Finding]:
    links: dict[str, list[_Link]] = {}
    for mirror, source, target in flows:
        if source.topic == target.topic:  # a name that has grown does not come back
            links.setdefault(source.topic, []).append(_Link(mirror, source.cluster_id, target.cluster_id))
    topics: dict[frozenset[_Link], set[str]] = {}
    for topic, of_topic in links.items():
        for ring in _rings(of_topic):
            topics.setdefault(ring, set()).add(topic)
    for ring, names in topics.items():
        yield _finding(_kind_of(ring), mirrors, ring, names)


def _kind_of(ring: Collection[_Link]) -> Kind:
    if all(link.mirror.plan.mode is Mode.COPY for link in ring) and len(ring) == 2:
        return Kind.BOTH_WAYS
    return Kind.LOOP if _has_copy(ring) else Kind.RING


def _claimed_targets(mirrors: Sequence[PlannedMirror], flows: Iterable[Flow]) -> Iterator[Finding]:
    links: dict[Place, set[_Link]] = {}
    for mirror, source, target in flows:
        links.setdefault(target, set()).add(_Link(mirror, source.cluster_id, target.cluster_id))
    topics: dict[frozenset[_Link], set[str]] = {}
    for target, into in links.items():
        if len(into) > 1 and _has_copy(into):
            topics.setdefault(frozenset(into), set()).add(target.topic)
    for claims, names in topics.items():
        yield _finding(Kind.TARGET_TWICE, mirrors, claims, names)


def _growing_names(
    mirrors: Sequence[PlannedMirror], rings: Iterable[tuple[Flow, ...]], known: Mapping[str, Iterable[str]]
) -> Iterator[Finding]:
    for ring in rings:
        links = [_Link(flow.mirror, flow.source.cluster_id, flow.target.cluster_id) for flow in ring]
        grown = {carry(ring, topic) for topic in known.get(ring[0].source.cluster_id, ())} - {None}
        topics = {ring[-1].target.topic, *filter(None, grown)}
        yield _finding(Kind.LOOP if _has_copy(links) else Kind.GROWING_NAMES, mirrors, links, topics)


def _possible_rings(mirrors: Sequence[PlannedMirror], found: Iterable[Finding]) -> Iterator[Finding]:
    explained = {mirror for finding in found if finding.kind in _RINGS for mirror in finding.mirrors}
    links = [_Link(mirror, source, mirror.target_id) for mirror in mirrors for source in mirror.source_ids.values()]
    for ring in _rings([link for link in links if link.source_id != link.target_id]):
        if explained.isdisjoint(link.mirror for link in ring):
            yield _finding(Kind.POSSIBLE_RING, mirrors, ring, set())


def _has_copy(links: Iterable[_Link]) -> bool:
    return any(link.mirror.plan.mode is Mode.COPY for link in links)


def _finding(kind: Kind, mirrors: Sequence[PlannedMirror], links: Collection[_Link], topics: set[str]) -> Finding:
    """With the mirrors in the order of the files."""
    among = {link.mirror for link in links}
    clusters = {cluster_id for link in links for cluster_id in (link.source_id, link.target_id)}
    return Finding(kind, tuple(each for each in mirrors if each in among), tuple(sorted(clusters)), tuple(sorted(topics)))


def _rings(links: Sequence[_Link]) -> Iterator[frozenset[_Link]]:
    """The links of each group of clusters that lead to each other, by whatever way (the strongly connected components)."""
    next_ids: dict[str, set[str]] = {}
    for link in links:
        next_ids.setdefault(link.source_id, set()).add(link.target_id)
    reached = {cluster_id: _reached(cluster_id, next_ids) for cluster_id in next_ids}
    done: set[str] = set()
    for cluster_id, there in reached.items():
        if cluster_id in done or cluster_id not in there:
            continue
        group = {each for each in there if cluster_id in reached.get(each, ())}
        done |= group
        yield frozenset(link for link in links if link.source_id in group and link.target_id in group)


def _reached(cluster_id: str, next_ids: Mapping[str, set[str]]) -> set[str]:
    """The clusters that one or more steps lead to."""
    found: set[str] = set()
    waiting = [cluster_id]
    while waiting:
        new = next_ids.get(waiting.pop(), set()) - found
        found |= new
        waiting += sorted(new)
    return found
