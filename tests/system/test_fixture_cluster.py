"""`Cluster` gives a script brokers that fail on demand: killed, paused, cut off, moved; and they serve again when it is over."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.adapters.process_identity import ProcessState, has_ended
from moldau.assembly.local_cluster.state import existing_state
from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.cluster import Cluster as ClusterClient
from moldau.testing import Cluster
from support import zookeeper

pytestmark = pytest.mark.system

LIMIT_S = 300.0
"""For a busy machine; nothing takes that long."""


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(settings={"replica.lag.time.max.ms": "3000"}, timeout_s=LIMIT_S) as cluster:
        yield cluster


@pytest.fixture
def cluster(three: Cluster) -> Iterator[Cluster]:
    yield three
    three.recover()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    topic = cluster.create_topic(cluster.unique_topic(request.node.name))
    cluster.wait_until_in_sync(topic)
    return topic


def produce(cluster: Cluster, topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "socket.timeout.ms": 2000})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert failures == [None]


def consume(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, LIMIT_S)]
    finally:
        consumer.close()


def test_a_leader_that_is_killed_is_replaced_and_comes_back_with_everything(cluster: Cluster, topic: str) -> None:
    produce(cluster, topic, b"before")
    first = cluster.leader_of(topic)
    cluster.kill(first)
    assert cluster.state(first) is ProcessState.DEAD
    assert cluster.leader_of(topic) != first
    produce(cluster, topic, b"meanwhile")
    cluster.restart(first)
    cluster.wait_until_in_sync(topic)
    assert cluster.in_sync(topic) == [1, 2, 3]
    assert consume(cluster, topic, 2) == [b"before", b"meanwhile"]


def test_a_leader_that_stands_still_is_replaced_and_follows_later(cluster: Cluster, topic: str) -> None:
    first = cluster.leader_of(topic)
    cluster.pause(first)
    assert cluster.state(first) is ProcessState.PAUSED
    assert cluster.leader_of(topic) != first
    produce(cluster, topic, b"meanwhile")
    cluster.resume(first)
    cluster.wait_until_in_sync(topic)


def test_the_leader_moves_where_it_is_wanted(cluster: Cluster, topic: str) -> None:
    for wanted in (2, 3, 1):
        cluster.move_leader(topic, 0, wanted)
        assert cluster.leader_of(topic) == wanted
        assert cluster.replicas_of(topic)[0] == wanted
    assert cluster.in_sync(topic) == [1, 2, 3]


def test_replicas_move_and_a_broker_without_one_gets_the_lead(cluster: Cluster, topic: str) -> None:
    cluster.reassign(topic, 0, [2])
    assert cluster.in_sync(topic) == [2]
    cluster.move_leader(topic, 0, 3)
    assert cluster.replicas_of(topic) == [3]
    cluster.reassign(topic, 0, [1, 2, 3])


def test_a_topic_with_one_replica_is_written_although_a_topic_with_three_needs_two_in_sync(cluster: Cluster) -> None:
    topic = cluster.unique_topic("single")
    with ClusterClient(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        admin.create_topic(topic, replication_factor=1)
        configs = admin.describe_configs(AdminResource(AdminResourceType.TOPIC, topic))
    assert {each.name: each.value for each in configs}["min.insync.replicas"] == "2"
    produce(cluster, topic, b"alone")
    assert consume(cluster, topic, 1) == [b"alone"]


def test_a_follower_that_is_cut_off_from_its_leader_falls_out_of_sync_and_catches_up(cluster: Cluster, topic: str) -> None:
    leader, follower = (each for each in cluster.broker_ids if each != cluster.controller())
    cluster.move_leader(topic, 0, leader)
    cluster.partition(follower, leader)
    cluster.wait_until_in_sync(topic, replicas=2)
    produce(cluster, topic, b"meanwhile")
    cluster.heal()
    cluster.wait_until_in_sync(topic)
    assert consume(cluster, topic, 1) == [b"meanwhile"]


def test_a_slow_link_delays_and_loses_nothing(cluster: Cluster, topic: str) -> None:
    cluster.slow(1, [2, 3], delay_s=0.05, bytes_per_s=400_000)
    produce(cluster, topic, b"slow")
    assert consume(cluster, topic, 1) == [b"slow"]


def test_after_everything_at_once_it_recovers(cluster: Cluster, topic: str) -> None:
    produce(cluster, topic, b"kept")
    cluster.partition(1, 2, one_way=True)
    cluster.pause(1)
    cluster.kill(2, 3)
    cluster.recover()
    assert cluster.in_sync(topic) == [1, 2, 3]
    assert consume(cluster, topic, 1) == [b"kept"]


def test_a_wait_ends_and_says_what_for(cluster: Cluster, topic: str) -> None:
    cluster.kill(3)
    with pytest.raises(TimeoutError, match=r"all replicas of .* are in sync; brokers: 1 up, 2 up, 3 dead; their logs: .*logs"):
        cluster.wait_until_in_sync(topic, timeout_s=0.5)
    cluster.pause(1, 2)
    with pytest.raises(TimeoutError, match="all replicas of all topics are in sync; brokers: 1 paused, 2 paused, 3 dead"):
        cluster.wait_until_in_sync(timeout_s=0.5)  # no broker is asked


def test_data_and_ports_are_kept_where_the_directory_is_the_callers(tmp_path: Path) -> None:
    with Cluster(2, directory=tmp_path / "c", timeout_s=LIMIT_S) as cluster:
        before = cluster.bootstrap_servers
        cluster.create_topic("kept")
        cluster.stop()
        cluster.start()
        assert cluster.bootstrap_servers == before
        assert cluster.topics() == ["kept"]
    assert (tmp_path / "c" / "brokers" / "1" / "kept-0").is_dir()


KILLED = """
import os, signal
from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.cluster import Cluster as ClusterClient
from moldau.testing import Cluster
with Cluster(2) as cluster:
    print(cluster.directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_brokers_end_with_a_process_that_is_killed(cluster: Cluster) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=300, check=False)
    left = existing_state(done.stdout.strip())
    cluster._wait(lambda: all(has_ended(each.process) for each in left.brokers), "they have ended")


@pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")
def test_a_broker_that_is_cut_off_from_zookeeper_loses_its_session_and_leads_again_later() -> None:
    server = zookeeper.shared_server()
    settings = {"zookeeper.session.timeout.ms": 2000, "suspicion.timeout.ms": 60_000}
    with Cluster(zookeeper=f"127.0.0.1:{server.port}/fixture", settings=settings, timeout_s=LIMIT_S) as cluster:
        topic = cluster.create_topic("t")
        cluster.wait_until_in_sync(topic)
        first = cluster.leader_of(topic)
        cluster.partition(first, "zookeeper")
        cluster._wait(lambda: cluster.leader_of(topic) != first, "another one leads")
        cluster.recover()
        cluster.move_leader(topic, 0, first)
