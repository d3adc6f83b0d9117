"""Folders of new partitions are made and synced in the background: no disk holds up the broker, and what is acknowledged is on it."""

import pytest

from moldau.log.partition_metadata import read_topic_id
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
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


def test_what_concerns_a_topic_whose_folders_are_being_made_waits_for_that(world: BrokerWorld) -> None:
    maker, remover, other = world.connect(), world.connect(), world.connect()
    maker.send(create("t"), 7)
    remover.send(delete("t"), 6)
    other.send(create("t"), 7)
    assert (codes(remover), codes(other)) == ([], []), "as long as it is open whether the first makes it"
    for _ in range(10):
        world.background.run_all()
        world.clock.settle()
    assert codes(maker) == [0]
    (answer,) = remover.answers()
    assert [each.error_code for each in answer.body.responses] == [0], "it was there"
    assert codes(other) == [0], "and then it was not"
    assert world.partition("t", 2).is_led
