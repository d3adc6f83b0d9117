"""The file of tiers of the demonstration: three data centres, each with a cluster, an aggregate of three brokers, a copy of it, a load."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.assembly.local_cluster.plan import HOST, free_ports, why_taken
from moldau.demo.tiers import LAKE_TIER
from moldau.tiers.toml_text import toml_lines, toml_table

NAME = "demo"
CATEGORY = "tracking"
DATACENTERS = ("ewr", "jfk", "lga")
"""The names of the local clusters too."""
AGGREGATE, OFFLINE = "aggregate", "offline"
REGISTRY = "main"
AGGREGATE_BROKERS = 3
BROKERS = len(DATACENTERS) + AGGREGATE_BROKERS + 1
AUDIT_INTERVAL_S = 2
_FOR_EVER = {
    "log.retention.ms": -1,
    "offsets.retention.minutes": 52_560_000,
    "protected.topics": "__consumer_offsets,__transaction_state,_schemas,_spark_commits",
}
"""A demonstration that is run again after a month still has its events, and knows what its load has read. The audit topic is not protected
from changes: auditors make it with a retention of a month."""


@dataclass(frozen=True, slots=True)
class TopologyPorts:
    """Where clusters and the registry listen. The aggregate takes three ports in a row."""

    local: tuple[int, ...]
    aggregate: int
    offline: int
    registry: int

    @classmethod
    def free(cls) -> "TopologyPorts":
        """Without listeners now."""
        several = next(_rows(AGGREGATE_BROKERS))
        first, second, third, offline, registry, *_ = free_ports(range(several, several + AGGREGATE_BROKERS))
        return cls((first, second, third), several, offline, registry)


def _rows(count: int) -> Iterator[int]:
    """Ports after each of which all of a row are free."""
    while True:
        for first in free_ports():
            if not any(why_taken(HOST, port) for port in range(first, first + count)):
                yield first


def topology_text(topic: str, partitions: int, ports: TopologyPorts) -> str:
    """The whole file, as `moldau tiers up` takes it."""
    clusters = {name: {"kind": "local", "datacenter": name, "port": port} for name, port in zip(DATACENTERS, ports.local, strict=True)} | {
        AGGREGATE: {"kind": "aggregate", "datacenter": DATACENTERS[0], "brokers": AGGREGATE_BROKERS, "port": ports.aggregate},
        OFFLINE: {"kind": "offline", "datacenter": DATACENTERS[-1], "port": ports.offline},
    }
    merge = {"from": DATACENTERS, "to": AGGREGATE, "mode": "merge", "topics": {"include": [topic]}}
    copy = {"from": [AGGREGATE], "to": OFFLINE, "mode": "copy", "topics": {"include": [topic]}}
    locals_of = {"clusters": {name: name for name in DATACENTERS}, "aggregates": [AGGREGATE]}
    tables: dict[tuple[str, str], Mapping[str, Any]] = {
        **{("clusters", name): {**each, "settings": _FOR_EVER} for name, each in clusters.items()},
        ("registries", REGISTRY): {"cluster": AGGREGATE, "port": ports.registry},
        ("categories", CATEGORY): locals_of,
        ("topics", topic): {"category": CATEGORY, "partitions": partitions, "configs": {"retention.ms": -1, "retention.bytes": -1}},
        ("mirrors", AGGREGATE): merge,
        ("mirrors", OFFLINE): copy,
        **{("auditors", name): {"interval.s": AUDIT_INTERVAL_S} for name in clusters},
        ("loads", LAKE_TIER): {"cluster": OFFLINE, "topics": [topic]},
    }
    head = "# The demonstration's tiers, made at each start. The demonstration itself does the load.\n" + toml_lines({"name": NAME})
    return head + "".join(toml_table(path, table) for path, table in tables.items())
