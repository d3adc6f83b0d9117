"""The whole file of tiers: where the clusters are, and what runs between them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from moldau.mirror.audited import audited_topics
from moldau.mirror.patterns import Pattern
from moldau.mirror.plan.values import MirrorPlan
from moldau.model.topic_names import is_internal
from moldau.topology.values import Topology

MIRROR_INTERVAL_S: Final = 10
"""How often the auditor of a mirror publishes."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic of a category: of all its local clusters, where it is made if it is missing."""

    name: str
    category: str
    partitions: int | None
    """None: as many as the broker's default."""
    configs: Mapping[str, str]
    line: int


@dataclass(frozen=True, slots=True)
class TierMirror:
    """A mirror between clusters of the file."""

    name: str
    sources: tuple[str, ...]
    target: str
    instances: int
    """How many processes share its work."""
    plan: MirrorPlan
    text: str
    """The mirror's own file."""
    line: int


@dataclass(frozen=True, slots=True)
class PlannedAuditor:
    """The auditor of a cluster."""

    name: str
    cluster: str
    tier: str
    topics: Pattern | None
    """None: all but internal ones."""
    interval_s: int
    line: int

    def counts(self, topic: str) -> bool:
        """Whether it counts a topic."""
        return not is_internal(topic) if self.topics is None else self.topics.fullmatch(topic) is not None


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """A load of topics of a cluster into tables."""

    name: str
    cluster: str
    tier: str
    topics: tuple[str, ...]
    to: str
    """Where the tables are; a relative path is below the data directory."""
    interval_s: int
    line: int


@dataclass(frozen=True, slots=True)
class Tiers:
    """All that the file has. Invariant: names of clusters and categories are those of `topology`."""

    topology: Topology
    topics: tuple[PlannedTopic, ...]
    mirrors: tuple[TierMirror, ...]
    auditors: tuple[PlannedAuditor, ...]
    loads: tuple[PlannedLoad, ...]
    lag_max_ms: int
    """The worst lag of a mirror: for so long its sources have to keep their records."""

    @property
    def counting(self) -> tuple[PlannedAuditor, ...]:
        """The auditors, and those that mirrors with a tier of their own have for their targets."""
        of_mirrors = (
            PlannedAuditor(
                f"of mirror {each.name}", each.target, each.plan.audit_tier, audited_topics(each.plan), MIRROR_INTERVAL_S, each.line
            )
            for each in self.mirrors
            if each.plan.audit_tier is not None
        )
        return *self.auditors, *of_mirrors

    def topics_of(self, category: str) -> tuple[PlannedTopic, ...]:
        """Those of a category."""
        return tuple(each for each in self.topics if each.category == category)

    def downstream(self, clusters: Iterable[str]) -> tuple[str, ...]:
        """These clusters and all that mirrors lead to from them, each after one that leads to it."""
        found = dict.fromkeys(clusters)
        waiting = list(found)
        while waiting:
            name = waiting.pop(0)
            for mirror in self.mirrors:
                if name in mirror.sources and mirror.target not in found:
                    found[mirror.target] = None
                    waiting.append(mirror.target)
        return tuple(found)
