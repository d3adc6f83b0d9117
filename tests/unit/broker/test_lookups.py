"""Offsets by name and by time, ends of epochs, producers, producer ids, deleted records: as Kafka answers them."""

from typing import Any

import pytest

from moldau.broker.api.catalog import MODULES
from moldau.log import timestamps
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offset_lookups import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.transaction_admin import DescribeProducersRequest, TopicRequest
from support.broker_world import BrokerWorld, Client, batch, produce_request


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("t")
    return made


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def look_up(client: Client, timestamp: int, *, topic: str = "t", partition: int = 0, epoch: int = -1, version: int = 11) -> Any:
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, epoch, timestamp)])
    return client.ask(ListOffsetsRequest(-1, topics=[wanted]), version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_first_and_last_offset(client: Client, version: int) -> None:
    for value in (b"a", b"b", b"c"):
        client.produce("t", value)
    assert look_up(client, -1, version=version).offset == 3
    assert look_up(client, -2, version=version).offset == 0


def test_by_time(world: BrokerWorld, client: Client) -> None:
    begun = world.clock.time_ms()
    for _ in range(5):
        client.produce("t", b"a", b"b")
        world.clock.advance(1.0)
    assert (look_up(client, 0).offset, look_up(client, begun).offset) == (0, 0)
    found = look_up(client, begun + 1500)
    assert (found.offset, found.timestamp, found.leader_epoch) == (4, begun + 2000, 0)
    nothing = look_up(client, begun + 60_000)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)


def test_the_other_names(world: BrokerWorld, client: Client) -> None:
    assert look_up(client, -3).offset == -1
    client.produce("t", b"old")
    world.clock.advance(10)
    client.produce("t", b"new")
    newest = look_up(client, -3)
    assert (newest.offset, newest.timestamp) == (1, world.clock.time_ms())
    assert look_up(client, -4).offset == 0
    assert (look_up(client, -5).error_code, look_up(client, -5).offset) == (0, -1)
    assert look_up(client, -6).offset == 0
    assert look_up(client, -7).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_a_partition_that_is_named_again_is_answered_once(world: BrokerWorld, client: Client, timestamp: int) -> None:
    """As by Kafka: INVALID_REQUEST for it, and the others as usual."""
    world.create_topic("u", partitions=2)
    client.produce("u", b"a", partition=1)

    def times(topic: str, *partitions: int) -> ListOffsetsTopic:
        return ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp) for partition in partitions])

    wanted = [times("u", 0, 1, 0, 0), times("t", 0), times("u", 0), times("t", 0)]
    answer = client.ask(ListOffsetsRequest(-1, topics=wanted), 9)
    codes = [(topic.name, [(each.partition_index, each.error_code) for each in topic.partitions]) for topic in answer.topics]
    assert codes == [("u", [(0, ErrorCode.INVALID_REQUEST), (1, 0)]), ("t", [(0, ErrorCode.INVALID_REQUEST)])]


def test_searches_of_many_connections_take_turns_and_later_requests_wait(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of each after the other; what the same connection asks next is answered after it."""
    monkeypatch.setattr(timestamps, "HEADERS_AT_A_TIME", 5)
    client = world.connect()
    for _ in range(49):
        client.produce("t", b"old")
    world.clock.advance(1.0)
    client.produce("t", b"new")
    world.compute.immediate = False
    wanted = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, world.clock.time_ms())])])
    clients = [world.connect() for _ in range(3)]
    for each in clients:
        each.send(wanted, 9)
        each.send(produce_request("t", batch(world, b"later")), 9)
        assert each.answers() == []
    for _ in range(9):
        assert len(world.compute.jobs) == 3
        for _ in range(3):
            world.compute.run_next()
        assert world.partition("t").log.log_end_offset == 50
        assert client.values("t", 49) == [b"new"], "others are served meanwhile"
    world.compute.run_all()
    world.clock.settle()
    for number, each in enumerate(clients):
        each.peer.push()
        first, second = each.answers()
        assert first.body.topics[0].partitions[0].offset == 49
        assert second.body.responses[0].partition_responses[0].base_offset == 50 + number


def test_a_search_that_nobody_waits_for_ends_after_its_piece(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "HEADERS_AT_A_TIME", 5)
    client = world.connect()
    for _ in range(49):
        client.produce("t", b"old")
    world.compute.immediate = False
    client.send(ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, world.clock.time_ms())])]), 9)
    client.answers()
    client.peer.disconnect()
    world.clock.settle()
    world.compute.run_all()
    assert not world.compute.jobs


def test_a_topic_that_is_deleted_during_the_search(world: BrokerWorld, client: Client) -> None:
    client.produce("t", b"a")
    world.compute.immediate = False
    client.send(ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, 0)])]), 9)
    client.answers()
    world.delete_topics("t")
    world.compute.run_all()
    (answer,) = client.answers()
    assert answer.body.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_partitions_and_other_epochs(client: Client) -> None:
    assert look_up(client, -1, topic="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert look_up(client, -1, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert look_up(client, -1, epoch=0).error_code == 0
    assert look_up(client, -1, epoch=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_ends_of_epochs(world: BrokerWorld, client: Client) -> None:
    partition = world.partition("t")
    client.produce("t", b"a", b"b")
    for epoch in (2, 5):
        partition.log.lead_epoch(epoch)
        client.produce("t", b"c")
    partition.machine.leader_epoch = 5

    def end_of(epoch: int, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
        wanted = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, current, epoch)])
        answer = client.ask(OffsetForLeaderEpochRequest(topics=[wanted]), 4).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert [end_of(epoch) for epoch in (0, 1, 2, 3, 5)] == [(0, 0, 2), (0, 0, 2), (0, 2, 3), (0, 2, 3), (0, 5, 4)]
    assert end_of(6) == (0, -1, -1)
    partition.log.lead_epoch(6)
    assert [end_of(epoch) for epoch in (5, 6, 7)] == [(0, 5, 4), (0, 6, 4), (0, -1, -1)]
    assert end_of(5, current=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert end_of(5, current=6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_of(5, topic="missing")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_records(world: BrokerWorld, client: Client) -> None:
    world.create_topic("compacted", cleanup_policy="compact")

    def delete(offset: int, topic: str = "t") -> tuple[int, int]:
        wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])
        result = client.ask(DeleteRecordsRequest([wanted], 1000), 2).topics[0].partitions[0]
        return result.error_code, result.low_watermark

    for value in (b"a", b"b", b"c", b"d"):
        client.produce("t", value)
    assert delete(2) == (0, 2)
    assert look_up(client, -2).offset == 2
    assert client.fetch("t", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.values("t", 2) == [b"c", b"d"]
    assert delete(1) == (0, 2)
    assert delete(5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (0, 4)
    assert delete(0, "compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(0, "missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_producer_ids_are_given_out_once(world: BrokerWorld, client: Client) -> None:
    ids = [client.ask(InitProducerIdRequest(None, 0), version).producer_id for version in (0, 1, 2, 3, 4, 5)]
    assert ids == list(range(ids[0], ids[0] + 6))
    assert client.ask(InitProducerIdRequest(None, 0, ids[0], 3), 4).producer_epoch == 0


def test_producers_are_described(world: BrokerWorld, client: Client) -> None:
    client.ask(produce_request("t", batch(world, b"a", b"b", producer_id=5, producer_epoch=1, base_sequence=0)), 9)
    known, unknown = client.ask(DescribeProducersRequest([TopicRequest("t", [0, 4])]), 0).topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 1, 1)
    assert producer.last_timestamp == world.clock.time_ms()
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_api_versions_lists_what_is_in_service_and_nothing_else(client: Client) -> None:
    answer = client.ask(ApiVersionsRequest("test", "1"), 4)
    listed = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert listed[0] == (0, 13)
    assert listed[1] == (4, 18)
    assert listed[18] == (0, 4)
    assert set(listed) == {int(key) for key in MODULES}
    assert not set(listed) & {17, 36, 68}


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("-a", "1"), ("a", ""), ("a", "1-"), ("ä", "1")])
def test_client_software_names_itself_properly(client: Client, name: str, version: str) -> None:
    assert client.ask(ApiVersionsRequest(name, version), 3).error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(ApiVersionsRequest("apache-kafka-java", "4.0.0-SNAPSHOT.1"), 3).error_code == 0
