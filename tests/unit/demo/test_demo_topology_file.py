"""The file of tiers that the demonstration makes is one that `moldau tiers up` takes, with nothing to warn of."""

from moldau.demo.topology import AGGREGATE, BROKERS, CATEGORY, DATACENTERS, NAME, OFFLINE, REGISTRY, TopologyPorts, topology_text
from moldau.tiers.checks import find
from moldau.tiers.file import parse_tiers

PORTS = TopologyPorts((21_001, 21_002, 21_003), 21_010, 21_020, 21_030)
TIERS = parse_tiers(topology_text("late.departures", 6, PORTS), "demo.toml")


def test_nothing_is_found_in_it() -> None:
    """Claim: every topic is mirrored, kept for as long as a mirror may lag, and counted in every cluster; dots in its name too."""
    assert TIERS.topology.name == NAME
    assert find(TIERS) == []


def test_clusters_and_registry_are_at_the_ports() -> None:
    """One broker each in three data centres and offline, three of the aggregate in a row."""
    clusters = TIERS.topology.clusters
    assert {name: each.bootstrap for name, each in clusters.items()} == {
        **{name: f"127.0.0.1:{port}" for name, port in zip(DATACENTERS, PORTS.local, strict=True)},
        AGGREGATE: "127.0.0.1:21010,127.0.0.1:21011,127.0.0.1:21012",
        OFFLINE: "127.0.0.1:21020",
    }
    assert sum(each.bootstrap.count(":") for each in clusters.values()) == BROKERS
    assert TIERS.topology.registries[REGISTRY].url == "http://127.0.0.1:21030"
    assert [TIERS.topology.place(CATEGORY, name).bootstrap for name in DATACENTERS] == [f"127.0.0.1:{port}" for port in PORTS.local]


def test_ports_of_the_aggregate_are_not_those_of_others() -> None:
    ports = TopologyPorts.free()
    all_of_them = [*ports.local, ports.offline, ports.registry, *range(ports.aggregate, ports.aggregate + 3)]
    assert len(set(all_of_them)) == len(all_of_them)
