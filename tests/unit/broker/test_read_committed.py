"""Readers of committed records get what is decided, are told what of it was aborted, and are woken when more is decided."""

from typing import Any

import pytest

from moldau.broker.replicas.append_batch import AppendBatch, MarkerBatch
from moldau.broker.replicas.purgatory import Purgatory
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.transaction_admin import DescribeProducersRequest, TopicRequest
from moldau.protocol.records.batch import batches, iterate
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.protocol.records.header import check_batch
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request

A, B = 7, 8
VERSIONS = (4, 5, 7, 11, 12, 13, 18)


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.topic_id = made.create_topic("t")  # type: ignore[attr-defined]
    return made


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def write(world: BrokerWorld, producer_id: int, sequence: int, *values: bytes, at_ms: int | None = None) -> None:
    """A batch of a transaction, in the log and shown to who waits."""
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    for value in values:
        builder.append(world.clock.time_ms() if at_ms is None else at_ms, None, value)
    records = memoryview(bytearray(builder.build()))
    partition = world.partition("t")
    world.append(AppendBatch(partition, records, check_batch(records)))


def end(world: BrokerWorld, producer_id: int, how: ControlType) -> None:
    world.append(MarkerBatch(world.partition("t"), producer_id, 0, EndTxnMarker(how, 3), 1))


def commit(world: BrokerWorld, producer_id: int) -> None:
    end(world, producer_id, ControlType.COMMIT)


def abort(world: BrokerWorld, producer_id: int) -> None:
    end(world, producer_id, ControlType.ABORT)


def request(topic: str | bytes = "t", offset: int = 0, *, committed: bool = True, **options: Any) -> Any:
    made = fetch_request(topic, offset, **options)
    made.isolation_level = 1 if committed else 0
    return made


def fetch(client: Client, offset: int = 0, *, committed: bool = True, version: int = 12, **options: Any) -> Any:
    """The partition's response, at once."""
    topic = client.world.topic_id if version >= 13 else "t"  # type: ignore[attr-defined]
    answer = client.ask(request(topic, offset, committed=committed, max_wait_ms=0, **options), version)
    return answer.responses[0].partitions[0]


def committed_values(response: Any) -> list[bytes | None]:
    """What a consumer of committed records hands on, by Kafka's algorithm: an aborted transaction begins at its first offset and ends
    with its marker."""
    begins = sorted(response.aborted_transactions, key=lambda each: each.first_offset)
    aborted: set[int] = set()
    values: list[bytes | None] = []
    for header, data in batches(memoryview(bytes(response.records or b""))):
        while begins and begins[0].first_offset <= header.last_offset:
            aborted.add(begins.pop(0).producer_id)
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value for record in iterate(data, max_decompressed_bytes=1 << 20)]
    return values


@pytest.mark.parametrize("version", VERSIONS)
def test_only_what_is_decided_is_read_and_what_was_aborted_is_named(world: BrokerWorld, client: Client, version: int) -> None:
    write(world, A, 0, b"a0")
    write(world, B, 0, b"b0")
    abort(world, A)
    write(world, A, 1, b"a1")
    commit(world, A)
    response = fetch(client, version=version)
    assert (response.high_watermark, response.last_stable_offset) == (5, 1)
    assert committed_values(response) == []
    assert [(each.producer_id, each.first_offset) for each in response.aborted_transactions] == [(A, 0)]
    commit(world, B)
    response = fetch(client, version=version)
    assert response.last_stable_offset == 6
    assert committed_values(response) == [b"b0", b"a1"]
    everything = fetch(client, committed=False, version=version)
    assert everything.aborted_transactions is None
    assert everything.last_stable_offset == 6


@pytest.mark.parametrize("version", VERSIONS)
def test_without_aborted_transactions_the_list_is_empty(world: BrokerWorld, client: Client, version: int) -> None:
    client.produce("t", b"x")
    response = fetch(client, version=version)
    assert (response.aborted_transactions, response.last_stable_offset) == ([], 1)
    assert committed_values(response) == [b"x"]
    assert fetch(client, 1, version=version).aborted_transactions == []


def test_between_the_last_stable_offset_and_the_high_watermark_there_is_nothing_yet(world: BrokerWorld, client: Client) -> None:
    write(world, A, 0, b"a", b"b", b"c")
    for offset in range(4):
        response = fetch(client, offset)
        assert (response.error_code, response.records or b"", response.last_stable_offset) == (0, b"", 0)
    assert fetch(client, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_names_the_transactions_of_what_it_gives_and_not_all_that_follow(world: BrokerWorld, client: Client) -> None:
    for sequence in range(200):
        write(world, A, sequence, b"x" * 500)
        abort(world, A)
    first = fetch(client, partition_max_bytes=3000)
    assert 5 <= len(first.aborted_transactions) <= 20
    assert committed_values(first) == []
    assert len(fetch(client).aborted_transactions) == 200


# Waiting


def test_a_marker_wakes_who_waits_and_the_records_before_it_do_not(
    world: BrokerWorld, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []
    attempt = Purgatory._attempt

    def counted(delayed: Purgatory, waiting: Any, *, expired: bool) -> None:
        attempts.append(expired)
        attempt(delayed, waiting, expired=expired)

    monkeypatch.setattr(Purgatory, "_attempt", counted)
    client.send(request(), 12)
    for sequence in range(50):
        write(world, A, sequence, b"x")
    assert len(attempts) == 0
    assert client.answers() == []
    commit(world, A)
    (answer,) = client.answers()
    assert len(committed_values(answer.body.responses[0].partitions[0])) == 50
    assert attempts == [False]


def test_min_bytes_counts_what_is_decided(world: BrokerWorld, client: Client) -> None:
    client.send(request(min_bytes=2000, max_wait_ms=5000), 12)
    write(world, A, 0, b"x" * 1000)
    write(world, B, 0, b"x" * 1500)
    commit(world, A)
    world.connect().produce("t", b"x" * 5000)
    assert client.answers() == [], "only the first batch is decided"
    commit(world, B)
    (answer,) = client.answers()
    assert committed_values(answer.body.responses[0].partitions[0]) == [b"x" * 1000, b"x" * 1500, b"x" * 5000]


def test_without_transactions_an_append_wakes_as_ever(world: BrokerWorld, client: Client) -> None:
    client.send(request(min_bytes=100), 12)
    world.connect().produce("t", b"x" * 10)
    assert client.answers() == []
    world.connect().produce("t", b"x" * 100)
    (answer,) = client.answers()
    assert len(committed_values(answer.body.responses[0].partitions[0])) == 2


def test_after_its_time_a_fetch_is_answered_with_nothing_of_what_is_undecided(world: BrokerWorld, client: Client) -> None:
    client.send(request(max_wait_ms=500), 12)
    write(world, A, 0, b"x")
    world.clock.advance(0.6)
    (answer,) = client.answers()
    response = answer.body.responses[0].partitions[0]
    assert (response.records or b"", response.high_watermark, response.last_stable_offset) == (b"", 1, 0)


def test_a_transaction_that_ends_while_an_older_one_goes_on_wakes_nobody_in_vain(world: BrokerWorld, client: Client) -> None:
    write(world, A, 0, b"a")
    client.send(request(), 12)
    write(world, B, 0, b"b")
    abort(world, B)
    assert client.answers() == []
    abort(world, A)
    (answer,) = client.answers()
    assert [each.producer_id for each in answer.body.responses[0].partitions[0].aborted_transactions] == [B, A]


def test_with_visibility_flushed_a_marker_counts_once_it_is_on_disk() -> None:
    world = BrokerWorld(immediate=False)
    world.create_topic("t", visibility="flushed", flush_messages=10_000)
    client = world.connect()
    write(world, A, 0, b"a")
    commit(world, A)
    response = fetch(client)
    assert (response.high_watermark, response.last_stable_offset) == (0, 0)
    client.send(request(), 12)
    log, partition = world.partition("t").log, world.partition("t")
    job = log.flush_job()
    assert job is not None
    job.run()
    write(world, A, 1, b"b")
    log.flush_done(job)
    world.broker.replicas.synced(partition)
    (answer,) = client.answers()
    response = answer.body.responses[0].partitions[0]
    assert (response.high_watermark, response.last_stable_offset) == (2, 2)
    assert committed_values(response) == [b"a"]


# Look-ups


def look_up(client: Client, timestamp: int, *, committed: bool) -> tuple[int, int]:
    wanted = ListOffsetsRequest(-1, 1 if committed else 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])])
    found = client.ask(wanted, 7).topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset, found.timestamp


def test_offsets_are_looked_up_among_what_is_decided(world: BrokerWorld, client: Client) -> None:
    now_ms = world.clock.time_ms()
    client.produce("t", b"x")
    write(world, A, 0, b"a", at_ms=now_ms + 10)
    write(world, A, 1, b"b", at_ms=now_ms + 30)
    assert look_up(client, -1, committed=False) == (3, -1)
    assert look_up(client, -1, committed=True) == (1, -1)
    assert look_up(client, -3, committed=False) == (2, now_ms + 30)
    assert look_up(client, -3, committed=True) == (0, now_ms)
    assert look_up(client, now_ms + 5, committed=False) == (1, now_ms + 10)
    assert look_up(client, now_ms + 5, committed=True) == (-1, -1)
    assert look_up(client, -2, committed=True)[0] == 0
    commit(world, A)
    assert look_up(client, -1, committed=True) == (4, -1)
    assert look_up(client, -3, committed=True) == (2, now_ms + 30)


def test_the_largest_timestamp_is_that_of_a_record_that_can_be_seen() -> None:
    world = BrokerWorld(immediate=False)
    world.create_topic("t", visibility="flushed")
    client, partition = world.connect(), world.partition("t")
    now_ms = world.clock.time_ms()
    for number in range(40):
        write(world, A, number, b"x" * 100, at_ms=now_ms + (40 - number if number > 20 else number))
        if number == 10:
            job = partition.log.flush_job()
            assert job is not None
            job.run()
            partition.log.flush_done(job)
    commit(world, A)
    world.broker.replicas.synced(partition)
    assert look_up(client, -3, committed=False) == (10, now_ms + 10)


def test_describing_producers_shows_where_their_transactions_began(world: BrokerWorld, client: Client) -> None:
    client.produce("t", b"x")
    write(world, A, 0, b"a")
    write(world, B, 0, b"b")
    commit(world, B)
    answer = client.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0).topics[0].partitions[0]
    found = {
        each.producer_id: (each.producer_epoch, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset)
        for each in answer.active_producers
    }
    assert found == {A: (0, 0, -1, 1), B: (0, 0, 3, -1)}


def test_a_producer_that_is_not_transactional_does_not_hold_anybody_up(world: BrokerWorld, client: Client) -> None:
    client.ask(produce_request("t", batch(world, b"x", producer_id=9, producer_epoch=0, base_sequence=0)), 9)
    assert fetch(client).last_stable_offset == 1


def test_deleting_records_past_an_open_transaction_moves_the_last_stable_offset_along(world: BrokerWorld, client: Client) -> None:
    """Who waited before it is told at once that those records are gone; who reads on from there gets what is decided next."""
    write(world, A, 0, b"a")
    world.connect().produce("t", b"x")
    client.send(request(offset=0, max_wait_ms=5000), 12)
    other = world.connect()
    other.send(request(offset=2, max_wait_ms=5000), 12)
    assert client.answers() == []
    delete = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 2)])])
    assert world.connect().ask(delete, 2).topics[0].partitions[0].low_watermark == 2
    (answer,) = client.answers()
    response = answer.body.responses[0].partitions[0]
    assert (response.error_code, response.log_start_offset, response.last_stable_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2, 2)
    latest = ListOffsetsRequest(-1, 1, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])])
    assert client.ask(latest, 5).topics[0].partitions[0].offset == 2
    world.connect().produce("t", b"y")
    assert other.answers() == [], "the transaction is still open"
    abort(world, A)
    (answer,) = other.answers()
    assert committed_values(answer.body.responses[0].partitions[0]) == [b"y"]


def test_a_response_lists_a_bounded_number_of_aborted_transactions(
    world: BrokerWorld, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 100 times a partition with 10,000 of them took 0.9 s; further partitions wait for the next fetch."""
    monkeypatch.setattr("moldau.broker.handlers.fetch.operation.ABORTED_MAX", 10)
    for sequence in range(200):
        write(world, A, sequence, bytes(1000))
        abort(world, A)
    write(world, B, 0, b"last")
    commit(world, B)
    offset, values = 0, []
    for _ in range(60):
        response = fetch(client, offset)
        assert len(response.aborted_transactions) <= 20, "to the next entry of the offset index there are 4 KB more"
        values += committed_values(response)
        offset = [header for header, _ in batches(response.records)][-1].last_offset + 1
        if offset == world.partition("t").log.log_end_offset:
            break
    assert values == [b"last"]
