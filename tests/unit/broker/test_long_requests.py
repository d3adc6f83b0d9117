"""Requests that name many topics or partitions run in turns, whatever their API; others come in between, and nothing is half done."""

from collections.abc import Callable
from types import ModuleType

import pytest

from moldau.broker.coordinators import state_log
from moldau.broker.groups import deletion
from moldau.broker.groups import offsets as offsets_module
from moldau.broker.handlers import offsets, transactions
from moldau.cluster import znodes
from moldau.cluster.controller.requests import TopicSpec
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.cluster import DescribeLogDirsRequest, DescribeTopicPartitionsRequest
from moldau.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_lookups import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from moldau.protocol.messages.transaction_admin import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from moldau.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.broker_world import BrokerWorld
from support.group_requests import commit, commit_in_transaction, fetch, group_world
from support.transactional_producer import OLDER, RawProducer
from support.turns import served_before_answer, served_until, slow_down

TOPIC = 2
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    slow_down(made.clock)
    return made


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
    "one transaction to add to": lambda: (
        AddPartitionsToTxnRequest(
            transactions=[AddPartitionsToTxnTransaction("x", 1, 0, False, [AddPartitionsToTxnTopic("wide", list(range(500)))])]
        ),
        4,
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
    request, version = LONG[name]()
    if "wide" in str(request):
        world.create_topic("wide", 500)
    else:
        world.finish(world.broker.admin.create([TopicSpec(f"there{number}", 1, 1, configs=[]) for number in range(100)]))
    client = world.connect()
    client.send(request, version)
    served, answer = served_before_answer(world, client)
    assert served >= 4, answer


@pytest.mark.parametrize("what", ["groups", "a topic that groups have read"])
def test_others_are_served_while_what_many_groups_have_is_deleted(world: BrokerWorld, what: str) -> None:
    world.finish(world.broker.coordinators.offsets_topic.ensured())
    world.create_topic("read")
    client = world.connect()
    names = [f"g{number}" for number in range(100)]
    for name in names:
        client.ask(OffsetCommitRequest(name, topics=[OffsetCommitRequestTopic("read", partitions=[OffsetCommitRequestPartition(0, 1)])]), 8)
    client.send(*((DeleteGroupsRequest(names), 2) if what == "groups" else (DeleteTopicsRequest([DeleteTopicState("read")]), 6)))
    assert served_until(world, lambda: world.broker.groups.statistics()["offsets_committed"] == 0) >= 5


@pytest.mark.parametrize("in_transaction", [False, True])
def test_no_step_of_a_commit_encodes_and_answers_more_than_one_offset(monkeypatch: pytest.MonkeyPatch, in_transaction: bool) -> None:
    world = group_world(transaction_state_log_num_partitions=1)
    world.create_topic("wide", 500)
    client = world.connect()
    producer = RawProducer(client.ask, "app", OLDER, now_ms=world.clock.time_ms)
    assert (producer.find(), producer.init(), producer.commit_offset("g", "t", 5)) == (0, 0, 0)
    handler = transactions if in_transaction else offsets
    answers = f"{'Txn' if in_transaction else ''}OffsetCommitResponsePartition"
    sizes = steps_by_size(monkeypatch, world, (state_log, "encode_record"), (handler, answers))
    if in_transaction:
        topic = TxnOffsetCommitRequestTopic("wide", [TxnOffsetCommitRequestPartition(index, 5) for index in range(500)])
        client.send(TxnOffsetCommitRequest("app", "g", producer.producer_id, producer.epoch, topics=[topic]), 3)
    else:
        wide = OffsetCommitRequestTopic("wide", partitions=[OffsetCommitRequestPartition(index, 5) for index in range(500)])
        client.send(OffsetCommitRequest("g", topics=[wide]), 8)
    while not client.answers():
        world.clock.settle()
    assert sum(sizes) == 1000
    assert max(sizes) <= 2


def test_no_step_of_an_answer_about_all_of_a_group_has_more_than_one_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    world = group_world()
    world.create_topic("wide", 500)
    client = world.connect()
    commit(client, "g", {("wide", index): 5 for index in range(500)})
    partitions = ((offsets, "OffsetFetchResponsePartitions"), (offsets, "OffsetFetchResponsePartition"))
    sizes = steps_by_size(monkeypatch, world, *partitions)
    client.send(OffsetFetchRequest("g", None), 7)
    while not client.answers():
        world.clock.settle()
    assert sum(sizes) == 1000
    assert max(sizes) <= 2


def steps_by_size(monkeypatch: pytest.MonkeyPatch, world: BrokerWorld, *functions: tuple[ModuleType, str]) -> list[int]:
    """How often the functions are called from one look at the clock to the next, which are slow from now on."""
    sizes = [0]
    slow_down(world.clock)
    monotonic = world.clock.monotonic

    def look() -> float:
        sizes.append(0)
        return monotonic()

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            sizes[-1] += 1
            return function(*given)

        return call

    monkeypatch.setattr(world.clock, "monotonic", look)
    for module, function in functions:
        monkeypatch.setattr(module, function, counted(getattr(module, function)))
    return sizes


@pytest.mark.parametrize("what", ["group", "topic"])
def test_others_are_served_while_a_group_of_many_offsets_loses_them(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(deletion, "OFFSETS_AT_ONCE", 5)
    world = group_world()
    world.create_topic("wide", 500)
    client = world.connect()
    commit(client, "g", {("wide", index): 5 for index in range(500)})
    slow_down(world.clock)
    client.send(*((DeleteGroupsRequest(["g"]), 2) if what == "group" else (DeleteTopicsRequest([DeleteTopicState("wide")]), 6)))
    assert served_until(world, lambda: world.broker.groups.statistics()["offsets_committed"] == 0) >= 5


def test_others_are_served_while_a_transaction_of_many_offsets_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """And until all of its offsets count none of them is stable."""
    monkeypatch.setattr(offsets_module, "OFFSETS_PER_STEP", 5)
    world = group_world(transaction_state_log_num_partitions=1)
    world.create_topic("wide", 500)
    client, reader = world.connect(), world.connect()
    producer = RawProducer(client.ask, "app", OLDER, now_ms=world.clock.time_ms)
    assert (producer.find(), producer.init()) == (0, 0)
    places = [("wide", index) for index in range(500)]
    assert producer.commit_offset("g", "wide", 5) == 0
    commit_in_transaction(client, "g", dict.fromkeys(places, 5), producer.producer_id, producer.epoch, transactional_id="app")
    slow_down(world.clock)

    ends = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("wide", partition_indexes=[0, 499])])
    found: list[int] = []
    client.send(EndTxnRequest("app", producer.producer_id, producer.epoch, True), 3)
    while not (ended := client.answers()):
        found += [each.error_code for answer in reader.answers() for each in answer.body.groups[0].topics[0].partitions]
        reader.send(OffsetFetchRequest(groups=[ends], require_stable=True), 8)
        world.clock.settle()
    assert ended[0].body.error_code == 0
    assert found == [ErrorCode.UNSTABLE_OFFSET_COMMIT] * len(found)
    assert len(found) >= 2 * 4
    del world.clock.monotonic  # the slow one
    world.clock.settle()
    assert set(fetch(world.connect(), "g", places, stable=True).values()) == {5}


def test_topics_are_made_all_the_same_when_the_connection_is_lost(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(create(1000), 7)
    while not world.broker.metadata.topics:
        world.clock.settle()
    client.peer.disconnect()
    for _ in range(3000):
        world.clock.settle()
    topics = world.broker.metadata.topics
    assert len(topics) == 1000
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
    assert (len(world.broker.partitions), world.broker.metadata.partition_count) == (0, 0)
    assert world.store.children(znodes.DELETE_TOPICS) == []


def test_a_restart_in_the_middle_of_a_creation_leaves_whole_topics(tmp_path: object) -> None:
    world = BrokerWorld(store=f"{tmp_path}/store.sqlite")
    world.clock.advance(1)
    slow_down(world.clock)
    world.connect().send(create(3, 150), 7)
    for _ in range(20):
        world.clock.settle()
    world.restart()
    sizes = {len(topic.partitions) for topic in world.broker.metadata.topics.values()}
    assert sizes <= {150}
    assert len(world.broker.partitions) == world.broker.metadata.partition_count
    assert world.store.children(znodes.DELETE_TOPICS) == []
