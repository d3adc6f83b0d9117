"""A Fetch request of many partitions runs in turns, also when it is read again; what it is answered is what any other is."""

import struct

import pytest

from moldau.broker.handlers.fetch.handler import AT_ONCE_BYTES_MAX
from moldau.model.errors import ErrorCode
from moldau.ports.filesystem import File
from moldau.ports.transport import FileRange
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.group_members import HeartbeatRequest
from support.broker_world import BrokerWorld, Client, batch, produce_request, values_of
from support.turns import served_before_answer, slow_down

COUNT = 640
LONG_MS = 1_000_000


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("wide", COUNT)
    slow_down(made.clock)
    return made


def of_all(*, max_wait_ms: int = 0, min_bytes: int = 1, isolation_level: int = 0, offset: int = 0) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in range(COUNT)]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 24,
        isolation_level=isolation_level,
        topics=[FetchTopic("wide", partitions=wanted)],
    )


def settle(world: BrokerWorld) -> None:
    for _ in range(300):
        world.clock.settle()


def answered(client: Client) -> dict[int, list[bytes | None]]:
    """What the one answer has that has come."""
    (answer,) = client.answers()
    return found_in(answer.body)


def found_in(answer: FetchResponse) -> dict[int, list[bytes | None]]:
    """The values of each partition that has some."""
    (topic,) = answer.responses
    assert [each.partition_index for each in topic.partitions] == list(range(COUNT))
    return {each.partition_index: values_of(each.records) for each in topic.partitions if each.records}


def waits(world: BrokerWorld, client: Client, request: FetchRequest) -> bool:
    client.send(request, 12)
    settle(world)
    return not client.answers() and world.broker.purgatory.waiting == 1 and world.broker.slices.running == 0


def nothing_is_left(world: BrokerWorld) -> bool:
    watched = [index for index in range(COUNT) if world.partition("wide", index).watchers]
    return (world.broker.slices.running, world.broker.purgatory.waiting, watched) == (0, 0, [])


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_others_are_served_while_it_runs(world: BrokerWorld, isolation_level: int) -> None:
    client = world.connect()
    client.produce("wide", b"v", partition=7)
    client.send(of_all(isolation_level=isolation_level), 12)
    served, answer = served_before_answer(world, client)
    assert served >= 4
    assert found_in(answer) == {7: [b"v"]}
    assert world.broker.slices.running == 0


def test_others_are_served_while_it_is_read_again(world: BrokerWorld) -> None:
    client = world.connect()
    assert waits(world, client, of_all(max_wait_ms=LONG_MS))
    world.connect().produce("wide", b"v", partition=COUNT - 1)
    served, answer = served_before_answer(world, client)
    assert served >= 4
    assert found_in(answer) == {COUNT - 1: [b"v"]}
    assert nothing_is_left(world)


@pytest.mark.parametrize("partition", [0, COUNT - 1])
def test_an_append_between_two_steps_is_not_missed(world: BrokerWorld, partition: int) -> None:
    client = world.connect()
    client.send(of_all(max_wait_ms=LONG_MS), 12)
    assert world.broker.slices.running == 1
    world.connect().produce("wide", b"v", partition=partition)
    settle(world)
    assert answered(client) == {partition: [b"v"]}
    assert nothing_is_left(world)


def test_it_is_answered_when_its_time_is_over(world: BrokerWorld) -> None:
    client = world.connect()
    assert waits(world, client, of_all(max_wait_ms=10_000))
    world.clock.advance(10)
    settle(world)
    assert answered(client) == {}
    assert nothing_is_left(world)


def test_it_waits_for_as_many_bytes_as_it_asks_for(world: BrokerWorld) -> None:
    client, producer = world.connect(), world.connect()
    assert waits(world, client, of_all(max_wait_ms=LONG_MS, min_bytes=2000))
    producer.produce("wide", bytes(900), partition=1)
    settle(world)
    assert world.broker.purgatory.waiting == 1
    producer.produce("wide", bytes(1100), partition=2)
    settle(world)
    assert set(answered(client)) == {1, 2}


def test_where_there_is_enough_it_is_answered_though_more_comes_whenever_it_reads(world: BrokerWorld) -> None:
    """What is read in its time may be less than it asks for: it read again and again until the appends paused or its time was over."""
    client, producer = world.connect(), world.connect()
    for index in range(COUNT):
        producer.produce("wide", b"v", partition=index)
    client.send(of_all(max_wait_ms=LONG_MS, min_bytes=30_000), 12)
    for _ in range(100):
        producer.send(produce_request("wide", batch(world, b"w"), partition=0), 9)
        world.clock.settle()
    assert 0 < len(answered(client)) < COUNT
    assert nothing_is_left(world)


def test_an_error_is_answered_at_once(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(of_all(max_wait_ms=LONG_MS, offset=5), 12)
    settle(world)
    (answer,) = client.answers()
    assert {each.error_code for each in answer.body.responses[0].partitions} == {ErrorCode.OFFSET_OUT_OF_RANGE}
    assert nothing_is_left(world)


def test_answers_keep_the_order_of_their_requests(world: BrokerWorld) -> None:
    client = world.connect()
    client.produce("wide", b"v", partition=7)
    client.send(of_all(), 12)
    client.send(HeartbeatRequest("g", 1, "m"), 4)
    settle(world)
    client.peer.push()
    assert len(client.answers()) == 2


@pytest.mark.parametrize("when", ["reading", "waiting", "reading again"])
def test_a_connection_that_is_lost_leaves_nothing_behind(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    ranges = 0
    make, release = FileRange.__init__, FileRange.release

    def made(file_range: FileRange, file: File, position: int, length: int) -> None:
        nonlocal ranges
        ranges += 1
        make(file_range, file, position, length)

    def released(file_range: FileRange) -> None:
        nonlocal ranges
        ranges -= 1
        release(file_range)

    monkeypatch.setattr(FileRange, "__init__", made)
    monkeypatch.setattr(FileRange, "release", released)
    client, other = world.connect(), world.connect()
    other.produce("wide", b"v", partition=0)
    client.send(of_all(max_wait_ms=LONG_MS, min_bytes=1000), 12)
    if when != "reading":
        settle(world)
    if when == "reading again":
        other.produce("wide", bytes(1000), partition=1)
    assert world.broker.slices.running == (when != "waiting")
    client.peer.disconnect()
    settle(world)
    assert nothing_is_left(world)
    assert ranges == 0


@pytest.mark.parametrize("when", ["reading", "waiting"])
def test_a_server_that_stops_has_it_answered_with_what_there_is(world: BrokerWorld, when: str) -> None:
    client = world.connect()
    client.send(of_all(max_wait_ms=LONG_MS), 12)
    if when == "waiting":
        settle(world)
    for connection in list(world.broker.connections):
        connection.finish()
    settle(world)
    assert answered(client) == {}
    assert client.closed


def test_those_that_wait_are_bounded_by_their_partitions(world: BrokerWorld) -> None:
    """The bound was on requests alone, up to 100,000, each with up to 50,000 decoded partitions and its frame."""
    world.broker.admission.limits = world.broker.admission.limits._replace(fetches_waiting_max=COUNT + 10)
    waiting = [world.connect() for _ in range(2)]
    for client in waiting:
        client.send(of_all(max_wait_ms=LONG_MS, min_bytes=1000), 12)
        settle(world)
    assert (world.broker.purgatory.waiting, world.broker.request_memory.held) == (2, 0), "the frames are free"
    assert world.broker.purgatory.held == 2 * COUNT
    client = world.connect()
    client.send(of_all(max_wait_ms=LONG_MS, min_bytes=1000), 12)
    settle(world)
    assert answered(client) == {}, "at once, with what there is"
    waiting[0].peer.disconnect()
    settle(world)
    assert world.broker.purgatory.held == COUNT
    client.send(of_all(max_wait_ms=LONG_MS, min_bytes=1000), 12)
    settle(world)
    assert world.broker.purgatory.waiting == 2, "there was room again"
    waiting[1].peer.disconnect()
    client.peer.disconnect()
    settle(world)
    assert nothing_is_left(world)


def test_a_partition_that_is_named_several_times_is_read_once_as_named_last(world: BrokerWorld) -> None:
    """As Kafka, which puts them into a map. 49,000 times the same one were as many results, and read again with each append."""
    client = world.connect()
    for value in (b"first", b"second"):
        client.produce("wide", value, partition=3)
    request = of_all()
    request.topics[0].partitions[3].fetch_offset = 2
    again = [FetchPartition(partition=3, fetch_offset=offset, partition_max_bytes=1 << 20) for offset in (0, 1)]
    request.topics.append(FetchTopic("nowhere", partitions=[again[0]]))
    request.topics.append(FetchTopic("wide", partitions=again))
    client.send(request, 12)
    settle(world)
    wide, nowhere = client.answers()[0].body.responses
    assert [each.partition_index for each in wide.partitions] == list(range(COUNT))
    assert {each.partition_index: values_of(each.records) for each in wide.partitions if each.records} == {3: [b"second"]}
    assert (nowhere.topic, len(nowhere.partitions)) == ("nowhere", 1)


def test_one_that_is_malformed_at_its_end_ends_the_connection(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    frame = client.frame(of_all(), 12, answered=False)
    assert len(frame) > AT_ONCE_BYTES_MAX
    client.peer.send(struct.pack(">i", len(frame) - 4 + 1) + frame[4:] + b"x")
    settle(world)
    assert client.closed
    assert "1 bytes follow the Fetch request" in caplog.text
    assert nothing_is_left(world)
