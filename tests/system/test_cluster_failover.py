"""Real brokers are killed, paused and restarted under a producer with acks=all: it continues at the new leader, and nothing that was
acknowledged is lost.

With metadata in a shared file, and in a real ZooKeeper.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support import zookeeper
from support.local_cluster import LIMIT_S, LocalCluster
from support.steady_producer import SteadyProducer

pytestmark = pytest.mark.system

SESSION_TIMEOUT_MS = 3000
BROKERS = (1, 2, 3)


@pytest.fixture(
    scope="module", params=["file", pytest.param("zookeeper", marks=pytest.mark.skipif(not zookeeper.has_java(), reason="no Java"))]
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers for all tests."""
    place = ("--zookeeper", "start") if request.param == "zookeeper" else ()
    options = ("--port", "0", "-s", f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}", *place)
    with LocalCluster(tmp_path_factory.mktemp("cluster") / "c", *options).up() as cluster:
        yield cluster


class World(NamedTuple):
    """A topic of the test's own, with a replica on each broker."""

    cluster: LocalCluster
    topic: str

    def producer(self) -> SteadyProducer:
        return SteadyProducer(self.cluster.bootstrap, self.topic)

    def wait_in_sync(self, count: int) -> int:
        """Until so many replicas are in sync: the leader."""
        leader = self.cluster.wait_in_sync(self.topic, count)["leader"]
        assert isinstance(leader, int)
        return leader


@pytest.fixture
def world(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[World]:
    """All brokers are up, also after a test that failed."""
    for state, recover in (("dead", cluster.restart), ("paused", cluster.resume)):
        if ids := [broker_id for broker_id, each in cluster.states().items() if each == state]:
            recover(*ids)
    topic = re.sub(r"[^a-z0-9_]+", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)], operation_timeout=LIMIT_S)[topic].result(LIMIT_S)
    world = World(cluster, topic)
    world.wait_in_sync(3)
    yield world
    if request.session.testsfailed:
        print(cluster.logs())


@pytest.mark.parametrize(("fail", "recover"), [("kill", "restart"), ("pause", "resume")])
def test_a_leader_that_is_killed_or_hangs_is_replaced_loses_nothing_and_is_in_sync_again(world: World, fail: str, recover: str) -> None:
    with world.producer() as producer:
        producer.wait_further()
        failed = world.wait_in_sync(3)
        getattr(world.cluster, fail)(failed)
        producer.wait_further()
        assert world.wait_in_sync(2) != failed
        getattr(world.cluster, recover)(failed)
        world.wait_in_sync(3)
        producer.wait_further()
    producer.assert_nothing_lost_or_doubled()


def test_a_leader_that_is_stopped_in_order_and_started_again_loses_nothing(world: World) -> None:
    with world.producer() as producer:
        producer.wait_further()
        world.cluster.restart(world.wait_in_sync(3))
        world.wait_in_sync(3)
        producer.wait_further()
    producer.assert_nothing_lost_or_doubled()


def test_all_brokers_are_killed_at_once_and_come_back_with_everything(world: World) -> None:
    with world.producer() as producer:
        producer.wait_further()
        world.cluster.kill(*BROKERS)
        world.cluster.restart(*BROKERS)
        world.wait_in_sync(3)
        producer.wait_further()
    producer.assert_nothing_lost_or_doubled()
