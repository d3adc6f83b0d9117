"""Data centres, their clusters, registries and categories, as the file of tiers has them. docs/tiers.md describes the file."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from moldau.model.host_port import Address
from moldau.model.near_names import did_you_mean

CategoryName = Literal["queuing", "metrics", "logs", "tracking"]
"""Kinds of messages, each of which may be in clusters of its own."""


class TopologyError(ValueError):
    """The file has no such category, data centre, cluster or registry; the message names the file."""


class ClusterKind(Enum):
    """Where the records of a cluster come from. The values are those of the file."""

    LOCAL = "local"
    """From the producers of its data centre."""
    AGGREGATE = "aggregate"
    """From mirrors of all local clusters of a category."""
    OFFLINE = "offline"
    """From a mirror: a copy, far from those who produce."""


@dataclass(frozen=True, slots=True)
class PlannedCluster:
    """A cluster of the file."""

    name: str
    kind: ClusterKind
    datacenter: str
    addresses: tuple[Address, ...]
    """Of its brokers; of one that is started elsewhere, of some."""
    is_started: bool
    """Whether `moldau tiers up` starts it. Invariant: then the addresses are those of all brokers, in the order of their ids."""
    settings: Mapping[str, str]
    """Of all its brokers."""
    line: int

    @property
    def bootstrap(self) -> str:
        """``HOST:PORT``, separated by commas."""
        return ",".join(map(str, self.addresses))


@dataclass(frozen=True, slots=True)
class PlannedRegistry:
    """A schema registry of the file."""

    name: str
    url: str
    datacenters: tuple[str, ...]
    """Whose clients use it; empty: those of all that have none of their own."""
    cluster: str | None
    """The cluster that keeps the schemas; None for a registry that is started elsewhere."""
    address: Address | None
    """Where it listens if `moldau tiers up` starts it."""
    line: int


@dataclass(frozen=True, slots=True)
class PlannedCategory:
    """A kind of messages, and its clusters."""

    name: CategoryName
    clusters: Mapping[str, str]
    """The local cluster by data centre."""
    aggregates: tuple[str, ...]
    line: int


class Place(NamedTuple):
    """What a client connects to."""

    bootstrap: str
    registry: str | None
    """URL; None where the file has no registry for the data centre."""


@dataclass(frozen=True, slots=True)
class Topology:
    """All of them, by name, in the order of the file. Invariant: names that refer to clusters are those of clusters that are there."""

    file: str
    name: str
    clusters: Mapping[str, PlannedCluster]
    registries: Mapping[str, PlannedRegistry]
    categories: Mapping[str, PlannedCategory]

    @property
    def datacenters(self) -> tuple[str, ...]:
        """All that have clusters."""
        return tuple(dict.fromkeys(each.datacenter for each in self.clusters.values()))

    def place(self, category: str, datacenter: str, *, aggregate: bool = False) -> Place:
        """The local cluster of a category in a data centre, or its aggregate, that of the same data centre first. TopologyError."""
        found = self.categories.get(category)
        if found is None:
            raise self._unknown("category", category, self.categories)
        if datacenter not in self.datacenters:
            raise self._unknown("data centre", datacenter, self.datacenters)
        if aggregate:
            clusters = sorted(map(self.clusters.__getitem__, found.aggregates), key=lambda each: each.datacenter != datacenter)
            if not clusters:
                raise TopologyError(f"{self.file}:{found.line}: category {category} has no aggregate")
            cluster = clusters[0]
        elif datacenter in found.clusters:
            cluster = self.clusters[found.clusters[datacenter]]
        else:
            where = ", ".join(found.clusters)
            raise TopologyError(f"{self.file}:{found.line}: category {category} has no cluster in {datacenter}, only in {where}")
        registry = self.registry_of(datacenter)
        return Place(cluster.bootstrap, None if registry is None else registry.url)

    def registry_of(self, datacenter: str) -> PlannedRegistry | None:
        """The registry of a data centre: one of its own, or one for all."""
        for each in self.registries.values():
            if datacenter in each.datacenters:
                return each
        return next((each for each in self.registries.values() if not each.datacenters), None)

    def _unknown(self, what: str, name: str, known: Mapping[str, object] | tuple[str, ...]) -> TopologyError:
        return TopologyError(f"{self.file}: there is no {what} {name!r}{did_you_mean(name, known)}; there are {', '.join(known) or 'none'}")
