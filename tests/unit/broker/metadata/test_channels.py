"""What a controller sends to another broker: one request at a time, in order, the newest statement only, until it is answered."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.metadata import channels
from moldau.broker.metadata.channels import AGAIN_S, Channels
from moldau.broker.metadata.control_messages import led_of, stopped_of, update_of
from moldau.broker.peers.connection import PeerCallError, PeerConnection
from moldau.cluster.control import (
    AssignedTopic,
    Control,
    ControlReply,
    LeaderAndIsr,
    LedPartition,
    StoppedTopic,
    StopReplica,
    UpdateMetadata,
)
from moldau.cluster.queries import LiveBroker
from moldau.cluster.snapshot import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.controller import (
    LeaderAndIsrFloor,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from moldau.testing.clock import FakeClock

READERS: dict[ApiKey, Any] = {ApiKey.LEADER_AND_ISR: led_of, ApiKey.STOP_REPLICA: stopped_of, ApiKey.UPDATE_METADATA: update_of}
ANSWERS: dict[ApiKey, Any] = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrResponse,
    ApiKey.STOP_REPLICA: StopReplicaResponse,
    ApiKey.UPDATE_METADATA: UpdateMetadataResponse,
}
INFO = BrokerInfo(2, (Endpoint("PLAINTEXT", "b2", 9092),))
EPOCH = 7


class Connection:
    """The connection of one channel: requests are kept until the test answers them."""

    address = ("b2", 9092)

    def __init__(self) -> None:
        self.out: list[tuple[ApiKey, Any, Callable[[Any], object]]] = []
        self.is_closed = False

    def request(self, api_key: ApiKey, message: Any, done: Callable[[Any], object], **_options: object) -> None:
        assert not self.is_closed
        assert not self.out, "one request at a time"
        self.out.append((api_key, message, done))

    def close(self) -> None:
        self.is_closed = True
        for _, _, done in self.out:
            done(PeerCallError(self.address, "closed", was_sent=True))
        self.out = []


class World:
    """Channels, and what has come of what was sent."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.connections: list[Connection] = []
        self.channels = Channels(1, self._connect, self.clock)
        self.replies: dict[str, ControlReply] = {}

    def _connect(self, broker: BrokerInfo, purpose: str, **_options: object) -> PeerConnection:
        assert (broker, purpose) == (INFO, "controller")
        self.connections.append(Connection())
        return self.connections[-1]  # type: ignore[return-value]

    @property
    def connection(self) -> Connection:
        return self.connections[-1]

    def send(self, name: str, control: Control, epoch: int = EPOCH) -> None:
        def done(reply: ControlReply) -> None:
            assert name not in self.replies, "answered once"
            self.replies[name] = reply

        self.channels.send(LiveBroker(INFO, epoch), control, done)

    def out(self) -> Any:
        """What the request says that is out."""
        ((api_key, message, _),) = self.connection.out
        assert message.broker_epoch == EPOCH
        return drain(READERS[api_key](message))

    def answer(self, response: Any = None) -> Any:
        """Answer the request that is out, with an empty response or another; what it said."""
        said = self.out()
        ((api_key, _, done),) = self.connection.out
        self.connection.out = []
        done(ANSWERS[api_key]() if response is None else response)
        return said

    def fail(self, *, retriable: bool = True) -> None:
        self.answer(PeerCallError(("b2", 9092), "lost", was_sent=True, retriable=retriable))


def led(index: int, epoch: int = 0, topic: str = "t", *, is_new: bool = False) -> LedPartition:
    return LedPartition(topic, topic.encode() * 16, PartitionInfo(index, 2, epoch, (2,), (2,), epoch), is_new)


def lead(*partitions: LedPartition, epoch: int = 5) -> LeaderAndIsr:
    return LeaderAndIsr(epoch, partitions)


def topic(name: str = "t", partitions: int = 1, epoch: int = 0) -> TopicInfo:
    return TopicInfo(name, name.encode() * 16, tuple(led(index, epoch).info for index in range(partitions)))


def update(*topics: TopicInfo, deleted: tuple[str, ...] = (), brokers: tuple[BrokerInfo, ...] = (INFO,)) -> UpdateMetadata:
    return UpdateMetadata(5, 1, brokers, topics, deleted)


def names(control: UpdateMetadata) -> list[str]:
    return [each.name for each in control.topics]


def test_one_request_is_out_at_a_time_in_order_and_each_caller_gets_its_reply() -> None:
    world = World()
    world.send("lead", lead(led(0)))
    world.send("update", update(topic()))
    world.send("stop", StopReplica(5, (StoppedTopic("u", None, 0),)))
    assert world.answer() == lead(led(0))
    assert list(world.replies) == ["lead"]
    assert names(world.answer()) == ["t"]
    assert world.answer() == StopReplica(5, (StoppedTopic("u", None, 0),))
    assert world.replies == dict.fromkeys(("lead", "update", "stop"), ControlReply())
    assert world.connection.out == []
    assert world.channels.statistics() == {"control_statements_waiting": 0}


def test_a_later_statement_of_a_partition_replaces_one_that_waits_and_answers_for_both() -> None:
    world = World()
    world.send("out", lead(led(9)))
    world.send("first", lead(led(0, 1, is_new=True), led(1, 1)))
    world.send("second", lead(led(0, 2)))
    world.answer()
    assert world.answer() == lead(led(1, 1))
    assert "first" not in world.replies, "a part of it waits in the second"
    assert world.answer() == lead(led(0, 2))
    assert set(world.replies) == {"out", "first", "second"}


def test_what_is_out_is_not_replaced() -> None:
    world = World()
    world.send("first", lead(led(0, 1)))
    world.send("second", lead(led(0, 2)))
    assert world.answer() == lead(led(0, 1))
    assert world.answer() == lead(led(0, 2))


def test_a_partition_is_stopped_before_its_topic_is_made_again_and_led() -> None:
    world = World()
    world.send("out", lead(led(9)))
    world.send("old", lead(led(0, 3)))
    world.send("gone", update(deleted=("t",)))
    world.send("stop", StopReplica(5, (StoppedTopic("t", b"t" * 16, 1),)))
    world.send("new", lead(led(0, 0, is_new=True)))
    world.send("metadata", update(topic()))
    world.answer()
    assert world.answer().deleted == ("t",)
    assert isinstance(world.answer(), StopReplica)
    assert world.answer() == lead(led(0, 0, is_new=True))
    assert names(world.answer()) == ["t"]
    assert len(world.replies) == 6


def test_of_metadata_the_newest_of_a_topic_and_the_newest_brokers_are_sent() -> None:
    world = World()
    world.send("out", lead(led(9)))
    world.send("brokers", update(brokers=()))
    world.send("a", update(topic("a"), topic("b")))
    world.send("b", update(topic("b", epoch=3)))
    world.answer()
    first, second = world.answer(), world.answer()
    assert (names(first), names(second)) == (["a"], ["b"])
    assert second.topics[0].partitions[0].leader_epoch == 3
    assert second.brokers == (INFO,)
    assert set(world.replies) == {"out", "brokers", "a", "b"}


def test_an_update_of_the_brokers_alone_is_sent() -> None:
    world = World()
    world.send("brokers", update())
    assert world.answer().brokers == (INFO,)
    assert "brokers" in world.replies


def test_much_is_sent_in_requests_of_a_hundred_partitions_and_topics_whole() -> None:
    world = World()
    world.send("lead", lead(*(led(index) for index in range(250))))
    world.send("update", update(topic("a", 60), topic("b", 60), topic("c", 300), topic("d")))
    assert [len(world.answer().partitions) for _ in range(3)] == [100, 100, 50]
    assert [names(world.answer()) for _ in range(4)] == [["a"], ["b"], ["c"], ["d"]]
    assert set(world.replies) == {"lead", "update"}


def test_the_list_of_all_topics_is_sent_after_them_and_the_newest_only() -> None:
    world = World()
    world.send("out", lead(led(9)))
    everything = (AssignedTopic(b"a" * 16, (0, 2)), AssignedTopic(b"b" * 16, ()))
    world.send("a", update(topic("x", 60), topic("y", 60))._replace(everything=(AssignedTopic(b"x" * 16, (7,)),)))
    world.send("b", update(topic("a", 60), topic("b", 60))._replace(everything=everything))
    world.answer()
    said = [world.answer() for _ in range(3)]
    assert [names(each) for each in said] == [["a"], ["b"], []]
    assert [each.everything for each in said] == [None, None, everything]
    world.send("none", update()._replace(everything=()))
    assert world.answer().everything == ()
    assert set(world.replies) == {"out", "a", "b", "none"}


def test_what_is_said_of_topics_before_the_list_of_all_stays_before_it() -> None:
    """Or a broker would take its metadata for complete without a topic that exists."""
    world = World()
    world.send("out", lead(led(9)))
    world.send("list", update(topic("a"), topic("b"))._replace(everything=(AssignedTopic(b"a" * 16, (0,)), AssignedTopic(b"b" * 16, ()))))
    world.send("later", update(topic("a", epoch=1)))
    world.answer()
    world.fail()
    world.send("latest", update(topic("a", epoch=2)))
    said = [world.answer() for _ in range(3)]
    assert [names(each) for each in said] == [["a", "b"], [], ["a"]]
    assert [said[place].topics[0].partitions[0].leader_epoch for place in (0, 2)] == [0, 2]
    assert said[1].everything
    assert set(world.replies) == {"out", "list", "later", "latest"}


def test_floors_of_all_requests_reach_the_caller() -> None:
    world = World()
    world.send("lead", lead(*(led(index) for index in range(150))))
    for index in (3, 120):
        world.answer(LeaderAndIsrResponse(floors=[LeaderAndIsrFloor("t", index, 9)]))
    assert world.replies["lead"].floors == {TopicPartition("t", 3): 9, TopicPartition("t", 120): 9}


def test_a_request_without_a_response_is_repeated_but_for_what_was_replaced() -> None:
    world = World()
    world.send("first", lead(led(0, 1), led(1, 1)))
    world.send("second", lead(led(0, 2)))
    world.fail()
    assert world.out() == lead(led(1, 1))
    world.fail()
    assert world.answer() == lead(led(1, 1))
    assert world.answer() == lead(led(0, 2))
    assert set(world.replies) == {"first", "second"}


def test_a_request_that_says_nothing_any_more_is_not_repeated() -> None:
    world = World()
    world.send("first", lead(led(0, 1)))
    world.send("second", lead(led(0, 2)))
    world.fail()
    assert world.answer() == lead(led(0, 2))
    assert set(world.replies) == {"first", "second"}
    assert world.connection.out == []


def test_where_the_peer_has_no_version_for_it_the_next_attempt_waits() -> None:
    world = World()
    world.send("first", lead(led(0)))
    world.fail(retriable=False)
    assert world.connection.out == []
    world.clock.advance(AGAIN_S)
    assert world.answer() == lead(led(0))


def test_an_error_of_the_broker_ends_the_request_and_the_next_follows() -> None:
    world = World()
    world.send("first", update(topic()))
    world.send("second", lead(led(0)))
    world.answer(UpdateMetadataResponse(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert world.replies == {"first": ControlReply(is_stale=True)}
    world.answer(LeaderAndIsrResponse(ErrorCode.STALE_BROKER_EPOCH))
    assert world.replies["second"].is_stale


def test_what_was_sent_to_a_registration_that_is_over_is_stale_and_the_next_has_a_channel_of_its_own() -> None:
    world = World()
    world.send("out", lead(led(0)))
    world.send("waits", update(topic()))
    world.channels.keep({2: EPOCH})
    assert world.replies == {}
    world.channels.keep({2: EPOCH + 1})
    assert world.replies == dict.fromkeys(("out", "waits"), ControlReply(is_stale=True))
    assert world.connections[0].is_closed
    world.send("next", lead(led(0)), epoch=EPOCH + 1)
    assert len(world.connections) == 2


def test_a_broker_that_hangs_makes_no_more_wait_than_there_are_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "CALLERS_MAX", 100)
    world = World()
    world.send("out", lead(led(9)))
    for number in range(600):
        world.send(f"lead {number}", lead(led(number % 5, number)))
    assert world.channels.statistics() == {"control_statements_waiting": 5}
    assert len(world.replies) == 501, "the oldest are not waited for"
    assert all(reply.is_stale for reply in world.replies.values())
    while world.connection.out:
        world.answer()
    assert len(world.replies) == 601
    assert world.clock.pending == 0
