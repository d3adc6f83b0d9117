"""Markers reach the partitions of a whole broker, or are tried until they do, and whoever waits for the outcome is told."""

from pathlib import Path
from typing import Any

import pytest

from moldau.broker.admission.slices import TURN_S
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.purgatory import ATTEMPTS_PER_TURN
from moldau.broker.transactions.markers import PARTITIONS_PER_STEP, Marker, MarkerResults, write_markers
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.transaction_admin import ListTransactionsRequest
from moldau.protocol.messages.transactions import EndTxnRequest
from support.broker_world import BrokerWorld, Client, fetch_request, values_of
from support.logs import ongoing
from support.transactional_producer import NEWEST, OLDER, RawProducer, Versions

NONE = ErrorCode.NONE
READ_COMMITTED = 1


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld(immediate=False, transaction_state_log_num_partitions=2)
    made.finish(made.broker.coordinators.transactions_topic.ensured())
    return made


def producer_of(client: Client, transactional_id: str = "app", versions: Versions = NEWEST) -> RawProducer:
    producer = RawProducer(client.ask, transactional_id, versions, now_ms=client.world.clock.time_ms)
    assert producer.find() is NONE
    client.world.clock.settle()
    assert producer.init() is NONE
    return producer


def state(client: Client, transactional_id: str = "app") -> str:
    found = client.ask(ListTransactionsRequest(), 0).transaction_states
    return {each.transactional_id: str(each.transaction_state) for each in found}[transactional_id]


def read_committed(topic: str, offset: int = 0, **options: Any) -> Any:
    request = fetch_request(topic, offset, **options)
    request.isolation_level = READ_COMMITTED
    return request


@pytest.mark.parametrize("versions", [NEWEST, OLDER], ids=["newest", "older"])
def test_a_fetch_that_waits_for_the_outcome_is_answered_by_it(world: BrokerWorld, versions: Versions) -> None:
    world.create_topic("t")
    producer = producer_of(world.connect(), versions=versions)
    reader = world.connect()
    producer.send("t", b"a")
    reader.send(read_committed("t"), 12)
    assert reader.answers() == []
    producer.end(committed=True)
    (answer,) = reader.answers()
    assert values_of(answer.body.responses[0].partitions[0].records)[0] == b"a"


def test_a_topic_that_is_deleted_needs_no_marker(world: BrokerWorld) -> None:
    world.create_topic("t")
    world.create_topic("u")
    client = world.connect()
    producer = producer_of(client)
    producer.send("t", b"a")
    producer.send("u", b"a")
    world.delete_topics("t")
    assert producer.end(committed=True) is NONE
    assert state(client) == "CompleteCommit"
    assert world.partition("u").log.last_stable_offset == 2


def test_where_an_acknowledgement_waits_for_the_disk_so_does_a_marker(world: BrokerWorld) -> None:
    world.create_topic("t", flush_messages=2)
    client = world.connect()
    producer = producer_of(client)
    producer.send("t", b"a")
    client.send(EndTxnRequest("app", producer.producer_id, producer.epoch, committed=True), 5)
    assert client.answers() == []
    assert state(world.connect()) == "PrepareCommit"
    world.background.run_all()
    (answer,) = client.answers()
    assert (answer.body.error_code, answer.body.producer_epoch) == (0, 1)
    assert world.partition("t").log.flushed_offset == 2
    assert state(client) == "CompleteCommit"


ROOM_FOR_THE_DECISION = 170
"""Bytes that the record of the decision takes, and no marker behind it."""


def test_a_full_disk_delays_the_markers_but_not_the_decision(world: BrokerWorld) -> None:
    world.create_topic("t")
    client = world.connect()
    producer = producer_of(client)
    producer.send("t", b"a")
    log = world.partition("t").log
    world.disk.capacity = world.disk.used() + ROOM_FOR_THE_DECISION
    assert producer.end(committed=True) is NONE
    assert state(client) == "PrepareCommit"
    assert log.last_stable_offset == 0
    world.clock.advance(3)
    assert state(client) == "PrepareCommit"
    world.disk.capacity = None
    world.clock.advance(1)
    assert state(client) == "CompleteCommit"
    assert (log.last_stable_offset, log.log_end_offset) == (2, 2)
    assert producer.send("t", b"b") is NONE


def test_without_room_for_the_decision_the_transaction_stays_open(world: BrokerWorld) -> None:
    world.create_topic("t")
    client = world.connect()
    producer = producer_of(client)
    producer.send("t", b"a")
    world.disk.capacity = world.disk.used()
    assert producer.end(committed=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state(client) == "Ongoing"
    world.disk.capacity = None
    assert producer.end(committed=True) is NONE


def test_several_markers_of_one_request_are_answered_each_by_itself(world: BrokerWorld) -> None:
    world.create_topic("t", 2)
    producers = [producer_of(world.connect(), name, OLDER) for name in ("a", "b")]
    for producer in producers:
        producer.send("t", b"x")
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    told: list[list[MarkerResults]] = []
    markers = [Marker(each.producer_id, each.epoch, True, 1, 0, [first, second]) for each in producers]
    markers[1] = markers[1]._replace(producer_epoch=-1)
    write_markers(world.broker, markers, lambda results: told.append(list(results)))
    assert told == [
        [
            {first: NONE, second: NONE},
            {first: ErrorCode.INVALID_PRODUCER_EPOCH, second: NONE},
        ]
    ]
    assert list(ongoing(world.partition("t").log)) == [producers[1].producer_id]


def test_after_a_bug_in_a_later_turn_what_is_left_is_to_be_tried_again(world: BrokerWorld) -> None:
    world.create_topic("t", 30)
    told: list[list[MarkerResults]] = []
    partitions = [TopicPartition("t", index) for index in range(30)]
    seen: list[TopicPartition] = []

    def check(partition: HostedPartition, _marker: Marker) -> None:
        seen.append(partition.topic_partition)
        if len(seen) == 10:
            world.clock.advance_within(TURN_S)
        if len(seen) > 15:
            raise ZeroDivisionError

    write_markers(world.broker, [Marker(1, 0, True, 1, 0, partitions)], lambda results: told.append(list(results)), check)
    assert (len(seen), told) == (10, [])
    world.clock.settle()
    left = dict.fromkeys(partitions[10:], ErrorCode.REQUEST_TIMED_OUT)
    assert told == [[dict.fromkeys(partitions[:10], NONE) | left]]
    assert ErrorCode.REQUEST_TIMED_OUT.retriable


@pytest.mark.parametrize("flush", [{}, {"flush_messages": 1}], ids=["written", "flushed"])
def test_the_markers_of_one_step_attempt_no_more_fetches_together_than_one_append(flush: dict[str, int]) -> None:
    """Each partition with as many fetches of its own would keep all other work waiting for as many times as long."""
    world = BrokerWorld(transaction_state_log_num_partitions=2)
    world.create_topic("t", PARTITIONS_PER_STEP, **flush)
    producer = producer_of(world.connect(), versions=OLDER)
    for index in range(PARTITIONS_PER_STEP):
        assert producer.send("t", b"a", partition=index) is NONE
    for index in range(PARTITIONS_PER_STEP):
        for _ in range(ATTEMPTS_PER_TURN // 5):
            world.connect().send(read_committed("t", partition=index), 12)
    purgatory = world.broker.purgatory
    assert purgatory.waiting == ATTEMPTS_PER_TURN * 2
    marker = Marker(producer.producer_id, producer.epoch, True, 1, 0, [TopicPartition("t", index) for index in range(PARTITIONS_PER_STEP)])
    told: list[list[MarkerResults]] = []
    world.background.immediate = False
    write_markers(world.broker, [marker], lambda results: told.append(list(results)))
    assert purgatory.waiting == ATTEMPTS_PER_TURN
    world.clock.settle()
    assert purgatory.waiting == 0
    world.background.run_all()
    assert told == [[dict.fromkeys(marker.partitions, NONE)]]


def test_a_marker_needs_the_replicas_that_an_acknowledgement_does(world: BrokerWorld) -> None:
    world.create_topic("t", min_insync_replicas=2)
    world.lack_replicas("t")
    told: list[list[MarkerResults]] = []
    write_markers(world.broker, [Marker(1, 0, True, 1, 0, [TopicPartition("t", 0)])], lambda results: told.append(list(results)))
    assert told == [[{TopicPartition("t", 0): ErrorCode.NOT_ENOUGH_REPLICAS}]]


@pytest.mark.parametrize("versions", [NEWEST, OLDER], ids=["newest", "older"])
def test_after_a_restart_what_was_decided_is_finished(tmp_path: Path, versions: Versions) -> None:
    world = BrokerWorld(store=str(tmp_path / "metadata"), transaction_state_log_num_partitions=2)
    world.create_topic("t")
    client = world.connect()
    producer = producer_of(client, versions=versions)
    producer.send("t", b"a")
    world.disk.capacity = world.disk.used() + ROOM_FOR_THE_DECISION
    assert producer.end(committed=True) is NONE
    assert state(client) == "PrepareCommit"
    world.disk.capacity = None
    world.restart()
    client = world.connect()
    assert client.ask(ListTransactionsRequest(), 0).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.clock.settle()
    assert state(client) == "CompleteCommit"
    assert world.partition("t").log.last_stable_offset == 2
    producer.ask = client.ask
    assert producer.send("t", b"b") is NONE
