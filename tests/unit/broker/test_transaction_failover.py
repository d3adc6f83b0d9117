"""Transactions over several brokers: markers reach leaders wherever they are, and the next coordinator completes what was decided, once.

Q2 to Q4, T2 to T4: defects that other systems had, see docs/decisions/0024-cluster.md.
"""

from typing import Any

import pytest

from moldau.broker.peers.connection import PeerCallError
from moldau.broker.replicas.partition_events import SessionDoubted
from moldau.broker.transactions.marker_router import MarkerRouter
from moldau.broker.transactions.records import decode_value
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.records.batch import batches, iterate
from support.cluster_clients import SETTINGS, TRANSACTION, ClusterClient, RoutedAsk, coordinator_of, partition_of
from support.cluster_world import ClientCall, ClusterWorld
from support.group_requests import fetch, name
from support.transactional_producer import NEWEST, OLDER, RawProducer, Versions, read_committed

STATE = "__transaction_state"
ID = "app"
PARTITIONS = 3
PLACES = [TopicPartition("t", index) for index in range(PARTITIONS)]
both_protocols = pytest.mark.parametrize("versions", [NEWEST, OLDER], ids=["newest", "older"])


def make_cluster(**settings: object) -> ClusterWorld:
    cluster = ClusterWorld(1, 2, 3, **SETTINGS, **settings)
    cluster.create_topic("t", PARTITIONS)
    cluster.settle()
    return cluster


def make_producer(cluster: ClusterWorld, versions: Versions = NEWEST, timeout_ms: int = 60_000) -> RawProducer:
    producer = RawProducer(RoutedAsk(cluster, ID), ID, versions, now_ms=cluster.clock.time_ms)
    assert name(producer.find()) == "NONE"
    assert name(producer.init(timeout_ms)) == "NONE"
    return producer


def send_everywhere(producer: RawProducer, value: bytes) -> None:
    """A record in each partition, whose leaders are the three brokers."""
    for index in range(PARTITIONS):
        assert name(producer.send("t", value, partition=index)) == "NONE"


def committed(cluster: ClusterWorld) -> list[list[bytes | None]]:
    """What readers of committed records get of each partition."""
    return [read_committed(RoutedAsk(cluster, ID), "t", index) for index in range(PARTITIONS)]


def markers(cluster: ClusterWorld, place: TopicPartition) -> list[int]:
    """The epochs of the coordinators that wrote the markers in a partition, as its leader has them."""
    leader = cluster.partition(place.topic, place.partition).leader
    return [marker for header, marker in logged(cluster, leader, place) if header.is_control]


def logged(cluster: ClusterWorld, broker_id: int, place: TopicPartition) -> list[tuple[Any, Any]]:
    """The batches of a broker's log: of each its header, and the coordinator's epoch if it is a marker, otherwise its records."""
    log = cluster.broker(broker_id).replicas.hosted[place].log
    found: list[tuple[Any, Any]] = []
    offset = log.start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        assert read.records is not None
        data = memoryview(read.records.file.pread(read.records.length, read.records.position))
        read.records.release()
        for header, batch in batches(data):
            records = list(iterate(batch, max_decompressed_bytes=1 << 20))
            value = records[0].value
            found.append((header, int.from_bytes(value[2:6], "big") if header.is_control and value else records))
            offset = header.last_offset + 1
    return found


def stored(cluster: ClusterWorld, broker_id: int) -> list[str]:
    """The states of the transactional id in the log of a broker, oldest first."""
    place = TopicPartition(STATE, partition_of(cluster, ID, TRANSACTION))
    records = [record for _, some in logged(cluster, broker_id, place) for record in some]
    return [decode_value(record.value).state.label for record in records if record.value is not None]


def state(cluster: ClusterWorld) -> str:
    """Where the coordinator of the moment has it."""
    found = cluster.ask(coordinator_of(cluster, ID, TRANSACTION), ListTransactionsRequest(), 0).transaction_states
    (only,) = [str(each.transaction_state) for each in found if each.transactional_id == ID]
    return only


def stable_offsets(cluster: ClusterWorld, place: TopicPartition) -> list[int]:
    """The last stable offsets of all replicas."""
    return [process.broker.replicas.hosted[place].log.last_stable_offset for process in cluster.processes.values()]


def hold_markers(monkeypatch: pytest.MonkeyPatch, broker_id: int) -> None:
    """Keep a broker from writing any marker of its transactions."""
    write = MarkerRouter.write

    def held(self: MarkerRouter, some: Any, done: Any) -> None:
        if self._broker.broker_id != broker_id:
            write(self, some, done)

    monkeypatch.setattr(MarkerRouter, "write", held)


def send_end(cluster: ClusterWorld, producer: RawProducer, *, is_committed: bool = True) -> ClientCall:
    """EndTxn, without waiting for its answer."""
    calls: list[ClientCall] = []

    def ask(request: Any, version: int) -> Any:
        calls.append(cluster.send(coordinator_of(cluster, ID, TRANSACTION), request, version))
        raise EOFError

    routed, producer.ask = producer.ask, ask
    with pytest.raises(EOFError):
        producer.end(committed=is_committed)
    producer.ask = routed
    return calls[0]


# Without faults


@both_protocols
def test_a_transaction_over_three_brokers_is_seen_as_a_whole_when_it_has_ended(versions: Versions) -> None:
    cluster = make_cluster()
    assert sorted(cluster.partition("t", index).leader for index in range(PARTITIONS)) == [1, 2, 3]
    producer = make_producer(cluster, versions)
    for is_committed in (True, False, True):
        before = committed(cluster)
        send_everywhere(producer, b"yes" if is_committed else b"no")
        assert name(producer.commit_offset("g", "t", 5)) == "NONE"
        assert committed(cluster) == before
        assert name(producer.end(committed=is_committed)) == "NONE"
        cluster.settle()
        assert state(cluster) == ("CompleteCommit" if is_committed else "CompleteAbort")
    assert committed(cluster) == [[b"yes", b"yes"]] * PARTITIONS
    cluster.advance(1.0)
    for place in PLACES:
        assert stable_offsets(cluster, place) == [6, 6, 6]
        assert len(markers(cluster, place)) == 3
    group = coordinator_of(cluster, "g")
    assert fetch(ClusterClient(cluster, group), "g", [("t", 0)], version=7, stable=True) == {("t", 0): 5}


def test_a_transaction_that_is_open_holds_back_readers_on_every_replica() -> None:
    cluster = make_cluster()
    producer = make_producer(cluster)
    send_everywhere(producer, b"a")
    cluster.advance(1.0)
    for place in PLACES:
        assert stable_offsets(cluster, place) == [0, 0, 0]
        leader = cluster.partition("t", place.partition).leader
        assert cluster.broker(leader).replicas.hosted[place].log.high_watermark == 1


def test_a_producer_that_was_replaced_is_refused_by_leaders_that_do_not_coordinate_it() -> None:
    for versions in (NEWEST, OLDER):
        cluster = make_cluster()
        old = make_producer(cluster, versions)
        make_producer(cluster, versions)
        for index in range(PARTITIONS):
            assert name(old.produce("t", b"a", partition=index)) in ("INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE")
        assert committed(cluster) == [[]] * PARTITIONS


def test_producer_ids_of_all_brokers_differ() -> None:
    cluster = make_cluster()
    given = [cluster.ask(1 + number % 3, InitProducerIdRequest(None, 60_000), 4).producer_id for number in range(9)]
    cluster.stop(2)
    cluster.start(2)
    cluster.until(cluster.agrees)
    given += [cluster.ask(each, InitProducerIdRequest(None, 60_000), 4).producer_id for each in (1, 2, 3)]
    assert min(given) >= 0
    assert len(set(given)) == len(given)


def test_administrators_are_answered_by_the_coordinator_that_they_reach() -> None:
    cluster = make_cluster()
    send_everywhere(make_producer(cluster), b"a")
    coordinator = coordinator_of(cluster, ID, TRANSACTION)
    for each in (1, 2, 3):
        (described,) = cluster.ask(each, DescribeTransactionsRequest([ID]), 0).transaction_states
        listed = [found.transactional_id for found in cluster.ask(each, ListTransactionsRequest(), 0).transaction_states]
        expected = ("NONE", "Ongoing", [ID]) if each == coordinator else ("NOT_COORDINATOR", "", [])
        assert (name(described.error_code), described.transaction_state, listed) == expected


@both_protocols
def test_a_batch_outside_of_the_transaction_is_refused_where_the_coordinator_is_elsewhere(versions: Versions) -> None:
    cluster = make_cluster()
    producer = make_producer(cluster, versions)
    for index in range(PARTITIONS):
        if versions.adds_itself:
            assert name(producer.produce("t", b"a", partition=index)) == "TRANSACTION_ABORTABLE", "it was not added"
        else:
            assert name(producer.produce("t", b"a", partition=index)) == "NONE", "the leader has had it added"
    found = cluster.ask(coordinator_of(cluster, ID, TRANSACTION), DescribeTransactionsRequest([ID]), 0).transaction_states[0]
    assert [topic.partitions for topic in found.topics] == ([] if versions.adds_itself else [[0, 1, 2]])


def test_offsets_of_a_transaction_count_only_when_followers_have_its_marker() -> None:
    """Otherwise a reader could see the offset go back when another broker leads."""
    cluster = make_cluster()
    producer = make_producer(cluster)
    assert name(producer.commit_offset("g", "t", 5)) == "NONE"
    cluster.settle()
    group = coordinator_of(cluster, "g")
    place = TopicPartition("__consumer_offsets", partition_of(cluster, "g"))
    hosted = cluster.broker(group).replicas.hosted[place]
    hosted.machine.step(SessionDoubted(True))
    send_end(cluster, producer)
    cluster.until(lambda: any(header.is_control for header, _ in logged(cluster, group, place)))
    cluster.advance(1.0)
    at = ClusterClient(cluster, group)
    assert fetch(at, "g", [("t", 0)], version=7, stable=True) == {("t", 0): "UNSTABLE_OFFSET_COMMIT"}
    cluster.broker(group).replicas.step(hosted, SessionDoubted(False))
    cluster.until(lambda: state(cluster) == "CompleteCommit")
    assert fetch(at, "g", [("t", 0)], version=7, stable=True) == {("t", 0): 5}


# The coordinator ends


@both_protocols
def test_q3_t2_what_was_decided_is_completed_by_the_next_coordinator_exactly_once(
    monkeypatch: pytest.MonkeyPatch, versions: Versions
) -> None:
    cluster = make_cluster()
    producer = make_producer(cluster, versions)
    send_everywhere(producer, b"a")
    first = coordinator_of(cluster, ID, TRANSACTION)
    hold_markers(monkeypatch, first)
    send_end(cluster, producer)
    cluster.until(lambda: stored(cluster, first)[-1] == "PrepareCommit")
    cluster.advance(0.6)
    assert [len(markers(cluster, place)) for place in PLACES] == [0, 0, 0]
    cluster.kill(first)
    second = coordinator_of(cluster, ID, TRANSACTION)
    cluster.until(lambda: state(cluster) == "CompleteCommit")
    cluster.advance(3.0)
    assert committed(cluster) == [[b"a"]] * PARTITIONS
    assert stored(cluster, second).count("CompleteCommit") == 1
    assert [len(markers(cluster, place)) for place in PLACES] == [1, 1, 1]
    producer = make_producer(cluster, versions)
    send_everywhere(producer, b"b")
    assert name(producer.end(committed=True)) == "NONE"
    cluster.settle()
    assert committed(cluster) == [[b"a", b"b"]] * PARTITIONS


@both_protocols
def test_q2_markers_that_were_written_are_written_again_by_the_next_coordinator_without_harm(
    monkeypatch: pytest.MonkeyPatch, versions: Versions
) -> None:
    cluster = make_cluster()
    producer = make_producer(cluster, versions)
    send_everywhere(producer, b"a")
    first = coordinator_of(cluster, ID, TRANSACTION)
    write = MarkerRouter.write
    monkeypatch.setattr(MarkerRouter, "write", lambda self, some, done: write(self, some, lambda _results: None))
    send_end(cluster, producer)
    cluster.until(lambda: all(len(markers(cluster, place)) == 1 for place in PLACES))
    monkeypatch.setattr(MarkerRouter, "write", write)
    cluster.advance(0.6)
    cluster.kill(first)
    cluster.until(lambda: state(cluster) == "CompleteCommit")
    cluster.advance(1.0)
    for place in PLACES:
        before, after = markers(cluster, place)
        assert after > before, "the epoch of the coordinator"
    assert committed(cluster) == [[b"a"]] * PARTITIONS


@both_protocols
def test_q2_a_marker_whose_answer_is_lost_is_repeated_with_the_same_epochs_and_completes(
    monkeypatch: pytest.MonkeyPatch, versions: Versions
) -> None:
    cluster = make_cluster()
    producer = make_producer(cluster, versions)
    send_everywhere(producer, b"a")
    answered, lost = MarkerRouter._answered, list[Any]()

    def lose_first(self: MarkerRouter, queue: Any, parts: Any, outcome: Any) -> None:
        if len(lost) < 2:
            lost.append(outcome)
            outcome = PeerCallError(("b", 1), "lost", was_sent=True)
        answered(self, queue, parts, outcome)

    monkeypatch.setattr(MarkerRouter, "_answered", lose_first)
    assert name(producer.end(committed=True)) == "NONE"
    cluster.until(lambda: state(cluster) == "CompleteCommit")
    assert len(lost) == 2
    coordinator = coordinator_of(cluster, ID, TRANSACTION)
    for place in PLACES:
        epochs = markers(cluster, place)
        assert len(epochs) == (1 if cluster.partition("t", place.partition).leader == coordinator else 2)
        assert len(dict.fromkeys(epochs)) == 1
    assert stored(cluster, coordinator).count("CompleteCommit") == 1
    assert committed(cluster) == [[b"a"]] * PARTITIONS


def test_markers_follow_leaders_that_move_and_wait_for_those_that_are_missing() -> None:
    cluster = make_cluster()
    producer = make_producer(cluster)
    send_everywhere(producer, b"a")
    coordinator = coordinator_of(cluster, ID, TRANSACTION)
    (index,) = [index for index in range(PARTITIONS) if cluster.partition("t", index).leader not in (coordinator, cluster.controller_id)][
        :1
    ]
    cluster.processes[cluster.partition("t", index).leader].hang()
    call = send_end(cluster, producer)
    cluster.advance(0.2)
    cluster.kill(cluster.partition("t", index).leader)
    cluster.until(lambda: state(cluster) == "CompleteCommit")
    assert call.response is not None
    assert name(call.response.error_code) == "NONE"
    assert committed(cluster) == [[b"a"]] * PARTITIONS


def test_t4_an_open_transaction_whose_producer_and_coordinator_end_is_aborted_by_the_next_coordinator() -> None:
    cluster = make_cluster(transaction_abort_timed_out_transaction_cleanup_interval_ms=1000)
    producer = make_producer(cluster, timeout_ms=3000)
    send_everywhere(producer, b"lost")
    first = coordinator_of(cluster, ID, TRANSACTION)
    cluster.kill(first)
    coordinator_of(cluster, ID, TRANSACTION)
    cluster.advance(5.0)
    assert state(cluster) == "CompleteAbort"
    cluster.advance(1.0)
    for place in PLACES:
        assert stable_offsets(cluster, place) == [2, 2], "on followers too"
    assert committed(cluster) == [[]] * PARTITIONS


def test_t3_offsets_of_a_transaction_are_unstable_at_the_next_group_coordinator_until_it_has_ended() -> None:
    """So no member reads the offset before the transaction, and processes again what it has processed."""
    cluster = make_cluster()
    producer = make_producer(cluster)
    assert name(producer.commit_offset("g", "t", 5)) == "NONE"
    send_everywhere(producer, b"a")
    group, coordinator = coordinator_of(cluster, "g"), coordinator_of(cluster, ID, TRANSACTION)
    cluster.advance(0.6)
    cluster.kill(group)
    at = ClusterClient(cluster, coordinator_of(cluster, "g"))
    assert fetch(at, "g", [("t", 0)], version=7, stable=True) == {("t", 0): "UNSTABLE_OFFSET_COMMIT"}
    assert coordinator != group or coordinator_of(cluster, ID, TRANSACTION)
    assert name(producer.end(committed=True)) == "NONE"
    cluster.until(lambda: state(cluster) == "CompleteCommit")
    assert fetch(at, "g", [("t", 0)], version=7, stable=True) == {("t", 0): 5}
    assert committed(cluster) == [[b"a"]] * PARTITIONS


# Who may write markers


def marker_request(cluster: ClusterWorld, producer: RawProducer, sequence: int, *, epochs_back: int = 0) -> WriteTxnMarkersRequest:
    """What the coordinator of the producer sends."""
    index = partition_of(cluster, ID, TRANSACTION)
    info = cluster.partition(STATE, index)
    topics = [WritableTxnMarkerTopic("t", [0])]
    marker = WritableTxnMarker(producer.producer_id, producer.epoch, True, topics, info.leader_epoch - epochs_back, 0, index)
    return WriteTxnMarkersRequest([marker], info.leader, 1 << 40, sequence)


def write(cluster: ClusterWorld, request: WriteTxnMarkersRequest) -> str:
    (answer,) = cluster.ask(cluster.partition("t").leader, request, 2).markers
    return name(answer.topics[0].partitions[0].error_code)


def test_q4_a_marker_that_comes_late_does_not_end_the_transaction_after_it() -> None:
    """In the older protocol the two have the same producer id and epoch."""
    cluster = make_cluster()
    producer = make_producer(cluster, OLDER)
    send_everywhere(producer, b"a")
    late, later = marker_request(cluster, producer, 1), marker_request(cluster, producer, 2)
    assert write(cluster, later) == "NONE"
    assert name(producer.end(committed=True)) == "NONE"
    cluster.settle()
    send_everywhere(producer, b"b")
    assert write(cluster, late) == "REQUEST_TIMED_OUT"
    assert committed(cluster) == [[b"a"]] * PARTITIONS
    assert name(producer.end(committed=False)) == "NONE"
    cluster.settle()
    assert committed(cluster) == [[b"a"]] * PARTITIONS


def test_an_earlier_coordinator_is_fenced_and_so_is_a_broker_that_does_not_live() -> None:
    cluster = make_cluster()
    producer = make_producer(cluster, OLDER)
    send_everywhere(producer, b"a")
    assert write(cluster, marker_request(cluster, producer, 1, epochs_back=1)) == "TRANSACTION_COORDINATOR_FENCED"
    stranger = marker_request(cluster, producer, 2)
    stranger.sender_id = 9
    assert write(cluster, stranger) == "REQUEST_TIMED_OUT"
    assert committed(cluster) == [[]] * PARTITIONS
    assert state(cluster) == "Ongoing"
    assert write(cluster, marker_request(cluster, producer, 3, epochs_back=-1)) == "NONE", "it was elected since"
