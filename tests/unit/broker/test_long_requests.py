"""Requests that name many topics or partitions run in turns, whatever their API; others come in between, and nothing is half done."""

from collections.abc import Callable

import pytest

from moldau.broker.slices import TURN_S
from moldau.broker.topics import TopicSpec
from moldau.cluster.registry import PARTITIONS_PER_STEP
from moldau.model.errors import ErrorCode
from moldau.model.steps import drain
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from support.broker_world import BrokerWorld, Client

COST_S = TURN_S / 10
TOPIC = 2
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> BrokerWorld:
    """A broker for which each look at the clock takes a tenth of a turn: ten steps are a turn."""
    made = BrokerWorld()
    now = made.clock.monotonic

    def monotonic() -> float:
        made.clock.advance_within(COST_S)
        return now()

    monkeypatch.setattr(made.clock, "monotonic", monotonic)
    return made


def served_meanwhile(world: BrokerWorld, client: Client, request: object, version: int) -> tuple[object, int]:
    """The answer to a long request, and how many requests of another client were answered before it."""
    other = world.connect()
    client.send(request, version)
    for served in range(10_000):
        answers = client.answers()
        if answers:
            return answers[0].body, served
        other.ask(HeartbeatRequest("g", 1, "m"), 4)
        world.clock.settle()
    raise AssertionError("no answer")


def create(count: int, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(f"t{number}", partitions, 1) for number in range(count)])


LONG: dict[str, Callable[[], tuple[object, int]]] = {
    "one topic of many partitions": lambda: (create(1, 300), 7),
    "many topics": lambda: (create(200), 7),
    "all topics": lambda: (MetadataRequest(topics=None), 12),
    "configurations": lambda: (DescribeConfigsRequest([DescribeConfigsResource(TOPIC, f"there{n}", None) for n in range(100)]), 4),
    "growth": lambda: (CreatePartitionsRequest([CreatePartitionsTopic(f"there{n}", 3, None) for n in range(50)]), 3),
    "markers": lambda: (
        WriteTxnMarkersRequest([WritableTxnMarker(1, 0, True, [WritableTxnMarkerTopic("wide", list(range(500)))], 0)]),
        1,
    ),
    "ends of epochs": lambda: (
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic("wide", [OffsetForLeaderPartition(index, -1, 0) for index in range(500)])],
        ),
        4,
    ),
    "log directories": lambda: (DescribeLogDirsRequest(None), 4),
    "pages of topics": lambda: (DescribeTopicPartitionsRequest(topics=[]), 0),
    "transactions to add to": lambda: (
        AddPartitionsToTxnRequest(
            transactions=[AddPartitionsToTxnTransaction(f"x{n}", n, 0, False, [AddPartitionsToTxnTopic("wide", [0])]) for n in range(200)]
        ),
        4,
    ),
    "offsets to commit": lambda: (
        OffsetCommitRequest(
            "g", topics=[OffsetCommitRequestTopic("wide", partitions=[OffsetCommitRequestPartition(index, 5) for index in range(500)])]
        ),
        8,
    ),
    "deletion": lambda: (DeleteTopicsRequest([DeleteTopicState(f"there{n}") for n in range(100)]), 6),
    "groups that go": lambda: (DeleteGroupsRequest([f"nobody{n}" for n in range(100)]), 2),
    "offsets that go": lambda: (
        OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("wide", [OffsetDeleteRequestPartition(n) for n in range(100)])]),
        0,
    ),
    "partitions to add": lambda: (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic("nobody", list(range(500)))],
        ),
        3,
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_others_are_served_while_a_long_request_runs(world: BrokerWorld, name: str) -> None:
    for number in range(100):
        world.create_topic(f"there{number}")
    world.create_topic("wide", 500)
    request, version = LONG[name]()
    answer, served = served_meanwhile(world, world.connect(), request, version)
    assert served >= 4, answer


@pytest.mark.parametrize("what", ["groups", "a topic that groups have read"])
def test_others_are_served_while_what_many_groups_have_is_deleted(world: BrokerWorld, what: str) -> None:
    drain(world.broker.coordinating.offsets_topic.ensured())
    world.create_topic("read")
    client = world.connect()
    names = [f"g{number}" for number in range(100)]
    for name in names:
        client.ask(OffsetCommitRequest(name, topics=[OffsetCommitRequestTopic("read", partitions=[OffsetCommitRequestPartition(0, 1)])]), 8)
    request, version = (DeleteGroupsRequest(names), 2) if what == "groups" else (DeleteTopicsRequest([DeleteTopicState("read")]), 6)
    _, served = served_meanwhile(world, client, request, version)
    assert served >= 5
    assert world.broker.groups.statistics()["offsets_committed"] == 0


def test_topics_that_were_made_before_the_connection_went_stay_and_are_whole(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(create(1000), 7)
    while not world.broker.metadata.topics:
        world.clock.settle()
    client.peer.disconnect()
    for _ in range(1000):
        world.clock.settle()
    topics = world.broker.metadata.topics
    assert 0 < len(topics) < 1000
    assert world.broker.slices.running == 0
    assert len(world.broker.partitions) == len(topics), "each topic that the metadata has is served"
    again = world.connect().ask(create(1), 7)
    assert again.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)


def test_two_requests_for_one_name_make_it_once(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    first.send(create(100), 7)
    second.send(create(100), 7)
    codes = []
    for _ in range(1000):
        world.clock.settle()
    for client in (first, second):
        (answer,) = client.answers()
        codes.append([each.error_code for each in answer.body.topics])
    assert [sorted(pair) for pair in zip(*codes, strict=True)] == [[0, ErrorCode.TOPIC_ALREADY_EXISTS]] * 100


def test_a_topic_that_is_deleted_while_it_is_opened_is_gone(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    first.send(create(1, 300), 7)
    while "t0" not in world.broker.metadata.topics:
        world.clock.settle()
    second.send(DeleteTopicsRequest([DeleteTopicState("t0")]), 6)
    for _ in range(1000):
        world.clock.settle()
    assert [each.error_code for each in second.answers()[0].body.responses] == [0]
    assert (len(world.broker.partitions), world.broker.metadata.partition_count, world.broker.registry.deleting) == (0, 0, set())


def test_a_topic_that_was_deleted_and_made_anew_while_its_turn_came_is_another_one(world: BrokerWorld) -> None:
    """Two requests delete it; the second is done first, and its name is given again."""
    topics = world.broker.topics
    drain(topics.create([TopicSpec(f"t{number}", 1) for number in range(PARTITIONS_PER_STEP + 2)]))
    told: list[str] = []
    deletion = topics.delete(list(world.broker.metadata.topics.values()), lambda topic: told.append(topic.name))
    while not told:
        next(deletion)
    again, gone = f"t{PARTITIONS_PER_STEP}", f"t{PARTITIONS_PER_STEP + 1}"
    drain(topics.delete([world.broker.metadata.topics[again], world.broker.metadata.topics[gone]]))
    drain(topics.create([TopicSpec(again, 1)]))
    made = world.broker.metadata.topics[again]
    codes = {name: error and error.code for name, error in drain(deletion).items()}
    assert (codes["t0"], codes[again], codes[gone]) == (None, UNKNOWN, UNKNOWN)
    assert dict(world.broker.metadata.topics) == {again: made}
    assert (len(world.broker.partitions), world.broker.registry.deleting) == (1, set())
    assert len(told) == PARTITIONS_PER_STEP


def test_a_restart_in_the_middle_of_a_creation_leaves_whole_topics(tmp_path: object) -> None:
    world = BrokerWorld(store=f"{tmp_path}/store.sqlite")
    world.clock.advance(1)
    original = world.clock.monotonic

    def monotonic() -> float:
        world.clock.advance_within(COST_S)
        return original()

    world.clock.monotonic = monotonic  # type: ignore[method-assign]
    world.connect().send(create(3, 150), 7)
    for _ in range(20):
        world.clock.settle()
    world.restart()
    sizes = {len(topic.partitions) for topic in world.broker.metadata.topics.values()}
    assert sizes <= {150}
    assert len(world.broker.partitions) == world.broker.metadata.partition_count
    assert world.broker.registry.deleting == set()
