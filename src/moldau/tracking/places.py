"""Where producers and consumers of tracked events connect to: addresses that they are given, or those that a file of tiers has."""

import os
from collections.abc import Sequence
from enum import Enum
from typing import Final

from moldau.topology.file import read_topology
from moldau.topology.values import CategoryName, Topology
from moldau.tracking.routes import SchemaRegistry

TOPOLOGY_VARIABLE: Final = "MOLDAU_TOPOLOGY"
DATACENTER_VARIABLE: Final = "MOLDAU_DATACENTER"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_REGISTRY: Final = "http://localhost:8081"
DEFAULT_CATEGORY: Final[CategoryName] = "tracking"


class NotGiven(Enum):
    """The default of an argument that the file of tiers decides."""

    NOT_GIVEN = "not given"


NOT_GIVEN: Final = NotGiven.NOT_GIVEN
TopologySource = Topology | str | os.PathLike[str]
"""A file of tiers, or what was read of one."""


def connection_of(
    bootstrap_servers: str | Sequence[str] | NotGiven,
    registry: str | SchemaRegistry | NotGiven,
    topology: TopologySource | None,
    category: CategoryName | None,
    datacenter: str | None,
    *,
    aggregate: bool = False,
) -> tuple[str | Sequence[str], str | SchemaRegistry]:
    """Brokers and registry, of which those that are given win.

    Without brokers they are those of `category` (None: "tracking") in `datacenter` (None: $MOLDAU_DATACENTER) by `topology` (None: the file
    $MOLDAU_TOPOLOGY names), without any file on this host. ValueError for arguments that contradict each other, and for a file that is not
    valid or does not have what is asked for.
    """
    if bootstrap_servers is not NOT_GIVEN:
        if topology is not None or category is not None or aggregate:
            raise ValueError("bootstrap_servers names the brokers, so topology, category and aggregate do not go with it")
        return bootstrap_servers, DEFAULT_REGISTRY if registry is NOT_GIVEN else registry
    source = topology if topology is not None else os.environ.get(TOPOLOGY_VARIABLE)
    if not source:
        if category is not None or aggregate:
            raise ValueError(f"category and aggregate need a file of tiers: give topology, or set {TOPOLOGY_VARIABLE}")
        return DEFAULT_BOOTSTRAP, DEFAULT_REGISTRY if registry is NOT_GIVEN else registry
    found = source if isinstance(source, Topology) else read_topology(source)
    where = datacenter or os.environ.get(DATACENTER_VARIABLE)
    if not where:
        raise ValueError(f"{found.file}: which data centre? Give datacenter, or set {DATACENTER_VARIABLE}: {', '.join(found.datacenters)}")
    place = found.place(category or DEFAULT_CATEGORY, where, aggregate=aggregate)
    chosen = place.registry if registry is NOT_GIVEN else registry
    if chosen is None:
        raise ValueError(f"{found.file}: there is no registry for data centre {where}; give registry, or add it to the file")
    return place.bootstrap, chosen
