"""Apache Kafka's own reader of ZooKeeper finds a cluster of ours as one of its own, and ignores the keys that we add."""

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.adapters.zookeeper_server import ZookeeperServer, free_ports
from support import zookeeper
from support.maven import kafka_libraries
from support.server import ServerProcess

pytestmark = [pytest.mark.system, pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")]

LIMIT_S = 120.0
READER = Path(zookeeper.__file__).with_name("ReadTree.java")


def java(*arguments: str) -> str:
    command = ["java", "-cp", f"{kafka_libraries('3.9.1')}/*", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_reader_and_the_shell_of_zookeeper_read_our_tree(tmp_path: Path) -> None:
    server = ZookeeperServer(str(tmp_path / "zookeeper"), zookeeper.HOST, free_ports(zookeeper.HOST, 1)[0])
    connect = f"{zookeeper.HOST}:{server.port}/one"
    broker = ServerProcess(tmp_path / "data", arguments=["--zookeeper", connect])
    try:
        server.start()
        zookeeper.wait_serving(server)
        broker.start()
        topic = NewTopic("orders", 2, 1, config={"retention.ms": "5000"})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([topic], operation_timeout=LIMIT_S)["orders"].result(LIMIT_S)

        lines = java(str(READER), connect, "orders").splitlines()
        assert [line.partition(" ")[0] for line in lines] == ["cluster", "controller", "broker", "topics", *["partition"] * 2, "config"]
        assert lines[1:4] == ["controller 0", f"broker 0 {broker.bootstrap}", "topics [orders]"]
        for index, line in enumerate(lines[4:6]):
            assert line == f"partition orders-{index} replicas [0] leader 0 epoch 0 isr List(0) controller epoch 1"
        assert lines[6] == "config {retention.ms=5000}"

        shell = java("org.apache.zookeeper.ZooKeeperMain", "-server", connect, "get", "/brokers/topics/orders/partitions/0/state")
        (state,) = (json.loads(line) for line in shell.splitlines() if line.startswith("{"))
        assert {"leader": 0, "isr": [0]}.items() <= state.items()
        assert "broker_epoch" in state, "a key of ours"
    finally:
        if broker.running:
            broker.stop()
        server.kill()
