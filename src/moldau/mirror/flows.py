"""Which topic goes where when several mirrors run: the topics that exist, followed through every mirror that selects them.

A mirror that puts the source's name before a topic's may meet its own topics again, where other mirrors bring them back to its source. Each
round would make a longer name. Such a ring is found when it closes for the first time; from then on its mirrors rename only what no mirror
has renamed, so that what is followed stays small.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moldau.mirror.naming import SourceTopic, TargetNameError
from moldau.mirror.plan.values import MirrorPlan


@dataclass(frozen=True, slots=True, eq=False)
class PlannedMirror:
    """A mirror, and the clusters that its addresses lead to."""

    file: str
    plan: MirrorPlan
    source_ids: Mapping[str, str]
    """The cluster id of each source, by the source's name."""
    target_id: str

    def __str__(self) -> str:
        return f"mirror {self.plan.name} ({self.file})"


class Place(NamedTuple):
    """A topic of a cluster."""

    cluster_id: str
    topic: str


class Flow(NamedTuple):
    """What a mirror does to one topic."""

    mirror: PlannedMirror
    source: Place
    target: Place


@dataclass(frozen=True, slots=True)
class Flows:
    """All of them, in the order in which they were found."""

    flows: tuple[Flow, ...]
    growing: tuple[tuple[Flow, ...], ...]
    """Rings in which the name of a topic grows with each round: the flows of the first."""


def follow(mirrors: Sequence[PlannedMirror], topics: Mapping[str, Iterable[str]]) -> Flows:
    """The flows of these topics, given by cluster id. A mirror within one cluster has none."""
    return _Search(mirrors).run(topics)


def carry(ring: Sequence[Flow], topic: str) -> str | None:
    """The name that a topic of the ring's first cluster comes back with, to be taken round again; None if it does not."""
    for mirror, (cluster_id, _), _ in ring:
        source = next(name for name, each in mirror.source_ids.items() if each == cluster_id)
        if not mirror.plan.selection.selects(topic):
            return None
        try:
            topic = mirror.plan.names.target(SourceTopic(source, topic))
        except TargetNameError:
            return None
    return topic if ring[0].mirror.plan.selection.selects(topic) else None


class _Search:
    """A breadth-first search, so that the shortest rings are found first."""

    def __init__(self, mirrors: Sequence[PlannedMirror]) -> None:
        self._by_source: dict[str, list[tuple[PlannedMirror, str]]] = {}
        for mirror in mirrors:
            for source, cluster_id in mirror.source_ids.items():
                if cluster_id != mirror.target_id:
                    self._by_source.setdefault(cluster_id, []).append((mirror, source))
        self._arrivals: dict[Place, Flow | None] = {}
        """The first flow into each topic; None for those that exist."""
        self._growing: set[PlannedMirror] = set()

    def run(self, topics: Mapping[str, Iterable[str]]) -> Flows:
        flows, rings = [], []
        self._arrivals = {Place(cluster_id, topic): None for cluster_id, names in topics.items() for topic in sorted({*names})}
        waiting = deque(self._arrivals)
        while waiting:
            for flow in self._flows_from(waiting.popleft()):
                flows.append(flow)
                if flow.target in self._arrivals:
                    continue
                self._arrivals[flow.target] = flow
                waiting.append(flow.target)
                if ring := self._growing_ring(flow.target):
                    rings.append(ring)
                    self._growing.update(each.mirror for each in ring)
        return Flows(tuple(flows), tuple(rings))

    def _flows_from(self, place: Place) -> Iterator[Flow]:
        renamed = any(flow.source.topic != flow.target.topic for flow in self._way_to(place))
        for mirror, source in self._by_source.get(place.cluster_id, ()):
            if (renamed and mirror in self._growing) or not mirror.plan.selection.selects(place.topic):
                continue
            try:
                name = mirror.plan.names.target(SourceTopic(source, place.topic))
            except TargetNameError:
                continue
            yield Flow(mirror, place, Place(mirror.target_id, name))

    def _way_to(self, place: Place) -> list[Flow]:
        """The flows that lead to a topic, the last first."""
        way = []
        while flow := self._arrivals[place]:
            way.append(flow)
            place = flow.source
        return way

    def _growing_ring(self, place: Place) -> tuple[Flow, ...]:
        """The flows since the cluster was left, if the mirror by which it was left selects what has come back by another name."""
        ring = []
        for flow in self._way_to(place):
            ring.append(flow)
            if flow.source.cluster_id == place.cluster_id:
                again = flow.source.topic != place.topic and flow.mirror.plan.selection.selects(place.topic)
                return tuple(reversed(ring)) if again else ()
        return ()
