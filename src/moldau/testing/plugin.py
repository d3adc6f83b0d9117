"""The pytest plugin: a broker or a cluster for tests, and a topic for each of them.

    def test_orders(moldau, moldau_topic):
        producer = Producer({"bootstrap.servers": moldau.bootstrap_servers})
        producer.produce(moldau_topic, b"first")

    def test_schemas(moldau_registry_url): ...

    def test_a_leader_dies(moldau_cluster):
        topic = moldau_cluster.create_topic(moldau_cluster.unique_topic())
        moldau_cluster.kill(moldau_cluster.leader_of(topic))

pytest imports this module in every run of everybody who has Moldau installed, so it imports nothing but pytest; the broker's code comes
with the first test that asks for it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.broker import Broker
    from moldau.testing.cluster.cluster import Cluster


@pytest.fixture(scope="session")
def moldau_settings() -> Mapping[str, object]:
    """Settings of the broker `moldau`: none. Define a session fixture of this name in your conftest.py to give it some."""
    return {}


@pytest.fixture(scope="session")
def moldau(moldau_settings: Mapping[str, object]) -> "Iterator[Broker]":
    """A broker for the whole run, on a free port, with a data directory of its own that goes when the run ends.

    Under pytest-xdist every worker has one.
    """
    from moldau.testing.broker import Broker

    with Broker(settings=moldau_settings) as broker:
        yield broker


@pytest.fixture
def moldau_topic(moldau: "Broker", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that was made for this test, with one partition; it is deleted afterwards."""
    name = moldau.unique_topic(request.node.name)
    moldau.create_topic(name)
    yield name
    moldau.delete_topic(name, missing_ok=True)


@pytest.fixture(scope="session")
def moldau_registry_url(moldau: "Broker") -> str:
    """The URL of a schema registry over the broker `moldau`; it starts with the first test that asks for it, and stops with the run."""
    return moldau.start_registry()


@pytest.fixture(scope="session")
def moldau_cluster_settings() -> Mapping[str, object]:
    """Settings of all brokers of `moldau_cluster`: none. Define a session fixture of this name in your conftest.py to give them some."""
    return {}


@pytest.fixture(scope="session")
def _moldau_cluster(moldau_cluster_settings: Mapping[str, object]) -> "Iterator[Cluster]":
    from moldau.testing.cluster.cluster import Cluster

    with Cluster(settings=moldau_cluster_settings) as cluster:
        yield cluster


@pytest.fixture
def moldau_cluster(_moldau_cluster: "Cluster") -> "Iterator[Cluster]":
    """Three brokers, which the test may kill, pause and cut off from each other; what it has broken is mended after it.

    They run from the first test that asks for them to the end of the run. Under pytest-xdist every worker has its own.
    """
    yield _moldau_cluster
    _moldau_cluster.recover()
