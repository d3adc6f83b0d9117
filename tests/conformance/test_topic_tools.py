"""Kafka's console tools for topics, settings and records work against Moldau: those that docs/from-kafka.md puts beside ours.

TopicCommand (`kafka-topics.sh`), ConfigCommand (`kafka-configs.sh`), DeleteRecordsCommand, LogDirsCommand, ReassignPartitionsCommand,
ConsoleConsumer, ProducerPerformance, of Kafka 4.3.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.console import Console
from support.kafka_tools import KafkaTools, Printed
from support.local_cluster import wait_for
from support.server import ServerProcess

pytestmark = pytest.mark.system

TOOLS = "org.apache.kafka.tools."
CONFIGS = "kafka.admin.ConfigCommand"


class World:
    """A broker, Kafka's tools and ours."""

    def __init__(self, server: ServerProcess, tools: KafkaTools) -> None:
        self.moldau = Console(server.bootstrap)
        self._server, self._tools = server, tools

    def __call__(self, tool: str, *arguments: str) -> str:
        done: Printed = self._tools(tool, "--bootstrap-server", self._server.bootstrap, *arguments)
        assert done.code == 0, done.text
        return done.text

    def produced(self, topic: str, count: int) -> None:
        """By ProducerPerformance."""
        size = ("--num-records", str(count), "--record-size", "10", "--throughput", "-1")
        self(TOOLS + "ProducerPerformance", "--topic", topic, *size, "--command-property", "acks=all")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka_tools: KafkaTools) -> Iterator[World]:
    with ServerProcess(tmp_path_factory.mktemp("tools") / "data") as server:
        yield World(server, kafka_tools)


def test_topics(world: World) -> None:
    topics = TOOLS + "TopicCommand"
    world(topics, "--create", "--topic", "made", "--partitions", "3", "--config", "retention.ms=60000")
    assert "made" in world(topics, "--list").split()
    described = world(topics, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    assert "retention.ms=60000" in described
    world(topics, "--alter", "--topic", "made", "--partitions", "5")
    assert len(world.moldau.ok("topic", "describe", "made", "--json").json[0]["partitions"]) == 5
    world(topics, "--delete", "--topic", "made")
    assert "made" not in world(topics, "--list").split()


def test_settings(world: World) -> None:
    world.moldau.ok("topic", "create", "set")
    of_topic, of_all = ("--entity-type", "topics", "--entity-name", "set"), ("--entity-type", "brokers", "--entity-default")
    world(CONFIGS, *of_topic, "--alter", "--add-config", "retention.ms=70000")
    assert "retention.ms=70000" in world(CONFIGS, *of_topic, "--describe")
    world(CONFIGS, *of_topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in world(CONFIGS, *of_topic, "--describe")
    world(CONFIGS, *of_all, "--alter", "--add-config", "message.max.bytes=2000000")
    assert "2000000" in world.moldau.ok("config", "describe", "--broker", "default").out
    world(CONFIGS, *of_all, "--alter", "--delete-config", "message.max.bytes")


def test_records(world: World, tmp_path: Path) -> None:
    world.moldau.ok("topic", "create", "read", "--partitions", "1")
    world.produced("read", 100)
    assert "Processed a total of 100 messages" in world(
        TOOLS + "consumer.ConsoleConsumer", "--topic", "read", "--from-beginning", "--max-messages", "100"
    )
    (tmp_path / "before.json").write_text(json.dumps({"partitions": [{"topic": "read", "partition": 0, "offset": 40}], "version": 1}))
    assert "low_watermark: 40" in world(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "before.json"))
    assert len(world.moldau.ok("consume", "read", "--until-end").lines) == 60
    assert '"read-0"' in world(TOOLS + "LogDirsCommand", "--describe", "--topic-list", "read")


def test_a_replica_moves_to_another_directory_of_its_broker(tmp_path: Path, kafka_tools: KafkaTools) -> None:
    """ReassignPartitionsCommand (`kafka-reassign-partitions.sh`) with `log_dirs` and a throttle, while there are records to copy."""
    directories = [str(tmp_path / name) for name in ("first", "second")]
    with ServerProcess(tmp_path / "first", arguments=["--data", directories[1]]) as server:
        world = World(server, kafka_tools)
        world.moldau.ok("topic", "create", "moved", "--partitions", "1")
        world.produced("moved", 20_000)
        (before,) = (each for each in directories if (Path(each) / "moved-0").is_dir())
        (to,) = {*directories} - {before}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [0], "log_dirs": [to]}]}))
        reassign = (TOOLS + "reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
        started = world(*reassign, "--execute", "--replica-alter-log-dirs-throttle", "1000000")
        assert f"to {to} for replica moved-0 with broker 0" in started
        wait_for(lambda: "Reassignment of replica moved-0-0 completed successfully." in world(*reassign, "--verify"))
        assert (Path(to) / "moved-0").is_dir()
        assert not (Path(before) / "moved-0").exists()
        world.produced("moved", 100)
        assert len(world.moldau.ok("consume", "moved", "--until-end").lines) == 20_100
