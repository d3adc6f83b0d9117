"""Fetch gives whole batches within its limits, waits when there is too little, and says what is wrong by Kafka's codes."""

from typing import Any

import pytest

from moldau.broker.handlers.fetch.operation import READING_S
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.testing.disk_nodes import ForgetfulFile
from support.broker_world import BrokerWorld, Client, fetch_request, values_of
from support.turns import slow_down


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("t", partitions=2)
    return made


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def result(body: Any) -> Any:
    return body.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name(client: Client, version: int) -> None:
    client.produce("t", b"a")
    client.produce("t", b"b", b"c")
    answer = client.fetch("t", 0, version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert values_of(answer.records) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_id(world: BrokerWorld, client: Client, version: int) -> None:
    topic_id = world.create_topic("by-id")
    client.produce("by-id", b"a")
    body = client.ask(fetch_request(topic_id, 0), version)
    assert (body.session_id, body.error_code, body.responses[0].topic_id) == (0, 0, topic_id)
    assert values_of(result(body).records) == [b"a"]
    assert result(client.ask(fetch_request(b"?" * 16, 0), version)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_offset_inside_a_batch_gives_the_whole_batch(client: Client) -> None:
    client.produce("t", b"a", b"b", b"c")
    client.produce("t", b"d")
    assert client.values("t", 2) == [b"a", b"b", b"c", b"d"]
    assert client.values("t", 3) == [b"d"]


def test_out_of_range_says_where_the_log_is(client: Client) -> None:
    client.produce("t", b"a", b"b")
    for offset in (-1, 3, 1 << 60):
        answer = client.fetch("t", offset)
        assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2, 0)
    at_end = client.fetch("t", 2)
    assert (at_end.error_code, bytes(at_end.records)) == (0, b"")


def test_unknown_topics_and_partitions(client: Client) -> None:
    assert client.fetch("missing", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch("t", 0, partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_first_partition_with_data_gives_a_batch_however_long(client: Client) -> None:
    client.produce("t", b"x" * 10_000)
    client.produce("t", b"y")
    client.produce("t", b"z" * 10_000, partition=1)
    request = fetch_request("t", 0, max_bytes=100, partition_max_bytes=100, max_wait_ms=0)
    request.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=100))
    first, second = client.ask(request, 12).responses[0].partitions
    assert values_of(first.records) == [b"x" * 10_000]
    assert bytes(second.records) == b""


def test_limits_of_partition_and_answer(world: BrokerWorld, client: Client) -> None:
    for number in range(20):
        client.produce("t", b"%02d" % number + b"-" * 900)
        client.produce("t", b"%02d" % number + b"-" * 900, partition=1)
    assert 1 <= len(client.values("t", 0, partition_max_bytes=3000)) <= 3
    request = fetch_request("t", 0, max_bytes=5000, max_wait_ms=0)
    request.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20))
    first, second = client.ask(request, 12).responses[0].partitions
    assert len(first.records) + len(second.records) <= 5000
    world.broker.admission.limits = world.broker.admission.limits._replace(fetch_bytes_max=2000)
    assert len(client.fetch("t", 0).records) <= 2000


def test_too_little_waits_and_an_append_completes_it(world: BrokerWorld, client: Client) -> None:
    producer = world.connect()
    client.send(fetch_request("t", 0, max_wait_ms=500), 12)
    assert client.answers() == []
    producer.produce("t", b"a")
    (answer,) = client.answers()
    assert values_of(result(answer.body).records) == [b"a"]
    assert world.broker.purgatory.waiting == 0


def test_min_bytes_are_gathered_over_appends_and_partitions(world: BrokerWorld, client: Client) -> None:
    producer = world.connect()
    request = fetch_request("t", 0, max_wait_ms=500, min_bytes=1000)
    request.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20))
    client.send(request, 12)
    for number in range(3):
        producer.produce("t", b"x" * 250, partition=number % 2)
        assert client.answers() == []
    producer.produce("t", b"x" * 250)
    (answer,) = client.answers()
    first, second = answer.body.responses[0].partitions
    assert len(values_of(first.records)) + len(values_of(second.records)) == 4


def test_more_than_the_limit_is_not_waited_for(client: Client) -> None:
    """As in Kafka: `min_bytes` beyond `max_bytes` counts as that."""
    for _ in range(5):
        client.produce("t", b"x" * 300)
    client.send(fetch_request("t", 0, min_bytes=1400, max_bytes=1000), 12)
    assert len(client.answers()) == 1


def test_what_lies_in_later_segments_counts(world: BrokerWorld, client: Client) -> None:
    """A read ends with its segment; a consumer that is behind must not wait its time out at the end of each."""
    world.create_topic("segments", segment_bytes=1 << 20)
    for _ in range(4):
        client.produce("segments", b"x" * 600_000)
    assert world.partition("segments").log.statistics()["segments"] == 4
    client.send(fetch_request("segments", 0, min_bytes=1_500_000, max_bytes=1 << 22, partition_max_bytes=1 << 22), 12)
    (answer,) = client.answers()
    assert len(values_of(answer.body.responses[0].partitions[0].records)) == 1
    client.send(fetch_request("segments", 2, min_bytes=1_500_000, max_bytes=1 << 22, partition_max_bytes=1 << 22), 12)
    assert client.answers() == [], "there is less than that from here on"
    client.send(fetch_request("t", 0, max_wait_ms=0), 12)
    other = world.connect()
    other.produce("segments", b"x" * 600_000)
    assert len(client.answers()) == 2


def test_when_the_time_is_over_there_is_what_there_is(world: BrokerWorld, client: Client) -> None:
    world.connect().produce("t", b"a")
    client.send(fetch_request("t", 0, max_wait_ms=500, min_bytes=10_000), 12)
    world.clock.advance(0.499)
    assert client.answers() == []
    world.clock.advance(0.002)
    (answer,) = client.answers()
    assert values_of(result(answer.body).records) == [b"a"]


def test_an_empty_answer_after_the_wait(world: BrokerWorld, client: Client) -> None:
    client.send(fetch_request("t", 0, max_wait_ms=100), 12)
    world.clock.advance(0.101)
    (answer,) = client.answers()
    assert (result(answer.body).error_code, bytes(result(answer.body).records)) == (0, b"")


@pytest.mark.parametrize("offset", [7, -3])
def test_errors_do_not_wait(client: Client, offset: int) -> None:
    client.send(fetch_request("t", offset, max_wait_ms=500), 12)
    (answer,) = client.answers()
    assert result(answer.body).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_request_for_nothing_does_not_wait(client: Client) -> None:
    request = fetch_request("t", 0)
    request.topics = [FetchTopic("t", partitions=[])]
    client.send(request, 12)
    assert len(client.answers()) == 1


def test_topics_of_which_nothing_is_wanted_are_left_out(client: Client) -> None:
    """As Kafka does. A request of little else would hold much memory while it waits."""
    request = fetch_request("t", 0, max_wait_ms=0)
    request.topics = [FetchTopic("t"), *request.topics, FetchTopic("missing"), FetchTopic()]
    assert [topic.topic for topic in client.ask(request, 12).responses] == ["t"]


def test_deleting_a_topic_tells_those_who_wait(world: BrokerWorld, client: Client) -> None:
    client.send(fetch_request("t", 0, max_wait_ms=500), 12)
    world.delete_topics("t")
    (answer,) = client.answers()
    assert result(answer.body).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_waiting_fetches_are_bounded(world: BrokerWorld) -> None:
    world.broker.admission.limits = world.broker.admission.limits._replace(fetches_waiting_max=3)
    clients = [world.connect() for _ in range(5)]
    for client in clients:
        client.send(fetch_request("t", 0, max_wait_ms=500), 12)
    assert [len(client.answers()) for client in clients] == [0, 0, 0, 1, 1]


def test_a_waiting_fetch_of_several_partitions_counts_as_often(world: BrokerWorld) -> None:
    world.broker.admission.limits = world.broker.admission.limits._replace(fetches_waiting_max=3)
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        request = fetch_request("t", 0, max_wait_ms=500)
        request.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20))
        client.send(request, 12)
    assert [len(client.answers()) for client in clients] == [0, 0, 1]
    clients[0].peer.disconnect()
    world.clock.settle()
    assert (world.broker.purgatory.waiting, world.broker.purgatory.held) == (1, 2)


def test_leader_epochs_are_compared(world: BrokerWorld, client: Client) -> None:
    world.partition("t").machine.leader_epoch = 5
    assert client.fetch("t", 0, current_leader_epoch=5).error_code == 0
    assert client.fetch("t", 0, current_leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert client.fetch("t", 0, current_leader_epoch=6).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert client.fetch("t", 0, current_leader_epoch=-1).error_code == 0


def test_a_client_that_read_what_is_gone_is_told_where_the_log_diverges(world: BrokerWorld, client: Client) -> None:
    partition = world.partition("t")
    partition.log.lead_epoch(3)
    client.produce("t", b"a", b"b")
    partition.log.lead_epoch(7)
    client.produce("t", b"c")
    same = client.fetch("t", 2, last_fetched_epoch=3)
    assert (same.error_code, same.diverging_epoch, values_of(same.records)) == (0, None, [b"c"])
    longer = client.fetch("t", 3, last_fetched_epoch=3)
    assert (longer.diverging_epoch.epoch, longer.diverging_epoch.end_offset, bytes(longer.records)) == (3, 2, b"")
    other = client.fetch("t", 2, last_fetched_epoch=5)
    assert (other.diverging_epoch.epoch, other.diverging_epoch.end_offset) == (3, 2)


def test_a_follower_that_the_partition_is_not_assigned_to_is_refused(client: Client) -> None:
    for epoch in (0, -1):
        request = fetch_request("t", 0)
        request.replica_id = 1
        request.topics[0].partitions[0].current_leader_epoch = epoch
        body = client.ask(request, 12)
        assert (body.error_code, result(body).error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_rack_and_isolation_level_are_taken(client: Client) -> None:
    client.produce("t", b"a")
    request = fetch_request("t", 0, max_wait_ms=0)
    request.rack_id, request.isolation_level = "rack-1", 1
    answer = result(client.ask(request, 12))
    assert answer.preferred_read_replica == -1
    assert values_of(answer.records) == [b"a"]


def test_files_are_given_back_when_answers_are_not_sent(world: BrokerWorld, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch that has some data but waits for more holds no file meanwhile."""
    users = 0

    def counted(change: int, method: Any) -> Any:
        def call(file: Any) -> None:
            nonlocal users
            users += change
            method(file)

        return call

    world.connect().produce("t", b"a")
    world.clock.advance(1.0)  # the new partition's checkpoint is written
    monkeypatch.setattr(ForgetfulFile, "retain", counted(1, ForgetfulFile.retain))
    monkeypatch.setattr(ForgetfulFile, "release", counted(-1, ForgetfulFile.release))
    for _ in range(5):
        client.send(fetch_request("t", 0, max_wait_ms=500, min_bytes=10_000), 12)
    assert users == 0
    client.peer.disconnect()
    world.clock.advance(1.0)
    assert users == 0


def test_a_response_reads_no_more_records_after_its_time() -> None:
    """10,000 partitions took a turn of 190 to 320 ms; those that are left out come with the next fetch."""
    world = BrokerWorld()
    world.create_topic("t", partitions=100)
    client = world.connect()
    for partition in range(100):
        client.produce("t", b"value", partition=partition)
    slow_down(world.clock, READING_S)
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(100)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 26, topics=[FetchTopic("t", partitions=wanted)])
    client.send(request, 12)
    for _ in range(100):
        world.clock.settle()
    partitions = client.answers()[0].body.responses[0].partitions
    assert [each.error_code for each in partitions] == [0] * 100
    assert [each.high_watermark for each in partitions] == [1] * 100
    assert 0 < sum(bool(each.records) for each in partitions) < 100
