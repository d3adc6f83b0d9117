"""Kafka's own tools list, describe, change and delete our groups, and read our offsets topic, from the broker and from its folders."""

import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_admin import DeleteGroupsRequest
from moldau.protocol.messages.group_members import JoinGroupRequest, JoinGroupRequestProtocol, SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.testing import Broker
from support.kafka import java
from support.kafka_tools import DUMPS, GROUPS, KafkaTools, Printed
from support.memberships import subscription
from support.wire import Wire, batch, produce

pytestmark = pytest.mark.system

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1, "group.max.session.timeout.ms": 10_000_000}
NO_USER_DATA = b"\xff\xff\xff\xff"
ASSIGNMENT = struct.pack(">hi", 0, 1) + b"\0\1t" + struct.pack(">iii", 2, 0, 1) + NO_USER_DATA
"""Partitions 0 and 1 of the topic "t", as consumers write it."""


class World(NamedTuple):
    tools: KafkaTools
    broker: Broker
    wire: Wire
    member_id: str

    def tool(self, *arguments: str) -> str:
        done = self.tools(GROUPS, "--bootstrap-server", self.broker.bootstrap_servers, *arguments)
        assert done.code == 0, done.text
        return done.text

    def table(self, *arguments: str) -> list[list[str]]:
        """Rows of what the tool prints, without the headings."""
        rows = [line.split() for line in self.tool(*arguments).splitlines() if line.strip()]
        return [row for row in rows if row[0] not in ("GROUP", "Consumer")]


def commit(wire: Wire, group: str, offsets: dict[int, int], *, version: int = 9, metadata: str = "", **said: Any) -> None:
    partitions = [OffsetCommitRequestPartition(index, offset, 0, metadata) for index, offset in offsets.items()]
    answer = wire.ask(OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic("t", partitions=partitions)], **said), version)
    assert not any(each.error_code for each in answer.topics[0].partitions)


@pytest.fixture(scope="module")
def world(kafka_tools: KafkaTools) -> Iterator[World]:
    """A group of one static member, one that was only ever committed to, one with a time of expiry, and one that is deleted."""
    with Broker(settings=SETTINGS) as broker:
        broker.create_topic("t", partitions=3)
        host, port = broker.bootstrap_servers.split(":")
        wire = Wire((host, int(port)))
        wire.ask(produce("t", batch(b"value", 10)), 9)
        wire.ask(FindCoordinatorRequest("any"), 2)
        commit(wire, "simple", {0: 5, 1: 0}, metadata="where")
        commit(wire, "old", {0: 1}, version=2, retention_time_ms=86_400_000)
        commit(wire, "gone", {0: 1})
        assert wire.ask(DeleteGroupsRequest(["gone"]), 2).results[0].error_code == 0
        protocols = [JoinGroupRequestProtocol("range", subscription("t", rest=NO_USER_DATA))]
        join = JoinGroupRequest("busy", 9_000_000, 60_000, group_instance_id="i-1", protocol_type="consumer", protocols=protocols)
        joined = wire.ask(join, 5)
        assignments = [SyncGroupRequestAssignment(joined.member_id, ASSIGNMENT)]
        wire.ask(SyncGroupRequest("busy", joined.generation_id, joined.member_id, "i-1", assignments=assignments), 4)
        commit(wire, "busy", {0: 7}, member_id=joined.member_id, generation_id_or_member_epoch=joined.generation_id)
        yield World(kafka_tools, broker, wire, joined.member_id)
        wire.close()


def test_an_offset_with_a_time_of_its_own_and_a_static_member_are_described(world: World) -> None:
    """The rest is in test_kafka_console_tools.py."""
    (old,) = world.table("--describe", "--group", "old")
    assert old == ["old", "t", "0", "1", "10", "9", "-", "-", "-"]
    (member,) = world.table("--describe", "--group", "busy", "--members", "--verbose")
    assert member == ["busy", world.member_id, "i-1", "/127.0.0.1", "wire", "2", "-", "t:0,1", "-", "-"]


OFFSETS_BEFORE = [
    ("busy", 0, {"offset": 7, "leaderEpoch": 0, "metadata": ""}),
    ("gone", 0, {"offset": 1, "leaderEpoch": 0, "metadata": ""}),
    ("gone", 0, None),
    ("old", 0, {"offset": 1, "metadata": ""}),
    ("simple", 0, {"offset": 5, "leaderEpoch": 0, "metadata": "where"}),
    ("simple", 1, {"offset": 0, "leaderEpoch": 0, "metadata": "where"}),
]


def told(key: dict[str, Any], value: dict[str, Any] | None) -> tuple[str, int, dict[str, Any] | None]:
    """An offset's record in short, from Kafka's JSON; times and ids vary."""
    data = None if value is None else {name: each for name, each in value["data"].items() if name in ("offset", "leaderEpoch", "metadata")}
    assert key["data"]["topic"] == "t"
    if value is not None:
        assert int(value["version"]) == (1 if "expireTimestamp" in value["data"] else 4)
    return key["data"]["group"], key["data"]["partition"], data


def formatted(world: World, timeout_ms: int) -> list[tuple[str, int, dict[str, Any] | None]]:
    """What Kafka's console consumer prints of the offsets topic; it ends when nothing has come for so long."""
    arguments = ["--topic", "__consumer_offsets", "--partition", "0", "--offset", "earliest", "--timeout-ms", str(timeout_ms)]
    done = java("4.3.0", CONSUMER, "--bootstrap-server", world.broker.bootstrap_servers, "--formatter", FORMATTER, *arguments)
    rows = re.findall(r'\{"key":.*?\}(?=\{"key"|\s*$|\d{4}-)', done.stdout, re.MULTILINE)
    return [told(row["key"], row["value"]) for row in map(json.loads, rows)]


def test_kafkas_formatter_reads_the_offsets_topic(world: World) -> None:
    found = formatted(world, timeout_ms=2_000)
    if len(found) < len(OFFSETS_BEFORE):  # on a busy machine Java may need longer than that for its first fetch
        found = formatted(world, timeout_ms=30_000)
    assert sorted(found, key=str) == sorted(OFFSETS_BEFORE, key=str)


def test_groups_are_changed_and_deleted(world: World) -> None:
    reset = world.tool("--reset-offsets", "--group", "simple", "--topic", "t:0", "--shift-by", "-2", "--execute")
    assert re.search(r"^simple +t +0 +3", reset, re.MULTILINE)
    refused = world.tool("--delete-offsets", "--group", "busy", "--topic", "t:0")
    assert "GroupSubscribedToTopicException" in refused
    deleted = world.tool("--delete", "--group", "old", "--group", "simple")
    assert "was successful" in deleted
    assert world.table("--list") == [["busy"]]


DUMPED = re.compile(r"^\| offset: .* key: (\{.*\}) payload: (.*)$", re.MULTILINE)


@pytest.mark.parametrize("version", DUMPS)
def test_kafkas_dump_reads_the_folders(world: World, kafka_dump: Callable[..., Printed], version: str) -> None:
    if world.broker.running:
        world.broker.stop()
    files = sorted(Path(world.broker.directory).glob("__consumer_offsets-*/*.log"))
    done = kafka_dump(version, "--files", ",".join(map(str, files)), "--offsets-decoder")
    assert done.code == 0, done.text
    rows = [(json.loads(key), None if value == "<DELETE>" else json.loads(value)) for key, value in DUMPED.findall(done.text)]
    offsets = [told(key, value) for key, value in rows if key["type"] == "1"]
    after = [("simple", 0, {"offset": 3, "leaderEpoch": -1, "metadata": ""}), ("simple", 0, None), ("simple", 1, None), ("old", 0, None)]
    assert sorted(offsets, key=str) == sorted([*OFFSETS_BEFORE, *after], key=str)
    ((group, state),) = [(key["data"]["group"], value["data"]) for key, value in rows if key["type"] == "2" and value is not None]
    assert (group, state["protocolType"], state["generation"], state["protocol"], state["leader"]) == (
        "busy",
        "consumer",
        1,
        "range",
        world.member_id,
    )
    (member,) = state["members"]
    assert (member["memberId"], member["groupInstanceId"], member["sessionTimeout"]) == (world.member_id, "i-1", 9_000_000)
    assert member["subscription"]["topics"] == ["t"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [0, 1]}]
