"""Operators change a mirror while it runs: only what they name stops or continues, and each state has a name (mission F3)."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.cli.exit_codes import DONE, FAILED, NO_PROCESS, PARTITION_HALTED
from moldau.testing import Broker
from support.console import ConsoleInside, Done
from support.mirror_world import MirrorProgram, committed_end

pytestmark = pytest.mark.system
LIMIT_S = 25.0

MERGE = """
name = "aggregate"
mode = "merge"
naming = "source.topic"
sources.east.bootstrap.servers = "{source}"
target.bootstrap.servers = "{target}"
topics.include = ["orders", "clicks"]
"""
COPY = """
name = "standby"
mode = "copy"
source.bootstrap.servers = "{source}"
target.bootstrap.servers = "{target}"
topics.include = ["orders", "clicks"]
"""


def eventually(is_so: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < limit, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.1)


class World:
    """A source and a target in this process, a mirror in another, and `clicks`, which is written all the time."""

    def __init__(self, directory: Path, text: str) -> None:
        self.source, self.target = Broker(), Broker()
        self.source.start()
        self.target.start()
        for topic in ("orders", "clicks", "web"):
            self.source.create_topic(topic)
        self.file = directory / "mirror.toml"
        self.file.write_text(text.format(source=self.source.bootstrap_servers, target=self.target.bootstrap_servers))
        self.mirror = MirrorProgram(self.file, "1", "--metrics", "127.0.0.1:0")
        self._console = ConsoleInside()
        self._prefix = "east." if "merge" in text else ""
        self._over = threading.Event()
        self._clicks = threading.Thread(target=self._write_clicks)
        self._clicks.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._clicks.join()
        if self.mirror.running:
            self.mirror.kill()
        self.source.close()
        self.target.close()

    def _write_clicks(self) -> None:
        producer = Producer({"bootstrap.servers": self.source.bootstrap_servers, "log_level": 0})
        while not self._over.wait(0.02):
            producer.produce("clicks", b"click", partition=0)
            producer.poll(0)
        producer.flush(LIMIT_S)

    def produce(self, topic: str, *values: str) -> None:
        """Each in a batch of its own: a copy takes whole batches."""
        producer = Producer({"bootstrap.servers": self.source.bootstrap_servers, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=0)
            assert producer.flush(LIMIT_S) == 0

    def run(self, command: str, *arguments: str) -> Done:
        return self._console("mirror", *command.split(), str(self.file), *arguments)

    def state(self, topic: str) -> str:
        """As `status` has it."""
        rows = self.run("status", "--json").json["partitions"]
        return next((row["state"] for row in rows if row["topic"] == topic), "")

    def mirrored(self, topic: str) -> list[str]:
        """The values in the target."""
        name = self._prefix + topic
        if name not in self._console("topic", "list", "-b", self.target.bootstrap_servers).out.split():
            return []
        return [value.decode() for _, _, value, *_ in committed_end(self.target.bootstrap_servers, name, [0])[0]]

    def clicks_go_through(self) -> bool:
        """Whether `clicks` is mirrored all the while: what is there now, and more a moment later."""
        consumer = Consumer({"bootstrap.servers": self.target.bootstrap_servers, "group.id": "judge", "log_level": 0})
        clicks = TopicPartition(f"{self._prefix}clicks", 0)
        try:
            before = consumer.get_watermark_offsets(clicks, LIMIT_S)[1]
            eventually(lambda: consumer.get_watermark_offsets(clicks, LIMIT_S)[1] > before + 5, "clicks are mirrored")
        finally:
            consumer.close()
        return True

    def metrics(self) -> str:
        (address,) = re.findall(r"metrics at http://(\S+)/metrics", self.mirror.log.read_text())
        connection = HTTPConnection(address, timeout=LIMIT_S)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


@pytest.fixture
def merge(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, MERGE) as world:
        yield world


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, COPY) as world:
        yield world


def test_a_merge_is_paused_changed_and_accepted_topic_by_topic(merge: World) -> None:
    # before a process runs: the check finds nothing wrong, and the status says that no process reports
    merge.produce("orders", "1", "2")
    assert merge.run("check").code == DONE
    assert merge.run("status").code == NO_PROCESS
    merge.mirror.start()
    eventually(lambda: merge.mirrored("orders") == ["1", "2"] and merge.state("orders") == "mirroring", "orders are mirrored")

    # a topic that is paused stands still with its lag, while another one is mirrored
    assert merge.run("pause", "--topic", "orders").lines == ["topic orders is paused"]
    eventually(lambda: merge.state("orders") == "paused", "orders are paused")
    merge.produce("orders", "3")
    assert merge.clicks_go_through()
    assert merge.mirrored("orders") == ["1", "2"]
    assert merge.run("status").code == DONE, "a pause is what an operator wants"
    assert merge.run("resume", "--topic", "orders").lines == ["topic orders is resumed"]
    eventually(lambda: merge.mirrored("orders") == ["1", "2", "3"], "orders are mirrored again")

    # topics come and go
    merge.produce("web", "a")
    assert merge.run("topics add", "web").lines == ["east: web is added"]
    eventually(lambda: merge.mirrored("web") == ["a"], "web is mirrored")
    assert merge.run("topics remove", "we.").lines == ["east: web is removed"]
    eventually(lambda: merge.state("web") == "", "web is not mirrored any more")
    merge.produce("web", "b")
    assert merge.clicks_go_through()
    assert merge.mirrored("web") == ["a"]

    # a topic that is made again halts with that state, until an operator accepts it
    console = ConsoleInside(merge.source.bootstrap_servers)
    console.ok("topic", "delete", "orders")
    merge.source.create_topic("orders")
    merge.produce("orders", "new")
    eventually(lambda: merge.state("orders") == "recreated", "the state has a name")
    assert merge.run("status").code == PARTITION_HALTED
    assert 'moldau_mirror_partition_halted{partition="0",source="east",state="recreated",topic="orders"} 1.0' in merge.metrics()
    assert merge.clicks_go_through()
    (line,) = merge.run("accept", "--topic", "orders").lines
    assert re.fullmatch(
        r"orders-0 of east: continues at offset 0 of the topic with id \w{32}; of the earlier topic everything from offset 3 on is skipped",
        line,
    )
    eventually(lambda: merge.mirrored("orders") == ["1", "2", "3", "new"], "the new topic is mirrored")
    eventually(lambda: merge.run("status").code == DONE, "all is well again")
    assert merge.mirror.stop() == DONE
    assert merge.run("status").code == NO_PROCESS


def test_a_copy_continues_after_a_gap_and_not_after_another_topic(copy: World) -> None:
    copy.produce("orders", "1", "2")
    copy.mirror.start()
    eventually(lambda: copy.mirrored("orders") == ["1", "2"], "orders are mirrored")

    # retention passes a paused partition: the gap is accepted, and said
    copy.run("pause", "--topic", "orders", "--partition", "0")
    eventually(lambda: copy.state("orders") == "paused", "orders are paused")
    copy.produce("orders", "3", "4", "5")
    console = ConsoleInside(copy.source.bootstrap_servers)
    console.ok("topic", "trim", "orders", "--before", "4")
    copy.run("resume")
    eventually(lambda: copy.state("orders") == "out of retention", "the state has a name")
    assert copy.run("status").code == PARTITION_HALTED
    (line,) = copy.run("accept", "--topic", "orders").lines
    assert line == "orders-0 of source: continues at offset 4; offsets 2 to 3 are skipped, and missing in the target"
    eventually(lambda: copy.mirrored("orders") == ["1", "2", "5"], "what is left is copied")
    assert copy.clicks_go_through()

    # a topic that is made again is refused with what to do
    console.ok("topic", "delete", "orders")
    copy.source.create_topic("orders")
    eventually(lambda: copy.state("orders") == "recreated", "the state has a name")
    refused = copy.run("accept", "--topic", "orders")
    assert refused.code == FAILED
    assert "delete topic orders in the target" in refused.err
    assert copy.clicks_go_through()
