"""Folders of new partitions are made and synced in the background: no disk holds up the broker, and what is acknowledged is on it."""

import pytest

from moldau.log.partition_metadata import read_topic_id
from moldau.model.errors import ErrorCode, StorageError
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_members import HeartbeatRequest
from support.broker_world import BrokerWorld, Client


@pytest.fixture
def world() -> BrokerWorld:
    return BrokerWorld(immediate=False)


def create(name: str, partitions: int = 3) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1)])


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest([DeleteTopicState(name)])


def codes(client: Client) -> list[int]:
    return [answer.body.topics[0].error_code for answer in client.answers()]


def folders(world: BrokerWorld) -> list[str]:
    return [name for name in world.disk.list("/data") if name.rpartition("-")[2].isdigit()]


def test_nothing_is_synced_on_the_brokers_thread(world: BrokerWorld) -> None:
    synced: list[str] = []

    def watch(operation: str, path: str) -> bool:
        if "sync" in operation or operation == "write_atomically":
            synced.append(path)
        return False

    world.disk.fail = watch
    client = world.connect()
    client.send(create("t"), 7)
    assert not synced
    assert codes(client) == []
    assert world.connect().ask(HeartbeatRequest("g", 1, "m"), 4), "others are served meanwhile"
    world.background.run_all()
    world.clock.settle()
    assert codes(client) == [0]
    assert len(synced) >= 4


def test_what_is_acknowledged_survives_a_crash(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(create("t"), 7)
    world.background.run_all()
    world.clock.settle()
    assert codes(client) == [0]
    topic_id = world.broker.metadata.topics["t"].topic_id
    world.disk.crash()
    assert [read_topic_id(world.disk, f"/data/t-{index}") for index in range(3)] == [topic_id] * 3


def test_a_topic_that_is_deleted_before_its_folders_are_made_leaves_none(world: BrokerWorld) -> None:
    maker, remover, other = world.connect(), world.connect(), world.connect()
    maker.send(create("t"), 7)
    remover.send(delete("t"), 6)
    other.send(create("t"), 7)
    assert codes(other) == [ErrorCode.TOPIC_ALREADY_EXISTS], "as long as the first is under way"
    for _ in range(10):
        world.background.run_all()
        world.clock.settle()
    assert folders(world) == []
    assert [len(maker.answers()), len(remover.answers())] == [1, 1]
    other.send(create("t"), 7)
    world.background.run_all()
    world.clock.settle()
    assert codes(other) == [0]
    assert world.partition("t", 2).is_led


def test_where_the_disk_fails_the_partition_is_offline_and_nothing_is_left(world: BrokerWorld) -> None:
    def fail(operation: str, path: str) -> bool:
        if operation == "write_atomically" and "t-1" in path:
            raise StorageError("no space left on device", path=path, no_space=True)
        return False

    world.disk.fail = fail
    client = world.connect()
    client.send(create("t"), 7)
    for _ in range(3):
        world.background.run_all()
        world.clock.settle()
    assert codes(client) == [0]
    assert folders(world) == ["t-0", "t-2"]
    assert world.broker.partitions.get(TopicPartition("t", 1)) is None
    world.disk.fail = None
    world.clock.advance(6)
    assert world.partition("t", 1).is_led, "tried again when there is room"


def test_what_found_no_room_is_not_tried_again_for_a_later_topic_of_its_name(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """The later topic's folder was there, half made, and was taken for one that nobody knows: KAFKA_STORAGE_ERROR."""

    def fail(operation: str, path: str) -> bool:
        if operation == "write_atomically" and "t-1" in path:
            raise StorageError("no space left on device", path=path, no_space=True)
        return False

    def finish() -> None:
        for _ in range(5):
            world.background.run_all()
            world.clock.settle()

    world.disk.fail = fail
    client = world.connect()
    client.send(create("t"), 7)
    finish()
    assert world.broker.partitions.get(TopicPartition("t", 1)) is None
    world.disk.fail = None
    world.connect().send(delete("t"), 6)
    finish()
    client.send(create("t"), 7)
    world.clock.settle()
    assert folders(world) == ["t-0", "t-1", "t-2"]
    assert world.background.jobs, "their topic's id is still to be written"
    caplog.clear()
    world.clock.advance(6)
    assert "partition offline" not in caplog.text
    finish()
    assert codes(client) == [0, 0]
    assert world.partition("t", 1).is_led


def test_an_internal_topic_is_made_once_for_all_that_ask(world: BrokerWorld) -> None:
    clients = [world.connect() for _ in range(20)]
    for client in clients:
        client.send(FindCoordinatorRequest("g"), 2)
    turns = 0
    while not all(client.expected == [] for client in clients):
        world.background.run_all()
        world.clock.settle()
        for client in clients:
            client.answers()
        turns += 1
        assert turns < 100
    assert len(folders(world)) == 50
