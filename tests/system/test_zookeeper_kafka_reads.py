"""Apache Kafka's own reader of ZooKeeper finds a cluster of ours as one of its own, and ignores the keys that we add."""

import base64
import json
import socket
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.adapters.zookeeper_server import ZookeeperServer
from moldau.assembly.local_cluster.state import existing_state
from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from support import zookeeper
from support.java import java_command
from support.local_cluster import LocalCluster
from support.maven import kafka_libraries
from support.ports import free_ports
from support.server import ServerProcess

pytestmark = [pytest.mark.system, pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")]

LIMIT_S = 120.0
NOTHING_ELSE = ("defaults {}", "deleted []", "reassigned {}")
READER = Path(zookeeper.__file__).with_name("ReadTree.java")


def java(*arguments: str) -> str:
    command = java_command(kafka_libraries("3.9.1"), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_by_kafka(connect: str, topic: str, bootstrap: str) -> list[str]:
    """What its reader prints, without ids of cluster and topic: they are those that a client receives."""
    lines = java(str(READER), connect, topic).splitlines()
    with Cluster(bootstrap) as cluster:
        found = cluster.metadata([topic])
    topic_id = base64.urlsafe_b64encode(found.topics[topic].id).decode().rstrip("=")
    ids = {f"cluster {found.cluster_id}", f"id {topic_id}"}
    assert ids <= set(lines)
    return [line for line in lines if line not in ids]


def test_kafkas_reader_and_the_shell_of_zookeeper_read_our_tree(tmp_path: Path) -> None:
    server = ZookeeperServer(str(tmp_path / "zookeeper"), zookeeper.HOST, free_ports(1)[0])
    connect = f"{zookeeper.HOST}:{server.port}/one"
    broker = ServerProcess(tmp_path / "data", arguments=["--zookeeper", connect])
    try:
        server.start()
        zookeeper.wait_serving(server)
        broker.start()
        topic = NewTopic("orders", 2, 1, config={"retention.ms": "5000"})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([topic], operation_timeout=LIMIT_S)["orders"].result(LIMIT_S)

        assert read_by_kafka(connect, "orders", broker.bootstrap) == [
            "controller 0 epoch 1",
            f"broker 0 {broker.bootstrap} rack Some({socket.gethostname()})",
            "topics [orders]",
            *(f"partition orders-{index} replicas [0] leader 0 epoch 0 isr List(0) controller epoch 1" for index in range(2)),
            "config {retention.ms=5000}",
            *NOTHING_ELSE,
        ]

        shell = java("org.apache.zookeeper.ZooKeeperMain", "-server", connect, "get", "/brokers/topics/orders/partitions/0/state")
        (state,) = (json.loads(line) for line in shell.splitlines() if line.startswith("{"))
        assert {"leader": 0, "isr": [0]}.items() <= state.items()
        assert "broker_epoch" in state, "a key of ours"
    finally:
        if broker.running:
            broker.stop()
        server.kill()


def test_kafkas_reader_sees_a_cluster_and_the_failover_of_its_leaders(tmp_path: Path) -> None:
    """Registrations, replicas, who is in sync and leads in which epoch, settings of topics and brokers; keys of ours are in the nodes.

    Others lead before the killed broker's session expires, and with it its registration.
    """
    with LocalCluster(tmp_path / "c", "--port", "0", "--zookeeper", "start", "-s", "broker.rack=here").up() as cluster:
        connect = f"{zookeeper.HOST}:{existing_state(str(cluster.directory)).zookeeper_port}"
        with Cluster(cluster.bootstrap) as client:
            admin = Admin(client)
            admin.create_topic("orders", 1, 3, {"retention.ms": "5000"})
            admin.alter_configs(AdminResource(AdminResourceType.BROKER, ""), ConfigUpdate({"log.retention.ms": "7000"}))
        (killed, *others) = cluster.wait_in_sync("orders", 3)["replicas"]
        cluster.kill_leader("orders")
        state = cluster.wait_in_sync("orders", 2)
        zookeeper.wait_gone(connect, f"/brokers/ids/{killed}")
        brokers = {each["id"]: each["address"] for each in cluster.status()["brokers"]}

        lines = read_by_kafka(connect, "orders", ",".join(brokers[each] for each in others))
        controller, *registered = (line for line in lines if line.startswith(("controller", "broker ")))
        assert int(controller.split()[1]) in others
        assert sorted(registered) == [f"broker {each} {brokers[each]} rack Some(here)" for each in sorted(others)]
        (partition,) = (line for line in lines if line.startswith("partition"))
        isr = ", ".join(map(str, state["isr"]))
        assert partition.startswith(f"partition orders-0 replicas [{killed}, {others[0]}, {others[1]}] leader {state['leader']} epoch ")
        assert f" isr List({isr}) " in partition
        assert killed not in state["isr"]
        assert "config {retention.ms=5000}" in lines
        assert "defaults {log.retention.ms=7000}" in lines
