"""Apache Kafka's own clients at three brokers of ours, which are killed and started again.

The Java clients, an idempotent producer and a group that copies in transactions, and Kafka Streams with ``exactly_once_v2``: nothing is
lost, nothing is doubled, and the order is kept. So with Connect's distributed workers and MirrorMaker 2 where exactly-once support for
sources is enabled. By default both promise every record at least once: nothing is lost, and what arrives first is in order. These take long
to start, and run with MOLDAU_TORTURE=1.
"""

import contextlib
import json
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.testing.broker import Broker
from moldau.testing.cluster.cluster import Cluster
from support.committed import committed_values
from support.java import compile_java
from support.java_programs import SOURCES, java_program
from support.local_cluster import LIMIT_S, wait_for
from support.maven import connect_libraries, kafka_libraries
from support.ports import free_ports
from support.sizes import TORTURE
from support.steady_producer import SteadyProducer
from support.supervised import Program

pytestmark = [pytest.mark.system, pytest.mark.torture]

KAFKA = "4.3.0"
PARTITIONS = 3
FURTHER = 100
"""So many more records show that a program continues."""
SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
}

WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "500",
    "plugin.discovery": "service_load",
}
"""Of Connect; other ways to discover plugins read all jars for a long time."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """For all tests of the module."""
    with Cluster(settings=SETTINGS, timeout_s=LIMIT_S) as brokers:
        yield brokers


@pytest.fixture
def cluster(brokers: Cluster) -> Iterator[Cluster]:
    """Every broker is up and in sync, also after a test that failed."""
    yield brokers
    brokers.recover()


def killed_and_started_again(cluster: Cluster, broker_id: int, wait_further: Callable[[], None]) -> None:
    """What is at work gets on while the broker is dead, and when it is back."""
    wait_further()
    cluster.kill(broker_id)
    wait_further()
    cluster.restart(broker_id)
    cluster.wait_until_in_sync()
    wait_further()


class Arrivals:
    """A reader of committed records that follows a topic while brokers fail."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "arrivals", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self.values: list[bytes] = []
        """In the order in which they came, partitions mixed."""

    def wait_further(self) -> None:
        """Until there are more than now."""
        self._poll()
        wanted = len(self.values) + FURTHER
        self.wait_until(lambda: len(self.values) >= wanted)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Until the values are as wanted."""

        def look() -> bool:
            self._poll(0.2)
            return is_so()

        wait_for(look)

    def _poll(self, wait_s: float = 0) -> None:
        self.values += [each.value() or b"" for each in self._consumer.consume(10_000, wait_s) if each.error() is None]

    def close(self) -> None:
        self._consumer.close()


def test_an_idempotent_producer_and_a_group_that_copies_in_transactions(cluster: Cluster, tmp_path: Path) -> None:
    source, target = (cluster.create_topic(cluster.unique_topic(each), PARTITIONS) for each in ("numbers", "copies"))
    libraries = kafka_libraries(KAFKA)
    classes = compile_java(libraries, tmp_path, *(SOURCES / f"{each}.java" for each in ("Numbers", "Copy")))
    with (
        contextlib.closing(Arrivals(cluster.bootstrap_servers, target, PARTITIONS)) as copies,
        java_program(libraries, "Copy", cluster.bootstrap_servers, source, target, "copiers", "copier", classes=classes),
    ):
        with java_program(libraries, "Numbers", cluster.bootstrap_servers, source, f"{PARTITIONS}", classes=classes) as numbers:
            for each in cluster.broker_ids if TORTURE else [cluster.leader_of(source)]:
                killed_and_started_again(cluster, each, copies.wait_further)
            numbers.terminate()
            numbers.wait_for("acknowledged", LIMIT_S)
        sent = int(numbers.lines[-1].removeprefix("acknowledged "))
        copies.wait_until(lambda: len(copies.values) >= sent)
    expected = [[b"%d" % number for number in range(first, sent, PARTITIONS)] for first in range(PARTITIONS)]
    assert committed_values(cluster.bootstrap_servers, source, PARTITIONS) == expected
    assert committed_values(cluster.bootstrap_servers, target, PARTITIONS) == [[b"copy of " + value for value in each] for each in expected]


def test_streams_count_exactly_once(cluster: Cluster, tmp_path: Path) -> None:
    source, target = (cluster.create_topic(cluster.unique_topic(each)) for each in ("numbers", "counts"))
    libraries = connect_libraries(KAFKA)
    classes = compile_java(libraries, tmp_path, SOURCES / "Digits.java")
    application = "digits"
    with (
        contextlib.closing(Arrivals(cluster.bootstrap_servers, target)) as counts,
        java_program(libraries, "Digits", cluster.bootstrap_servers, source, target, application, f"{tmp_path / 'state'}", classes=classes),
    ):
        with SteadyProducer(cluster.bootstrap_servers, source) as producer:
            counts.wait_further()
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            coordinator = admin.describe_consumer_groups([application])[application].result(LIMIT_S).coordinator
            assert coordinator is not None
            killed_and_started_again(cluster, coordinator.id, counts.wait_further)
        producer.assert_nothing_lost_or_doubled()
        counts.wait_until(lambda: len(counts.values) >= len(producer.acknowledged))
    (found,) = committed_values(cluster.bootstrap_servers, target)
    for digit in "0123456789":
        count = sum(f"{number}"[-1] == digit for number in producer.acknowledged)
        assert [each for each in found if each.startswith(digit.encode())] == [f"{digit} {each}".encode() for each in range(1, count + 1)]


@pytest.mark.long
def test_mirror_maker_brings_each_record_at_least_once(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic(cluster.unique_topic("mirrored"))
    with Broker() as other:
        mirror = {
            "clusters": "source, target",
            "plugin.discovery": "service_load",
            "source.bootstrap.servers": cluster.bootstrap_servers,
            "target.bootstrap.servers": other.bootstrap_servers,
            "source->target.enabled": "true",
            "source->target.topics": topic,
            "target->source.enabled": "false",
            "replication.factor": "1",
            **{f"{each}.replication.factor": "1" for each in ("heartbeats.topic", "checkpoints.topic")},
            **{f"{each}.storage.replication.factor": "1" for each in ("config", "offset", "status")},
            "offset-syncs.topic.replication.factor": "3",
        }
        config = properties(tmp_path / "mirror", mirror)
        with java_program(connect_libraries(KAFKA), "org.apache.kafka.connect.mirror.MirrorMaker", config):
            wait_for(lambda: f"source.{topic}" in other.topics())
            with contextlib.closing(Arrivals(other.bootstrap_servers, f"source.{topic}")) as arrivals:
                with SteadyProducer(cluster.bootstrap_servers, topic) as producer:
                    killed_and_started_again(cluster, cluster.leader_of(topic), arrivals.wait_further)
                producer.assert_nothing_lost_or_doubled()
                expected = [b"%d" % number for number in sorted(producer.acknowledged)]
                arrivals.wait_until(lambda: expected[-1] in arrivals.values)
    assert list(dict.fromkeys(arrivals.values)) == expected


@pytest.mark.long
def test_mirror_maker_brings_each_record_exactly_once(cluster: Cluster, tmp_path: Path) -> None:
    with Broker() as other:
        topic = other.create_topic(cluster.unique_topic("mirrored"))
        copy = cluster.create_topic(f"source.{topic}")
        mirror = {
            "clusters": "source, target",
            "plugin.discovery": "service_load",
            "source.bootstrap.servers": other.bootstrap_servers,
            "target.bootstrap.servers": cluster.bootstrap_servers,
            "source->target.enabled": "true",
            "source->target.topics": topic,
            "target->source.enabled": "false",
            "target.exactly.once.source.support": "enabled",
            "source.consumer.isolation.level": "read_committed",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "replication.factor": "3",
            **{f"source.{each}.storage.replication.factor": "1" for each in ("config", "offset", "status")},
            "offset-syncs.topic.replication.factor": "1",
        }
        config = properties(tmp_path / "mirror", mirror)

        def run() -> contextlib.AbstractContextManager[Program]:
            return java_program(connect_libraries(KAFKA), "org.apache.kafka.connect.mirror.MirrorMaker", config)

        with contextlib.closing(Arrivals(cluster.bootstrap_servers, copy)) as arrivals:
            with SteadyProducer(other.bootstrap_servers, topic) as producer, run():
                for each in cluster.broker_ids:
                    killed_and_started_again(cluster, each, arrivals.wait_further)
            expected = [b"%d" % number for number in sorted(producer.acknowledged)]
            with run():  # the first one was killed at work
                arrivals.wait_until(lambda: expected[-1:] == arrivals.values[-1:])
    assert committed_values(cluster.bootstrap_servers, copy) == [expected]


class Lines:
    """Lines that are added to a file, which Connect brings into a topic and from there into another file."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.expected: list[str] = []
        self._source, self._sink = directory / "source.txt", directory / "sink.txt"
        self.reading = {"connector.class": "FileStreamSource", "file": f"{self._source}", "topic": topic}
        self.writing = {"connector.class": "FileStreamSink", "file": f"{self._sink}", "topics": topic}

    def wait_further(self) -> None:
        """Until lines that are added arrive."""
        more = [f"{number}" for number in range(len(self.expected), len(self.expected) + FURTHER)]
        with self._source.open("a") as file:
            file.writelines(f"{each}\n" for each in more)
        self.expected += more
        wait_for(lambda: self._sink.exists() and f"\n{more[-1]}\n" in self._sink.read_text())

    def assert_each_arrived(self) -> None:
        """Once or more, in order."""
        assert list(dict.fromkeys(self._sink.read_text().split())) == self.expected


@pytest.mark.long
def test_connect_brings_each_line_at_least_once(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic(cluster.unique_topic("lines"))
    lines = Lines(tmp_path, topic)
    worker = {
        **WORKER,
        "bootstrap.servers": cluster.bootstrap_servers,
        "listeners": "http://127.0.0.1:0",
        "offset.storage.file.filename": f"{tmp_path / 'offsets'}",
    }
    reading, writing = {"name": "reading", **lines.reading}, {"name": "writing", **lines.writing}
    files = [properties(tmp_path / name, each) for name, each in (("worker", worker), ("reading", reading), ("writing", writing))]
    with java_program(connect_libraries(KAFKA), "org.apache.kafka.connect.cli.ConnectStandalone", *files):
        killed_and_started_again(cluster, cluster.leader_of(topic), lines.wait_further)
    lines.assert_each_arrived()


@pytest.mark.long
def test_connect_distributed_brings_each_line_exactly_once_into_a_topic(cluster: Cluster, tmp_path: Path) -> None:
    """And from there at least once into a file, as sinks do."""
    topic = cluster.create_topic(cluster.unique_topic("lines"))
    lines = Lines(tmp_path, topic)
    worker = {
        **WORKER,
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"workers-of-{topic}",
        **{f"{each}.storage.topic": f"{each}-of-{topic}" for each in ("config", "offset", "status")},
        "exactly.once.source.support": "enabled",
        "consumer.isolation.level": "read_committed",
        "scheduled.rebalance.max.delay.ms": "1000",
    }
    addresses = [f"http://127.0.0.1:{port}" for port in free_ports(2)]

    def run(address: str) -> contextlib.AbstractContextManager[Program]:
        config = properties(tmp_path / address.rpartition(":")[2], worker | {"listeners": address})
        return java_program(connect_libraries(KAFKA), "org.apache.kafka.connect.cli.ConnectDistributed", config)

    with run(addresses[0]):
        with run(addresses[1]):
            configure(addresses[0], "reading", lines.reading | {"exactly.once.support": "required"})
            configure(addresses[0], "writing", lines.writing)
            for each in cluster.broker_ids:
                killed_and_started_again(cluster, each, lines.wait_further)
        lines.wait_further()  # the second one was killed
    assert committed_values(cluster.bootstrap_servers, topic) == [[line.encode() for line in lines.expected]]
    lines.assert_each_arrived()


def configure(worker: str, name: str, connector: dict[str, str]) -> None:
    """Create a connector. A worker that starts, or is in a rebalance, refuses, and is asked again."""
    body, headers = json.dumps(connector).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{worker}/connectors/{name}/config", body, headers, method="PUT")

    def put() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S):
                return True
        except HTTPError as refusal:
            refusal.close()
            if refusal.code == HTTPStatus.BAD_REQUEST:
                raise
        except OSError:
            pass
        return False

    wait_for(put)


def properties(path: Path, settings: dict[str, str]) -> str:
    """Write them to a file: its name."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return f"{path}"
