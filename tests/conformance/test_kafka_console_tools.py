"""Kafka's own console tools see and change our groups, transactions, offsets and folders as they do Kafka's (mission J1).

ConsumerGroupCommand, TransactionsCommand, GetOffsetShell against a broker; DumpLogSegments with the decoders of the two internal topics on
the folders that it leaves. What they print was compared with what they print of an Apache Kafka 4.3.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.records.batch import RecordBatchBuilder
from support.kafka_tools import DUMP, GROUPS, OFFSETS, TRANSACTIONS, KafkaTools, Printed
from support.server import ServerProcess
from support.wire import Wire, produce

pytestmark = pytest.mark.system

QUIET = {"log_level": 0}


class World:
    """A broker with two topics of some records, and the tools."""

    def __init__(self, server: ServerProcess, tools: KafkaTools) -> None:
        self.server, self.tools = server, tools
        self.settings: dict[str, Any] = {"bootstrap.servers": server.bootstrap, **QUIET}
        self.admin = AdminClient(self.settings)
        for future in self.admin.create_topics([NewTopic("t", 3, 1), NewTopic("u", 1, 1), NewTopic("hung", 1, 1)]).values():
            future.result(30)
        producer = confluent_kafka.Producer(self.settings)
        for number in range(30):
            producer.produce("t", b"%d" % number, partition=number % 3)
        assert producer.flush(30) == 0

    def tool(self, name: str, *arguments: str) -> Printed:
        done = self.tools(name, "--bootstrap-server", self.server.bootstrap, *arguments)
        assert done.code == 0, done.text
        return done

    def groups(self, *arguments: str) -> Printed:
        return self.tool(GROUPS, *arguments)

    def transactions(self, *arguments: str) -> Printed:
        return self.tool(TRANSACTIONS, *arguments)

    def reset(self, group: str, *arguments: str) -> dict[str, str]:
        """What a reset says: new offsets by topic:partition."""
        rows = self.groups("--reset-offsets", "--group", group, *arguments).table("GROUP")
        return {f"{row['TOPIC']}:{row['PARTITION']}": row["NEW-OFFSET"] for row in rows}

    def offsets(self, group: str) -> dict[str, int]:
        """The group's offsets as a consumer sees them."""
        consumer = confluent_kafka.Consumer({**self.settings, "group.id": group})
        found = consumer.committed([*(TopicPartition("t", partition) for partition in range(3)), TopicPartition("u", 0)], 10)
        consumer.close()
        return {f"{place.topic}:{place.partition}": place.offset for place in found if place.offset >= 0}

    def commit(self, group: str, offsets: dict[str, int]) -> None:
        """As a consumer that belongs to no group."""
        consumer = confluent_kafka.Consumer({**self.settings, "group.id": group})
        places = [TopicPartition(topic, int(partition), offset) for (topic, partition), offset in split(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


def split(offsets: dict[str, int]) -> list[tuple[list[str], int]]:
    return [(name.split(":"), offset) for name, offset in offsets.items()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka_tools: KafkaTools) -> Iterator[World]:
    settings = {"transaction.partition.verification.enable": "false"}  # so that a transaction can be left hanging
    with ServerProcess(tmp_path_factory.mktemp("tools"), settings=settings) as server:
        yield World(server, kafka_tools)


@pytest.fixture(scope="module")
def member(world: World) -> Iterator[Any]:
    """A static member of the group `live` that has all of `t`."""
    settings = {"group.id": "live", "group.instance.id": "first", "client.id": "reader", "session.timeout.ms": 6000}
    consumer = confluent_kafka.Consumer({**world.settings, **settings, "enable.auto.commit": False})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + 30
    while len(consumer.assignment()) < 3:
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition("t", 0, 4), TopicPartition("t", 1, 10)], asynchronous=False)
    yield consumer
    consumer.close()


# ConsumerGroupCommand


def test_groups_are_listed(world: World, member: Any) -> None:
    world.commit("listed", {"t:0": 1})
    assert {"live", "listed"} <= set(world.groups("--list").text.split())
    states = {row["GROUP"]: row["STATE"] for row in world.groups("--list", "--state").table("GROUP")}
    assert states["live"] == "Stable"
    assert states["listed"] == "Empty"
    assert {row["STATE"] for row in world.groups("--list", "--state", "stable").table("GROUP")} == {"Stable"}
    assert {row["TYPE"] for row in world.groups("--list", "--type", "classic").table("GROUP")} == {"Classic"}


def test_a_group_is_described_with_lag_members_and_state(world: World, member: Any) -> None:
    rows = world.groups("--describe", "--group", "live").table("GROUP")
    seen = [(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["CLIENT-ID"]) for row in rows]
    assert seen == [("0", "4", "10", "6", "reader"), ("1", "10", "10", "0", "reader"), ("2", "-", "10", "-", "reader")]
    assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
    (row,) = world.groups("--describe", "--group", "live", "--members", "--verbose").table("GROUP")
    assert (row["GROUP-INSTANCE-ID"], row["#PARTITIONS"], row["CURRENT-ASSIGNMENT"]) == ("first", "3", "t:0,1,2")
    state = world.groups("--describe", "--group", "live", "--state").rows[-1]
    assert state == ["live", world.server.bootstrap, "(0)", "range", "Stable", "1"]


def test_a_group_without_members_is_described(world: World) -> None:
    world.commit("alone", {"t:0": 2, "u:0": 0})
    shown = world.groups("--describe", "--group", "alone")
    assert "has no active members" in shown.text
    assert [(row["TOPIC"], row["LAG"], row["CONSUMER-ID"]) for row in shown.table("GROUP")] == [("t", "8", "-"), ("u", "0", "-")]


def test_an_unknown_group_is_not_found(world: World) -> None:
    assert "GroupIdNotFoundException: Group nobody not found." in world.groups("--describe", "--group", "nobody").text
    assert "GroupIdNotFoundException" in world.groups("--delete", "--group", "nobody").text


def test_offsets_are_reset_in_every_way(world: World, tmp_path: Path) -> None:
    world.commit("moved", {"t:0": 2, "t:1": 3})
    assert world.reset("moved", "--to-latest", "--topic", "t", "--dry-run") == {"t:0": "10", "t:1": "10", "t:2": "10"}
    assert world.offsets("moved") == {"t:0": 2, "t:1": 3}
    for arguments, offsets in {
        ("--shift-by", "3", "--topic", "t:0"): {"t:0": 5, "t:1": 3},
        ("--shift-by", "-99", "--topic", "t:0"): {"t:0": 0, "t:1": 3},
        ("--to-offset", "7", "--topic", "t:0,1"): {"t:0": 7, "t:1": 7},
        ("--to-earliest", "--topic", "t:1"): {"t:0": 7, "t:1": 0},
        ("--to-datetime", "2000-01-01T00:00:00.000", "--topic", "t:0"): {"t:0": 0, "t:1": 0},
        ("--by-duration", "PT0S", "--topic", "t:1"): {"t:0": 0, "t:1": 10},
        ("--to-current", "--all-topics"): {"t:0": 0, "t:1": 10},
        ("--to-latest", "--topic", "t"): {"t:0": 10, "t:1": 10, "t:2": 10},
    }.items():
        said = world.reset("moved", *arguments, "--execute")
        assert said.items() <= {name: str(offset) for name, offset in offsets.items()}.items(), arguments
        assert world.offsets("moved") == offsets, arguments
    file = tmp_path / "offsets.csv"
    file.write_text("t,2,6\n")
    assert world.reset("moved", "--from-file", str(file), "--execute") == {"t:2": "6"}
    assert world.offsets("moved") == {"t:0": 10, "t:1": 10, "t:2": 6}


def test_offsets_of_a_group_at_work_are_not_reset(world: World, member: Any) -> None:
    said = world.groups("--reset-offsets", "--group", "live", "--to-earliest", "--topic", "t", "--execute").text
    assert "can only be reset if the group 'live' is inactive, but the current state is Stable" in said
    assert world.offsets("live") == {"t:0": 4, "t:1": 10}


def test_offsets_and_groups_are_deleted(world: World, member: Any) -> None:
    world.commit("deleted", {"t:0": 2, "u:0": 0})
    assert "Successful" in world.groups("--delete-offsets", "--group", "deleted", "--topic", "u").text
    assert world.offsets("deleted") == {"t:0": 2}
    assert "GroupSubscribedToTopicException" in world.groups("--delete-offsets", "--group", "live", "--topic", "t").text
    assert "GroupNotEmptyException" in world.groups("--delete", "--group", "live").text
    assert world.offsets("live") == {"t:0": 4, "t:1": 10}
    assert "was successful" in world.groups("--delete", "--group", "deleted").text
    assert "deleted" not in world.groups("--list").text.split()
    assert world.offsets("deleted") == {}


# TransactionsCommand


def transactional(world: World, transactional_id: str, topic: str, partition: int) -> Any:
    """A producer with a transaction open that has a record."""
    producer = confluent_kafka.Producer({**world.settings, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", partition=partition)
    assert producer.flush(30) == 0
    return producer


def test_transactions_are_listed_described_and_forced_to_end(world: World) -> None:
    done = transactional(world, "done", "u", 0)
    done.commit_transaction(30)
    transactional(world, "open", "u", 0)  # stays open: nobody ends it but the tool
    states = {row["TransactionalId"]: row["TransactionState"] for row in world.transactions("list").table("TransactionalId")}
    assert states == {"done": "CompleteCommit", "open": "Ongoing"}
    (row,) = world.transactions("describe", "--transactional-id", "open").table("CoordinatorId")
    assert (row["TransactionState"], row["TransactionTimeoutMs"], row["TopicPartitions"]) == ("Ongoing", "60000", "u-0")
    (row,) = world.transactions("describe-producers", "--topic", "u", "--partition", "0").table("ProducerId")[-1:]
    assert row["CurrentTransactionStartOffset"] == "2"  # behind a record and its marker
    world.transactions("forceTerminateTransaction", "--transactionalId", "open")
    states = {row["TransactionalId"]: row["TransactionState"] for row in world.transactions("list").table("TransactionalId")}
    assert states["open"] != "Ongoing"
    (row,) = world.transactions("describe-producers", "--topic", "u", "--partition", "0").table("ProducerId")[-1:]
    assert row["CurrentTransactionStartOffset"] == "None"


def test_a_hanging_transaction_is_found_and_aborted(world: World) -> None:
    """T4: records of a transaction of which the coordinator knows nothing hold back the last stable offset."""
    host, _, port = world.server.bootstrap.rpartition(":")
    wire = Wire((host, int(port)))
    told = wire.ask(InitProducerIdRequest(transactional_id=None), 4)
    builder = RecordBatchBuilder(producer_id=told.producer_id, producer_epoch=told.producer_epoch, base_sequence=0, transactional=True)
    builder.append(time.time_ns() // 1_000_000, None, b"forgotten")
    request = produce("hung", builder.build(), acks=-1)
    request.transactional_id = "nobody"
    assert wire.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    wire.close()
    (row,) = world.transactions("find-hanging", "--topic", "hung", "--max-transaction-timeout", "0").table("Topic")
    assert (row["Topic"], row["Partition"], row["ProducerId"], row["StartOffset"]) == ("hung", "0", str(told.producer_id), "0")
    world.transactions("abort", "--topic", "hung", "--partition", "0", "--start-offset", "0")
    assert world.transactions("find-hanging", "--topic", "hung", "--max-transaction-timeout", "0").table("Topic") == []


# GetOffsetShell


def test_offsets_of_partitions_are_shown(world: World) -> None:
    def ends(*arguments: str) -> list[str]:
        return world.tool(OFFSETS, *arguments).text.split()

    assert ends("--topic", "t") == ["t:0:10", "t:1:10", "t:2:10"]
    assert ends("--topic", "t", "--time", "-2") == ["t:0:0", "t:1:0", "t:2:0"]
    assert ends("--topic", "t", "--time", "0", "--partitions", "1,2") == ["t:1:0", "t:2:0"]
    assert ends("--topic-partitions", "t:1-2") == ["t:1:10"]
    assert [line.rpartition(":")[0] for line in ends("--topic", "t", "--time", "max-timestamp")] == ["t:0", "t:1", "t:2"]
    world.commit("somebody", {"t:0": 1})
    internal = [line for line in ends() if line.startswith("__consumer_offsets:")]
    assert len(internal) == 50
    assert not [line for line in ends("--exclude-internal-topics") if line.startswith("__")]


# DumpLogSegments


def decoded(tools: KafkaTools, data: Path, topic: str, decoder: str) -> list[tuple[Any, Any]]:
    """Keys and values of everything in an internal topic's folders, as the tool decodes them; None: deleted."""
    files = [str(path) for path in sorted(data.glob(f"{topic}-*/*.log")) if path.stat().st_size]
    done = tools(DUMP, decoder, "--files", ",".join(files))
    assert done.code == 0, done.text
    found = re.findall(r" key: (\{.*?\}\}) payload: (.*)$", done.text, re.MULTILINE)
    assert len(found) == done.text.count("| offset:") - done.text.count("endTxnMarker:"), done.text
    return [(json.loads(key), None if payload == "<DELETE>" else json.loads(payload)) for key, payload in found]


def test_the_internal_topics_are_decoded(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    """Commits, also within transactions, deletions, members and the states of transactions."""
    with ServerProcess(tmp_path / "data") as server:
        world = World(server, kafka_tools)
        world.commit("simple", {"t:0": 3, "u:0": 0})
        world.groups("--delete-offsets", "--group", "simple", "--topic", "u")
        producer = transactional(world, "tx", "t", 1)
        consumer = confluent_kafka.Consumer({**world.settings, "group.id": "g", "client.id": "reader"})
        consumer.subscribe(["t"])
        deadline = time.monotonic() + 30
        while len(consumer.assignment()) < 3:
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        producer.send_offsets_to_transaction([TopicPartition("t", 1, 7)], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        member_id = consumer.memberid()
        consumer.close()
    offsets = decoded(kafka_tools, tmp_path / "data", "__consumer_offsets", "--offsets-decoder")
    states = decoded(kafka_tools, tmp_path / "data", "__transaction_state", "--transaction-log-decoder")
    commits = [(*key["data"].values(), value and value["data"]["offset"]) for key, value in offsets if key["type"] == "1"]
    assert sorted(commits, key=str) == [("g", "t", 1, 7), ("simple", "t", 0, 3), ("simple", "u", 0, 0), ("simple", "u", 0, None)]
    groups = [value["data"] for key, value in offsets if key["type"] == "2" and key["data"]["group"] == "g"]
    (member,) = next(group["members"] for group in groups if group["members"])
    assert (member["memberId"], member["clientId"], member["clientHost"]) == (member_id, "reader", "/127.0.0.1")
    assert member["subscription"]["topics"] == ["t"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [0, 1, 2]}]
    assert groups[-1]["members"] == []
    assert {key["data"]["transactionalId"] for key, _ in states} == {"tx"}
    statuses = [value["data"]["transactionStatus"] for _, value in states]
    assert (statuses[0], statuses[-2:]) == (0, [2, 4])  # Empty; PrepareCommit, CompleteCommit
    assert set(statuses[1:-2]) == {1}  # Ongoing
    partitions = states[-2][1]["data"]["transactionPartitions"]
    assert {entry["topic"] for entry in partitions} == {"t", "__consumer_offsets"}
