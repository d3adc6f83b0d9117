"""Changes of metadata are brought to disk in the background: what is acknowledged is there, and other requests do not wait for it."""

from pathlib import Path

import pytest

from moldau.model.errors import CoordinationError, ErrorCode
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Done, GetData, Request
from moldau.protocol.messages.configs import IncrementalAlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResource
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request
from support.trees import AskedTree

TOPIC = 2


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    world = BrokerWorld(immediate=False, store=str(tmp_path / "store.db"))
    world.create_topic("t")
    world.store.run_on(world.background)
    return world


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1)])


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest([DeleteTopicState(name)])


def configure(name: str, value: str) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, "t", [IncrementalAlterableConfig(name, 0, value)])])


def finish(world: BrokerWorld) -> None:
    for _ in range(10):
        world.background.run_all()
        world.clock.settle()


def created(client: Client) -> list[int]:
    return [topic.error_code for answer in client.answers() for topic in answer.body.topics]


def answered(client: Client) -> list[int]:
    return [each.error_code for answer in client.answers() for each in answer.body.responses]


def names(world: BrokerWorld) -> set[str]:
    return set(world.broker.metadata.topics)


@pytest.mark.parametrize("partitions", [1, 250])
def test_a_topic_is_neither_shown_nor_answered_before_it_is_on_disk_and_others_are_served(world: BrokerWorld, partitions: int) -> None:
    maker = world.connect()
    maker.send(create("new", partitions), 7)
    world.clock.settle()
    assert created(maker) == []
    assert names(world) == {"t"}
    assert len(world.background.jobs) == 1, "the sync of the store: no folder is made before"
    assert world.connect().ask(HeartbeatRequest("g", 1, "m"), 4), "others are served meanwhile"
    finish(world)
    assert created(maker) == [0]
    assert len(world.broker.metadata.topics["new"].partitions) == partitions


def test_requests_for_the_same_name_exclude_one_another_while_the_first_waits(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    first.send(create("new"), 7)
    second.send(create("new"), 7)
    assert created(second) == []
    finish(world)
    assert created(first) == [0]
    assert created(second) == [ErrorCode.TOPIC_ALREADY_EXISTS]


def test_logs_of_a_deleted_topic_stay_until_its_deletion_is_on_disk(world: BrokerWorld) -> None:
    remover, late = world.connect(), world.connect()
    remover.send(delete("t"), 6)
    late.send(delete("t"), 6)
    late.send(create("t"), 7)
    world.clock.settle()
    assert list(world.broker.logs.partitions()) == [TopicPartition("t", 0)]
    assert answered(remover) == []
    finish(world)
    assert answered(remover) == [0]
    assert answered(late)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(world.broker.logs.partitions()) == []


@pytest.mark.parametrize("partitions", [1, 250])
def test_a_topic_whose_deletion_could_not_be_synced_is_not_served_any_more(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """The next start may find the deletion, and delete what a producer that knows the topic's id had been acknowledged."""

    def fail(_request: Request, done: Done) -> None:
        done(CoordinationError("Input/output error", retriable=False))

    world.connect().send(create("gone", partitions), 7)
    finish(world)
    topic_id = world.broker.metadata.topics["gone"].topic_id
    logs = set(world.broker.logs.partitions())
    remover, producer, waiting = world.connect(), world.connect(), world.connect()
    index = partitions - 1
    request = produce_request(topic_id, batch(world, b"x"), partition=index)
    assert producer.ask(request, 13).responses[0].partition_responses[0].error_code == 0
    waiting.send(fetch_request(topic_id, 1, partition=index, max_wait_ms=60_000), 13)
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "submit", fail)
        remover.send(delete("gone"), 6)
        finish(world)
    assert answered(remover) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert names(world) == {"t"}
    request = produce_request(topic_id, batch(world, b"y"), partition=index)
    assert producer.ask(request, 13).responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(waiting.answers()) == 1
    assert set(world.broker.logs.partitions()) == logs, "the next start may find the topic, too"
    world.clock.advance(60)
    assert world.connect().produce("t", b"served").error_code == 0


def test_a_topic_whose_deletion_could_not_be_written_is_still_served(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_request: Request, done: Done) -> None:
        done(CoordinationError("no room", retriable=True))

    remover = world.connect()
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "submit", refuse)
        remover.send(delete("t"), 6)
        finish(world)
    assert answered(remover) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.connect().produce("t", b"served").error_code == 0


def test_of_two_changes_of_one_topics_configuration_none_is_lost(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    first.send(configure("retention.ms", "1000"), 1)
    second.send(configure("segment.bytes", "2000000"), 1)
    world.clock.settle()
    assert (answered(first), answered(second)) == ([], [])
    finish(world)
    assert (answered(first), answered(second)) == ([0], [0])
    assert world.broker.metadata.topic_config("t") == {"retention.ms": "1000", "segment.bytes": "2000000"}


def test_a_topic_that_is_deleted_while_it_grows_grows_first_and_does_not_come_back(world: BrokerWorld) -> None:
    grower, remover = world.connect(), world.connect()
    grower.send(CreatePartitionsRequest([CreatePartitionsTopic("t", 3)]), 3)
    remover.send(delete("t"), 6)
    finish(world)
    (answer,) = grower.answers()
    assert [result.error_code for result in answer.body.results] == [0]
    assert answered(remover) == [0]
    assert names(world) == set()


class UnreadableConfigs(AskedTree):
    """A tree of which some reads of topics' configurations fail."""

    failures = 0

    def submit(self, request: Request, done: Done) -> None:
        if self.failures and isinstance(request, GetData) and request.path.startswith("/config/topics/"):
            self.failures -= 1
            done(CoordinationError("disk I/O error", retriable=False))
        else:
            super().submit(request, done)


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_a_topic_whose_configuration_cannot_be_read_at_first_is_served_when_it_can(failures: int) -> None:
    world = BrokerWorld(tree=UnreadableConfigs)
    assert isinstance(world.store, UnreadableConfigs)
    world.store.failures = failures
    maker = world.connect()
    other = world.connect()
    maker.send(create("u"), 5)
    other.send(create("v"), 5)
    world.clock.advance(failures - 0.5)
    assert (created(maker) + created(other), names(world)) == ([], set())
    world.clock.advance(1.0)
    world.clock.settle()
    assert (created(maker) + created(other), names(world)) == ([0, 0], {"u", "v"})
    assert [maker.produce(name, b"x").error_code for name in ("u", "v")] == [0, 0]
    maker.send(delete("u"), 6)
    world.clock.settle()
    assert (answered(maker), names(world)) == ([0], {"v"})
