"""A Produce request of many partitions runs in turns; what comes of it is what comes of any other."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from moldau.broker.handlers.produce import handler
from moldau.broker.handlers.produce.handler import BYTES_AT_ONCE
from moldau.broker.handlers.produce.long import BATCHES_AT_ONCE, RESULTS_AT_ONCE
from moldau.broker.replicas.manager import LeaderState
from moldau.log.partition_log import AppendResult
from moldau.model.errors import ErrorCode, StorageError
from moldau.protocol.fast.produce import PARTITIONS_AT_ONCE
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request, values_of
from support.turns import served_before_answer, slow_down

COUNT = 5 * PARTITIONS_AT_ONCE


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("wide", COUNT)
    made.create_topic("one")
    slow_down(made.clock)
    return made


def to_all(world: BrokerWorld, acks: int = 1, count: int = COUNT, topic: str = "wide") -> ProduceRequest:
    """A batch for each partition."""
    records = batch(world, b"v")
    return ProduceRequest(
        None, acks, 30_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(n, records) for n in range(count)])]
    )


def settle(world: BrokerWorld) -> None:
    for _ in range(500):
        world.clock.settle()


def results(answer: object) -> list[tuple[int, int, int]]:
    (topic,) = answer.responses  # type: ignore[attr-defined]
    return [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses]


def in_turns(world: BrokerWorld, client: Client, request: ProduceRequest, version: int = 9) -> object:
    client.send(request, version)
    assert world.broker.slices.running == 1
    settle(world)
    (answer,) = client.answers()
    return answer.body


def nothing_is_left(world: BrokerWorld) -> bool:
    broker = world.broker
    return (broker.slices.running, broker.request_memory.held, broker.replicas.appends.dirty) == (0, 0, [])


def lengths(world: BrokerWorld, topic: str = "wide", count: int = COUNT) -> list[int]:
    return [world.partition(topic, index).log.log_end_offset for index in range(count)]


def test_others_are_served_while_it_runs(world: BrokerWorld) -> None:
    world.create_topic("wider", 2 * COUNT)
    client = world.connect()
    client.send(to_all(world, count=2 * COUNT, topic="wider"), 9)
    served, answer = served_before_answer(world, client)
    assert served >= 4
    assert results(answer) == [(index, 0, 0) for index in range(2 * COUNT)]
    assert lengths(world, "wider", 2 * COUNT) == [1] * (2 * COUNT)
    settle(world)  # housekeeping runs in turns too
    assert nothing_is_left(world)


def test_batches_for_one_partition_keep_their_order(world: BrokerWorld) -> None:
    sent = [PartitionProduceData(0, batch(world, b"%d" % number)) for number in range(COUNT)]
    answer = in_turns(world, world.connect(), ProduceRequest(None, 1, 30_000, [TopicProduceData("one", partition_data=sent)]))
    assert results(answer) == [(0, 0, number) for number in range(COUNT)]
    assert world.connect().values("one", max_bytes=1 << 24, partition_max_bytes=1 << 24) == [b"%d" % number for number in range(COUNT)]


def test_each_partition_has_its_own_error_and_a_later_request_its_answer_behind(world: BrokerWorld) -> None:
    client = world.connect()
    request = to_all(world)
    request.topic_data.append(TopicProduceData("nowhere", partition_data=[PartitionProduceData(0, batch(world, b"v"))]))
    request.topic_data[0].partition_data[5].records = b"damaged"
    client.send(request, 9)
    client.send(produce_request("wide", batch(world, b"behind")), 9)
    settle(world)
    client.peer.push()
    first, second = client.answers()
    wide, nowhere = first.body.responses
    codes = [each.error_code for each in wide.partition_responses]
    assert codes[5] != 0
    assert codes.count(0) == COUNT - 1
    assert nowhere.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert second.body.responses[0].partition_responses[0].base_offset == 1


def test_errors_are_counted_with_each_piece_of_the_results(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of them all in one step makes others wait as long as their number wants."""
    count, counters = 3 * RESULTS_AT_ONCE, world.broker.counters
    refused: list[int] = []
    real = counters.refused

    def counted(_self: object, traffic: Any, made: Any) -> None:
        refused.append(len(made))
        real(traffic, made)

    monkeypatch.setattr(type(counters), "refused", counted)
    missing = [PartitionProduceData(COUNT + number, None) for number in range(count)]
    answer = in_turns(world, world.connect(), ProduceRequest(None, 1, 30_000, [TopicProduceData("wide", partition_data=missing)]))
    assert {code for _, code, _ in results(answer)} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert refused == [RESULTS_AT_ONCE] * 3
    assert counters.produce.errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: count}


def test_idempotent_batches_are_taken_once(world: BrokerWorld) -> None:
    client = world.connect()
    records = batch(world, b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    request = ProduceRequest(
        None, -1, 30_000, [TopicProduceData("wide", partition_data=[PartitionProduceData(n, records) for n in range(COUNT)])]
    )
    first, second = in_turns(world, client, request), in_turns(world, client, request)
    assert results(first) == results(second) == [(index, 0, 0) for index in range(COUNT)]
    assert lengths(world) == [1] * COUNT


def test_a_request_that_has_come_whole_is_carried_out_though_its_connection_is_lost(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(to_all(world, acks=0), 9, answered=False)
    assert world.broker.request_memory.held > 0
    client.peer.disconnect()
    settle(world)
    assert lengths(world) == [1] * COUNT
    assert nothing_is_left(world)


@pytest.mark.parametrize("written", [1, COUNT], ids=["before the last is written", "while all wait"])
def test_batches_whose_connection_is_lost_leave_the_gates_where_they_wait_for_followers(world: BrokerWorld, written: int) -> None:
    """And the frame, which no follower can then keep in memory."""
    replicas = world.broker.replicas
    partitions = [world.partition("wide", index) for index in range(COUNT)]
    for each in partitions:
        state = LeaderState(each.machine.leader_epoch, each.machine.state_version + 1, (0, 1), (0, 1))
        replicas.become_leader(each.topic_partition, state, each.topic_id, world.broker.topic_settings.of({}))
    client = world.connect()
    client.send(to_all(world, acks=-1), 9)

    def waiting() -> int:
        return sum(len(each.gate) for each in partitions if each.gate is not None)

    while waiting() < written:
        world.clock.settle()
    assert (client.answers(), waiting() == COUNT) == ([], written == COUNT)
    client.peer.disconnect()
    settle(world)
    assert (lengths(world), waiting()) == ([1] * COUNT, 0)
    assert nothing_is_left(world)


def test_the_memory_of_its_frame_counts_once(world: BrokerWorld) -> None:
    request = to_all(world)
    for each in request.topic_data[0].partition_data:
        each.records = batch(world, bytes(5000))
    client = world.connect()
    frame = client.frame(request, 9)
    client.peer.send(frame)
    assert world.broker.slices.running == 1
    assert world.broker.request_memory.held == len(frame) - 4
    settle(world)
    assert nothing_is_left(world)


def test_at_the_memory_bound_one_that_takes_long_is_counted_to_its_end_and_not_as_incomplete() -> None:
    """It waits for the disk for longer than an incomplete request may hold memory; nothing more of it has to come."""
    world = BrokerWorld(immediate=False, queued_max_request_bytes=10_000, incomplete_request_timeout_ms=10_000)
    world.create_topic("safe", COUNT, flush_messages=1)
    world.background.run_all()
    slow_down(world.clock)
    client, memory = world.connect(), world.broker.request_memory
    frame = client.frame(to_all(world, acks=-1, topic="safe"), 9)
    client.peer.send(frame)
    settle(world)
    assert memory.exhausted
    for _ in range(30):
        world.clock.advance(1)
    settle(world)
    assert memory.statistics() == {
        "request_bytes_held": len(frame) - 4,
        "requests_waiting_for_memory": 0,
        "requests_cut_for_memory": 0,
    }
    world.background.run_all()
    settle(world)
    assert [code for _, code, _ in results(client.answers()[0].body)] == [0] * COUNT
    assert nothing_is_left(world)


def test_one_that_could_not_begin_at_once_is_carried_out_too_though_its_connection_is_lost(world: BrokerWorld) -> None:
    world.create_topic("other", COUNT)
    settle(world)
    for _ in range(10):  # more than have a part in the first turn
        world.connect().send(to_all(world), 9)
    client = world.connect()
    before = world.broker.request_memory.held
    client.send(to_all(world, acks=0, topic="other"), 9, answered=False)
    assert world.broker.request_memory.held > before, "its memory counts"
    client.peer.disconnect()
    settle(world)
    assert lengths(world, "other") == [1] * COUNT
    assert nothing_is_left(world)


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    client.send(to_all(world, acks=0), 9, answered=False)
    client.send(HeartbeatRequest("g", 1, "m"), 4)
    settle(world)
    client.peer.push()
    assert len(client.answers()) == 1
    requests = world.broker.counters.produce.requests
    client.send(to_all(world, acks=0, topic="nowhere"), 9, answered=False)
    settle(world)
    assert client.closed
    assert "produce with acks 0 failed: nowhere-0" in caplog.text
    assert world.broker.counters.produce.requests == requests + 1
    assert world.broker.counters.produce.errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: COUNT}


def test_one_that_fails_after_its_connection_is_lost_is_said_in_the_log_alone(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    client.send(to_all(world, acks=0, topic="nowhere"), 9, answered=False)
    client.peer.disconnect()
    settle(world)
    assert "produce with acks 0 failed: nowhere-0" in caplog.text
    assert nothing_is_left(world)


def test_one_that_is_malformed_at_its_end_appends_nothing(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    frame = client.frame(to_all(world), 9, answered=False)
    client.peer.send((len(frame) - 4 + 1).to_bytes(4, "big") + frame[4:] + b"x")
    settle(world)
    assert client.closed
    assert "1 bytes follow the Produce request" in caplog.text
    assert lengths(world) == [0] * COUNT
    assert nothing_is_left(world)


def test_an_acknowledgement_waits_for_all_syncs() -> None:
    world = BrokerWorld(immediate=False)
    world.create_topic("safe", COUNT, flush_messages=1)
    world.background.run_all()
    slow_down(world.clock)
    client = world.connect()
    client.send(to_all(world, acks=-1, topic="safe"), 9)
    settle(world)
    while world.background.jobs:
        assert client.answers() == []
        world.background.run_next()
        world.clock.settle()
    settle(world)
    assert [code for _, code, _ in results(client.answers()[0].body)] == [0] * COUNT
    assert all(world.partition("safe", index).log.flushed_offset == 1 for index in range(COUNT))


def test_batches_that_another_thread_looks_into_are_taken_in_their_order(world: BrokerWorld) -> None:
    world.create_topic("compacted", cleanup_policy="compact")
    keyed = [PartitionProduceData(0, batch(world, bytes(40_000), key=b"%d" % number)) for number in range(4)]
    keyed += [PartitionProduceData(0, batch(world, b"small", key=b"s")) for _ in range(COUNT)]
    answer = in_turns(world, world.connect(), ProduceRequest(None, 1, 30_000, [TopicProduceData("compacted", partition_data=keyed)]))
    assert results(answer) == [(0, 0, number) for number in range(COUNT + 4)]


def test_one_with_a_transactional_id_lends_its_frame_to_other_threads(world: BrokerWorld) -> None:
    """All batches of it are checked before the first is appended: copies would be as large again, and only those of a few count."""
    world.create_topic("compacted", cleanup_policy="compact")
    world.compute.immediate = False
    keyed = [PartitionProduceData(0, batch(world, bytes(40_000), key=b"k")) for _ in range(PARTITIONS_AT_ONCE + 1)]
    client = world.connect()
    client.send(ProduceRequest("tx", 1, 30_000, [TopicProduceData("compacted", partition_data=keyed)]), 9)
    settle(world)
    frames = {id(work.__self__.batch.obj) for work, _ in world.compute.jobs}  # type: ignore[attr-defined]
    assert (len(world.compute.jobs), len(frames)) == (BATCHES_AT_ONCE, 1)
    while world.compute.jobs:
        world.compute.run_all()
        settle(world)
    assert results(client.answers()[0].body) == [(0, 0, number) for number in range(len(keyed))]
    assert nothing_is_left(world)


def test_a_write_that_fails_fails_its_partitions_alone(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:

    def write_staged() -> None:
        raise StorageError("no room", path="/data", no_space=True)

    monkeypatch.setattr(world.partition("wide", 3).log, "write_staged", write_staged)
    answer = in_turns(world, world.connect(), to_all(world))
    assert [index for index, code, _ in results(answer) if code == ErrorCode.KAFKA_STORAGE_ERROR] == [3]
    assert nothing_is_left(world)


def test_a_bug_in_a_later_step_leaves_no_batch_staged_though_the_connection_is_lost(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that stayed staged waited for the next write of anybody, and the fetches that wait for them as well."""
    client, reader = world.connect(), world.connect()
    reader.send(fetch_request("wide", 0, partition=COUNT - BATCHES_AT_ONCE, max_wait_ms=1_000_000), 12)
    appended = 0

    def append_or_fail(append: Callable[..., AppendResult], *arguments: Any) -> AppendResult:
        nonlocal appended
        appended += 1
        if appended == COUNT:
            raise ZeroDivisionError
        return append(*arguments)

    for number in range(COUNT):
        log = world.partition("wide", number).log
        monkeypatch.setattr(log, "append_as_leader", partial(append_or_fail, log.append_as_leader))
    client.send(to_all(world), 9)
    client.peer.disconnect()
    settle(world)
    assert nothing_is_left(world)
    assert lengths(world) == [1] * (COUNT - 1) + [0]
    assert values_of(reader.answers()[0].body.responses[0].partitions[0].records) == [b"v"]


@pytest.mark.parametrize("transactional_id", [None, "tx"])
@pytest.mark.parametrize("partitions", [[12], [6, 6]], ids=["one topic", "two topics"])
def test_one_of_long_batches_is_written_a_few_megabytes_at_a_time(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, transactional_id: str | None, partitions: list[int]
) -> None:
    """The bound was in batches alone: up to 63 of 1 MB were written in one turn of 90 ms."""
    world.create_topic("wide2", 12)
    written: list[int] = []
    replicas = world.broker.replicas
    write = replicas.write_staged

    def counted() -> None:
        written.append(sum(each.staged_bytes for each in replicas.appends.dirty))
        write()

    monkeypatch.setattr(replicas, "write_staged", counted)
    records = batch(world, bytes(1_000_000))
    sent = [
        TopicProduceData(name, partition_data=[PartitionProduceData(n, records) for n in range(count)])
        for name, count in zip(("wide", "wide2"), partitions, strict=False)
    ]
    client = world.connect()
    client.send(ProduceRequest(transactional_id, 1, 30_000, sent), 9)
    settle(world)
    answer = client.answers()[0].body
    assert [each.error_code for topic in answer.responses for each in topic.partition_responses] == [0] * 12
    assert sum(written) == 12 * len(records)
    assert max(written) <= BYTES_AT_ONCE + len(records)
    assert nothing_is_left(world)


def test_one_long_batch_alone_goes_the_short_way(world: BrokerWorld) -> None:
    world.create_topic("long", max_message_bytes=2 * BYTES_AT_ONCE)
    client = world.connect()
    client.send(produce_request("long", batch(world, bytes(BYTES_AT_ONCE + 1))), 9)
    assert results(client.answers()[0].body) == [(0, 0, 0)]


def test_fetches_that_wait_are_completed_by_it(world: BrokerWorld) -> None:
    reader = world.connect()
    reader.send(fetch_request("wide", 0, partition=COUNT - 1, max_wait_ms=1_000_000), 12)
    assert reader.answers() == []
    in_turns(world, world.connect(), to_all(world))
    assert values_of(reader.answers()[0].body.responses[0].partitions[0].records) == [b"v"]


def test_a_broker_that_stops_drops_the_rest(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(to_all(world), 9)
    world.stop()
    assert world.broker.request_memory.held == 0
    assert world.broker.slices.running == 0


def test_one_that_fails_while_the_broker_stops_does_not_hold_up_the_stop(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(to_all(world, acks=0, count=2 * COUNT, topic="nowhere"), 9, answered=False)
    world.broker.finish_connections()
    assert not client.closed
    settle(world)
    assert client.closed


def test_with_acks_0_its_frame_does_not_wait_for_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may take long, while the connection sends further requests."""
    frames: list[bytearray] = []

    def kept(frame: memoryview) -> memoryview:
        frames.append(bytearray(frame))
        return memoryview(frames[-1])

    monkeypatch.setattr(handler, "kept", kept)
    world = BrokerWorld(immediate=False)
    world.create_topic("safe", COUNT, flush_messages=1)
    world.background.run_all()
    slow_down(world.clock)
    world.connect().send(to_all(world, acks=0, topic="safe"), 9, answered=False)
    settle(world)
    assert world.background.jobs
    assert nothing_is_left(world)
    (frame,) = frames
    assert sys.getrefcount(frame) == len(["frames", "frame", "the argument"])
