"""Producers and consumers of tracked events find their cluster and registry by a file of tiers (missions F2, F3, G1)."""

from pathlib import Path
from typing import Any

import pytest

from moldau.model.toml_table import PlanFileError
from moldau.topology.file import read_topology
from moldau.tracking.consumer import TrackedConsumer
from moldau.tracking.places import NOT_GIVEN, connection_of
from moldau.tracking.producer import TrackerProducer

FILE = """\
name = "t"
[clusters.ewr]
kind = "local"
datacenter = "EWR"
bootstrap.servers = "ewr:1"
[clusters.jfk]
kind = "local"
datacenter = "JFK"
bootstrap.servers = "jfk:1"
[clusters.logs]
kind = "local"
datacenter = "JFK"
bootstrap.servers = "logs:1"
[clusters.all-ewr]
kind = "aggregate"
datacenter = "EWR"
bootstrap.servers = "all-ewr:1"
[clusters.all-jfk]
kind = "aggregate"
datacenter = "JFK"
bootstrap.servers = "all-jfk:1"
[categories.tracking]
clusters = { EWR = "ewr", JFK = "jfk" }
aggregates = ["all-ewr", "all-jfk"]
[categories.logs]
clusters = { JFK = "logs" }
[registries.jfk]
datacenters = ["JFK"]
url = "http://jfk:2"
[registries.main]
url = "http://main:2"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.toml"
    path.write_text(FILE)
    return path


def place(**given: Any) -> tuple[Any, Any]:
    wanted: dict[str, Any] = dict.fromkeys(("topology", "category", "datacenter"))
    return connection_of(**{"bootstrap_servers": NOT_GIVEN, "registry": NOT_GIVEN, **wanted, **given})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"datacenter": "EWR"}, ("ewr:1", "http://main:2")),
        ({"datacenter": "JFK"}, ("jfk:1", "http://jfk:2")),
        ({"datacenter": "JFK", "category": "logs"}, ("logs:1", "http://jfk:2")),
        ({"datacenter": "JFK", "aggregate": True}, ("all-jfk:1", "http://jfk:2")),
        ({"datacenter": "JFK", "registry": "http://mine:3"}, ("jfk:1", "http://mine:3")),
    ],
)
def test_the_file_has_the_cluster_of_a_category_in_a_data_centre(
    file: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: tuple[str, str]
) -> None:
    # as a path, as what was read of it, or named by the variable, the data centre too
    assert place(topology=file, **given) == expected
    assert place(topology=read_topology(file), **given) == expected
    monkeypatch.setenv("MOLDAU_TOPOLOGY", str(file))
    monkeypatch.setenv("MOLDAU_DATACENTER", given.pop("datacenter"))
    assert place(**given) == expected


def test_without_a_file_it_is_as_ever(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place() == ("localhost:9092", "http://localhost:8081")
    assert place(bootstrap_servers="a:1") == ("a:1", "http://localhost:8081")
    # brokers that are given win over the variable
    monkeypatch.setenv("MOLDAU_TOPOLOGY", str(file))
    assert place(bootstrap_servers="a:1", registry="http://b:2") == ("a:1", "http://b:2")


def test_what_contradicts_itself_or_is_not_in_the_file_is_a_value_error(file: Path) -> None:
    with pytest.raises(ValueError, match="bootstrap_servers names the brokers, so topology"):
        place(bootstrap_servers="a:1", topology=file)
    with pytest.raises(ValueError, match="need a file of tiers: give topology, or set MOLDAU_TOPOLOGY"):
        place(category="logs")
    with pytest.raises(ValueError, match=r"which data centre.* EWR, JFK$"):
        place(topology=file)
    with pytest.raises(ValueError, match="there is no data centre 'LGA'; there are EWR, JFK"):
        place(topology=file, datacenter="LGA")
    with pytest.raises(ValueError, match=r":25: category logs has no cluster in EWR, only in JFK"):
        place(topology=file, datacenter="EWR", category="logs")
    with pytest.raises(ValueError, match=r":25: category logs has no aggregate"):
        place(topology=file, datacenter="JFK", category="logs", aggregate=True)
    file.write_text(FILE.partition("[registries.jfk]")[0])
    with pytest.raises(ValueError, match="there is no registry for data centre EWR; give registry"):
        place(topology=file, datacenter="EWR")
    file.write_text("name = 1\n[clusters.a]\n")
    with pytest.raises(PlanFileError, match=r"t.toml:2: \[clusters.a\] kind: is missing"):
        place(topology=file, datacenter="EWR")


def test_a_producer_and_a_consumer_take_the_file(file: Path) -> None:
    """Claim: the arguments get there, and the data centre of the producer is that of its events."""
    made = TrackerProducer(service="gates", topology=file, category="logs", datacenter="JFK")
    assert made.origin.datacenter == "JFK"
    made.close(0.5)
    TrackedConsumer(topology=file, datacenter="JFK", aggregate=True, group_id="g").close()
    with pytest.raises(ValueError, match="category logs has no cluster in EWR"):
        TrackerProducer(service="gates", topology=file, category="logs", datacenter="EWR")
    with pytest.raises(ValueError, match="category logs has no aggregate"):
        TrackedConsumer(topology=file, category="logs", datacenter="JFK", aggregate=True)
