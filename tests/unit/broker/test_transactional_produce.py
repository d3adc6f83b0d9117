"""Produce with a transactional id: who is asked before a transaction begins in a partition, and what waits for the answer."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from moldau.broker.broker import Broker
from moldau.broker.handlers.produce.walks import DIRECT_BYTES_MAX
from moldau.broker.replicas.append_batch import MarkerBatch
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.produce import PartitionProduceData
from moldau.protocol.records.control import ControlType, EndTxnMarker
from support.broker_world import BrokerWorld, Client, batch, produce_request

ID, PRODUCER = "payments", 7
T0 = TopicPartition("t", 0)
Codes = dict[TopicPartition, ErrorCode]


class Coordinator:
    """Stands for the transaction coordinator: notes what it is asked, and answers with `code`, at once unless it `waits`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.code = ErrorCode.NONE
        self.waits = False
        self.waiting: list[Callable[[Codes], object]] = []

    def verify(self, *question: Any) -> None:
        self._note("verify", *question)

    def is_verified(self, name: str, producer_id: int, epoch: int, partition: TopicPartition) -> bool:
        self.asked.append(("verify", name, producer_id, epoch, [partition]))
        return self.code is ErrorCode.NONE and not self.waits

    def add_partitions_for_produce(self, *question: Any) -> None:
        self._note("add", *question)

    def _note(
        self, what: str, name: str, producer_id: int, epoch: int, wanted: Iterable[TopicPartition], done: Callable[[Codes], object]
    ) -> None:
        self.asked.append((what, name, producer_id, epoch, sorted(wanted)))
        if self.waits:
            self.waiting.append(done)
        else:
            done(dict.fromkeys(wanted, self.code))


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(Broker, "transactions", made)
    return made


@pytest.fixture
def world(coordinator: Coordinator) -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("t", 2)
    return made


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def records(world: BrokerWorld, sequence: int, epoch: int = 0, value: bytes = b"x", producer_id: int = PRODUCER) -> bytes:
    return batch(world, value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)


def send(client: Client, sequence: int, version: int = 12, epoch: int = 0, **options: Any) -> Any:
    """One batch of the transaction; the partition's response."""
    request = produce_request("t", records(client.world, sequence, epoch), transactional_id=ID, **options)
    return client.ask(request, version).responses[0].partition_responses[0]


def answer(client: Client, coordinator: Coordinator, codes: Codes | None = None) -> None:
    """The coordinator answers who waits, and the client's further bytes are read."""
    coordinator.waiting.pop()(codes or {})
    client.world.clock.settle()
    client.peer.push()


def end(world: BrokerWorld, how: ControlType = ControlType.COMMIT, epoch: int = 0, version: int = 1) -> None:
    """The coordinator's marker."""
    world.append(MarkerBatch(world.partition("t"), PRODUCER, epoch, EndTxnMarker(how, 0), version))


@pytest.mark.parametrize(("version", "what"), [(3, "verify"), (8, "verify"), (11, "verify"), (12, "add")])
def test_the_coordinator_is_asked_once_for_each_partition_of_a_transaction(
    world: BrokerWorld, client: Client, coordinator: Coordinator, version: int, what: str
) -> None:
    for sequence in range(4):
        response = send(client, sequence, version)
        assert (response.error_code, response.base_offset) == (0, sequence)
    assert coordinator.asked == [(what, ID, PRODUCER, 0, [T0])]
    assert world.partition("t").log.last_stable_offset == 0
    send(client, 0, version, partition=1)
    assert coordinator.asked[1:] == [(what, ID, PRODUCER, 0, [TopicPartition("t", 1)])]
    end(world)
    assert send(client, 4, version).base_offset == 5
    assert len(coordinator.asked) == 3


def test_one_question_stands_for_all_partitions_of_a_request(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    request = produce_request("t", records(world, 0), transactional_id=ID)
    request.topic_data[0].partition_data.append(PartitionProduceData(1, records(world, 0)))
    answers = client.ask(request, 12).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, 0]
    assert coordinator.asked == [("add", ID, PRODUCER, 0, [T0, TopicPartition("t", 1)])]


def test_a_batch_that_is_not_transactional_needs_no_leave(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    request = produce_request("t", batch(world, b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=0), transactional_id=ID)
    assert client.ask(request, 12).responses[0].partition_responses[0].error_code == 0
    assert coordinator.asked == []


def test_without_a_transactional_id_there_are_no_transactions(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    answer = client.ask(produce_request("t", records(world, 0)), 12).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert coordinator.asked == []


def test_a_request_speaks_for_one_producer(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    request = produce_request("t", records(world, 0), transactional_id=ID)
    request.topic_data[0].partition_data.append(PartitionProduceData(1, records(world, 0, producer_id=PRODUCER + 1)))
    answers = client.ask(request, 12).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert coordinator.asked == []


A_RETRY = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("code", "version_10", "version_11", "version_12"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, A_RETRY, A_RETRY, A_RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, A_RETRY, A_RETRY, A_RETRY),
        (ErrorCode.NOT_COORDINATOR, A_RETRY, A_RETRY, A_RETRY),
        (ErrorCode.CONCURRENT_TRANSACTIONS, A_RETRY, A_RETRY, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
        (ErrorCode.INVALID_PRODUCER_EPOCH, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, *[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3),
    ],
)
def test_what_the_coordinator_says_as_producers_know_it(
    world: BrokerWorld,
    client: Client,
    coordinator: Coordinator,
    code: ErrorCode,
    version_10: ErrorCode,
    version_11: ErrorCode,
    version_12: ErrorCode,
) -> None:
    coordinator.code = code
    for version, told in ((3, version_10), (10, version_10), (11, version_11), (12, version_12)):
        assert send(client, 0, version).error_code == told, version
    assert world.partition("t").log.log_end_offset == 0


def test_an_error_of_one_partition_leaves_the_others_alone(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    request = produce_request("t", records(world, 0), transactional_id=ID)
    request.topic_data[0].partition_data += [PartitionProduceData(1, records(world, 0)), PartitionProduceData(2, records(world, 0))]
    coordinator.waits = True
    client.send(request, 12)
    answer(client, coordinator, {T0: ErrorCode.TRANSACTION_ABORTABLE, TopicPartition("t", 1): ErrorCode.NONE})
    (answered,) = client.answers()
    assert [each.error_code for each in answered.body.responses[0].partition_responses] == [
        ErrorCode.TRANSACTION_ABORTABLE,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_no_batch_overtakes_one_that_the_coordinator_was_not_there_for(client: Client, coordinator: Coordinator) -> None:
    coordinator.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert send(client, 0, 11).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.code = ErrorCode.NONE
    assert send(client, 1, 11).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(client, sequence, 11).error_code for sequence in (0, 1)] == [0, 0]


def test_under_version_2_a_producer_of_which_nothing_is_known_starts_at_0(client: Client) -> None:
    assert send(client, 5, 12).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(client, 5, 11).error_code == 0


def test_an_old_epoch_is_fenced_before_the_coordinator_is_asked(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    send(client, 0, epoch=3)
    end(world, epoch=4, version=2)
    assert send(client, 1, epoch=3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(coordinator.asked) == 1


# When the answer comes later


def test_what_waits_for_the_coordinator_holds_the_requests_behind_it(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    """They come in one read, are answered in order, and their batches lie in the log in that order."""
    coordinator.waits = True
    frames = [
        client.frame(produce_request("t", batch(world, b"before")), 9),
        *[
            client.frame(produce_request("t", records(world, sequence, value=b"%d" % sequence), transactional_id=ID), 12)
            for sequence in range(3)
        ],
        client.frame(produce_request("t", batch(world, b"after")), 9),
    ]
    client.peer.send(b"".join(frames))
    assert [answer.body.responses[0].partition_responses[0].base_offset for answer in client.answers()] == [0]
    client.send(produce_request("t", batch(world, b"later")), 9)
    assert client.answers() == []
    assert world.connect().values("t") == [b"before"]
    assert len(coordinator.waiting) == 1
    world.connect().produce("t", b"overwrites the receive buffer" * 1000, partition=1)
    answer(client, coordinator)
    assert [answer.body.responses[0].partition_responses[0].base_offset for answer in client.answers()] == [1, 2, 3, 4, 5]
    assert client.values("t") == [b"before", b"0", b"1", b"2", b"after", b"later"]
    assert len(coordinator.asked) == 1


def test_other_connections_go_on_meanwhile(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    coordinator.waits = True
    client.send(produce_request("t", records(world, 0), transactional_id=ID), 12)
    assert world.connect().produce("t", b"x").base_offset == 0
    answer(client, coordinator)
    assert client.answers()[0].body.responses[0].partition_responses[0].base_offset == 1


@pytest.mark.parametrize(
    ("version", "meanwhile", "code"),
    [
        (11, "abort", ErrorCode.INVALID_TXN_STATE),
        (11, "fence", ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, "fence", ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, "delete", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_answer_that_comes_too_late_lets_nothing_in(
    world: BrokerWorld, client: Client, coordinator: Coordinator, version: int, meanwhile: str, code: ErrorCode
) -> None:
    """The transaction is aborted by its time-out, the producer replaced, or the topic deleted while the coordinator's log is synced."""
    coordinator.waits = True
    client.send(produce_request("t", records(world, 0), transactional_id=ID), version)
    log = world.partition("t").log
    if meanwhile == "delete":
        world.delete_topics("t")
    else:
        end(world, ControlType.ABORT, epoch=0 if meanwhile == "abort" else 1)
    end_offset = log.log_end_offset
    answer(client, coordinator)
    (answered,) = client.answers()
    assert answered.body.responses[0].partition_responses[0].error_code == code
    assert log.log_end_offset == end_offset


def test_a_client_that_goes_away_takes_its_batch_along(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    coordinator.waits = True
    client.send(produce_request("t", records(world, 0), transactional_id=ID), 12)
    client.peer.disconnect()
    world.clock.settle()
    answer(client, coordinator)
    assert world.partition("t").log.log_end_offset == 0


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("topic", ["t", "walked"])
def test_while_the_coordinator_is_asked_the_memory_of_the_batches_counts(
    world: BrokerWorld, client: Client, coordinator: Coordinator, lost: bool, topic: str
) -> None:
    world.create_topic("walked", cleanup_policy="compact")
    coordinator.waits = True
    sent = batch(world, bytes(100_000), key=b"k", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
    client.send(produce_request(topic, sent, transactional_id=ID), 12)
    world.clock.settle()
    client.peer.push()
    world.clock.settle()
    memory = world.broker.request_memory
    assert (len(coordinator.waiting), memory.held) == (1, len(sent))
    if lost:
        client.peer.disconnect()
        world.clock.settle()
        assert memory.held == len(sent)
    answer(client, coordinator)
    assert memory.held == 0
    assert len(client.answers()) == (not lost)


def test_a_broker_that_stops_answers_what_waits_first(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    coordinator.waits = True
    client.send(produce_request("t", records(world, 0), transactional_id=ID), 12)
    world.broker.finish_connections()
    assert not client.closed
    answer(client, coordinator)
    assert client.answers()[0].body.responses[0].partition_responses[0].error_code == 0
    assert client.closed


@pytest.mark.parametrize("waits", [False, True])
def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(
    world: BrokerWorld, client: Client, coordinator: Coordinator, waits: bool
) -> None:
    coordinator.waits = waits
    for sequence in range(2):
        client.send(produce_request("t", records(world, sequence), transactional_id=ID, acks=0), 12, answered=False)
    if waits:
        answer(client, coordinator)
    assert client.answers() == []
    assert world.partition("t").log.log_end_offset == 2
    end(world)
    coordinator.code = ErrorCode.TRANSACTION_ABORTABLE
    client.send(produce_request("t", records(world, 2), transactional_id=ID, acks=0), 12, answered=False)
    if waits:
        answer(client, coordinator, {T0: ErrorCode.TRANSACTION_ABORTABLE})
    assert client.closed


def test_a_full_disk_is_told_to_who_waited(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    coordinator.waits = True
    client.send(produce_request("t", records(world, 0), transactional_id=ID), 12)
    world.disk.capacity = world.disk.used()
    answer(client, coordinator)
    assert client.answers()[0].body.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.capacity = None
    assert not world.partition("t").log.has_ongoing_transaction(PRODUCER)
    coordinator.waits = False
    assert send(client, 0).base_offset == 0


def test_with_flush_messages_the_acknowledgement_waits_for_the_disk_too(coordinator: Coordinator) -> None:
    world = BrokerWorld(immediate=False)
    world.create_topic("t", flush_messages=1)
    client = world.connect()
    coordinator.waits = True
    client.send(produce_request("t", records(world, 0), transactional_id=ID), 12)
    answer(client, coordinator)
    assert client.answers() == []
    world.background.run_all()
    world.clock.settle()
    assert client.answers()[0].body.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("waits", [False, True])
def test_batches_that_have_to_be_looked_into_are_before_the_coordinator_is_asked(
    world: BrokerWorld, client: Client, coordinator: Coordinator, *, waits: bool
) -> None:
    """Elsewhere, while the connection is held; the others of the request wait with them, out of the receive buffer."""
    world.create_topic("walked", produce_validation="records")
    world.compute.immediate = False
    coordinator.waits = waits
    large = b"v" * (2 * DIRECT_BYTES_MAX)
    request = produce_request("walked", records(world, 0, value=large), transactional_id=ID)
    request.topic_data += produce_request("t", records(world, 0)).topic_data
    client.send(request, 12)
    client.send(produce_request("t", records(world, 1), transactional_id=ID), 12)
    other = world.connect()
    for _ in range(5):
        other.produce("t", b"?" * 100_000, partition=1)
    assert coordinator.asked == []
    assert client.answers() == []
    world.compute.run_all()
    world.clock.settle()
    assert [asked[4] for asked in coordinator.asked[:1]] == [[T0, TopicPartition("walked", 0)]]
    if waits:
        answer(client, coordinator)
    client.peer.push()
    world.clock.settle()
    first, second = client.answers()
    assert [each.partition_responses[0].error_code for each in first.body.responses] == [0, 0]
    assert second.body.responses[0].partition_responses[0].base_offset == 1
    assert client.values("walked", partition_max_bytes=1 << 20) == [large]


def test_a_record_that_breaks_a_rule_is_named_and_nobody_is_asked(world: BrokerWorld, client: Client, coordinator: Coordinator) -> None:
    world.create_topic("compacted", cleanup_policy="compact")
    world.compute.immediate = False
    for value in (b"small", b"v" * (2 * DIRECT_BYTES_MAX)):
        client.send(produce_request("compacted", records(world, 0, value=value), transactional_id=ID), 12)
        world.compute.run_all()
        world.clock.settle()
        (given,) = client.answers()
        refused = given.body.responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in refused.record_errors] == [0]
    assert coordinator.asked == []
