"""Transactions over the wire, in the versions of new, older and oldest clients, against a whole broker on fakes."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.replicas.append_batch import MarkerBatch
from moldau.model.errors import ErrorCode
from moldau.protocol.messages import transaction_admin as describing
from moldau.protocol.messages import transaction_admin as listing
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from moldau.protocol.records.control import ControlType, EndTxnMarker
from support.broker_world import BrokerWorld, Client, fetch_request
from support.transactional_producer import NEWEST, OLDER, OLDEST, RawProducer, Versions, read_committed

NONE = ErrorCode.NONE
EVERY = pytest.mark.parametrize("versions", [NEWEST, OLDER, OLDEST], ids=["newest", "older", "oldest"])
READ_COMMITTED = 1


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld(transaction_state_log_num_partitions=3, offsets_topic_num_partitions=3)
    made.create_topic("t", 2)
    return made


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


@pytest.fixture
def make(world: BrokerWorld, client: Client) -> Callable[..., RawProducer]:
    def producer(transactional_id: str = "app", versions: Versions = NEWEST) -> RawProducer:
        made = RawProducer(client.ask, transactional_id, versions, now_ms=world.clock.time_ms)
        assert made.find() is NONE
        world.clock.settle()
        return made

    return producer


def stretch(client: Client, topic: str, partition: int = 0) -> Any:
    """What readers of committed records are sent of a partition."""
    request = fetch_request(topic, 0, partition=partition, max_wait_ms=0)
    request.isolation_level = READ_COMMITTED
    return client.ask(request, 12).responses[0].partitions[0]


Maker = Callable[..., RawProducer]


@EVERY
def test_a_transaction_is_seen_when_it_is_committed(client: Client, make: Maker, versions: Versions) -> None:
    producer = make(versions=versions)
    assert producer.init() is NONE
    for value in (b"a", b"b"):
        assert producer.send("t", value) is NONE
    assert producer.send("t", b"c", partition=1) is NONE
    assert read_committed(client.ask, "t") == []
    assert client.values("t") == [b"a", b"b"]
    assert producer.end(committed=True) is NONE
    assert read_committed(client.ask, "t") == [b"a", b"b"]
    assert read_committed(client.ask, "t", 1) == [b"c"]


@EVERY
def test_an_aborted_transaction_is_named_to_readers(client: Client, make: Maker, versions: Versions) -> None:
    producer = make(versions=versions)
    producer.init()
    producer.send("t", b"a")
    assert producer.end(committed=False) is NONE
    (aborted,) = stretch(client, "t").aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (producer.producer_id, 0)
    assert read_committed(client.ask, "t") == []


@EVERY
def test_offsets_are_committed_with_the_transaction(client: Client, make: Maker, versions: Versions) -> None:
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 4)
    client.world.clock.settle()

    def offset() -> int:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("group", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])]
        )
        return int(client.ask(request, 8).groups[0].topics[0].partitions[0].committed_offset)

    producer = make(versions=versions)
    producer.init()
    for number, (commits, expected) in enumerate([(True, 10), (False, 10), (True, 30)]):
        assert producer.send("t", b"x") is NONE
        assert producer.commit_offset("group", "t", 10 * (number + 1)) is NONE
        assert producer.end(committed=commits) is NONE
        assert offset() == expected


@pytest.mark.parametrize(
    ("versions", "code"),
    [(NEWEST, ErrorCode.PRODUCER_FENCED), (OLDER, ErrorCode.PRODUCER_FENCED), (OLDEST, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_a_replaced_producer_is_fenced_in_words_that_it_knows(make: Maker, versions: Versions, code: ErrorCode) -> None:
    first = make(versions=versions)
    first.init()
    first.send("t", b"a")
    second = make(versions=versions)
    assert second.init() is NONE
    assert second.producer_id == first.producer_id
    assert first.produce("t", b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end(committed=True) is code
    if versions.adds_itself:
        assert first.add("t", 1) is code
        assert first.commit_offset("group", "t", 1) is code


def test_init_says_fenced_in_words_that_a_producer_knows(make: Maker) -> None:
    for version, code in ((4, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.INVALID_PRODUCER_EPOCH)):
        producer = make(versions=Versions(version, 3, 9, 3, 3, adds_itself=True))
        producer.init()
        make().init()
        assert producer.init(go_on=True) is code


def test_an_id_without_its_epoch_is_nonsense(client: Client) -> None:
    for producer_id, epoch in ((5, -1), (-1, 5)):
        for transactional_id in (None, "app"):
            answer = client.ask(InitProducerIdRequest(transactional_id, 1000, producer_id, epoch), 3)
            assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_before_anybody_asked_for_a_coordinator_there_is_none(world: BrokerWorld, client: Client) -> None:
    assert client.ask(InitProducerIdRequest("app", 1000), 4).error_code == ErrorCode.NOT_COORDINATOR
    assert client.ask(InitProducerIdRequest("", 1000), 4).error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(EndTxnRequest("app", 0, 0, committed=True), 5).error_code == ErrorCode.NOT_COORDINATOR
    assert client.ask(listing.ListTransactionsRequest(), 2).transaction_states == []
    assert "__transaction_state" not in world.broker.metadata.topics


def test_the_internal_topic_is_made_as_configured(world: BrokerWorld, make: Maker) -> None:
    make()
    assert len(world.broker.metadata.topics["__transaction_state"].partitions) == 3
    assert world.broker.metadata.topic_config("__transaction_state")["cleanup.policy"] == "compact"


def test_all_partitions_are_added_or_none(client: Client, make: Maker) -> None:
    producer = make(versions=OLDER)
    producer.init()
    topics = [
        AddPartitionsToTxnTopic("t", [0, 9]),
        AddPartitionsToTxnTopic("nowhere", [0]),
        AddPartitionsToTxnTopic("__consumer_offsets", [0]),
    ]
    request = AddPartitionsToTxnRequest([], "app", producer.producer_id, producer.epoch, topics)
    answer = client.ask(request, 3)
    codes = {
        (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    assert codes == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("__consumer_offsets", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert producer.end(committed=True) is ErrorCode.INVALID_TXN_STATE


def test_brokers_add_and_verify_for_many_producers_at_once(client: Client, make: Maker) -> None:
    producers = [make(f"app-{number}") for number in range(3)]
    for producer in producers:
        producer.init()
    producers[1].send("t", b"x")

    def transaction(number: int, *, verify_only: bool, epoch: int = 0) -> AddPartitionsToTxnTransaction:
        producer = producers[number]
        topics = [AddPartitionsToTxnTopic("t", [0, 1])]
        return AddPartitionsToTxnTransaction(producer.transactional_id, producer.producer_id, epoch, verify_only, topics)

    wanted = [transaction(0, verify_only=False), transaction(1, verify_only=True), transaction(2, verify_only=False, epoch=7)]
    for version in (4, 5):
        answer = client.ask(AddPartitionsToTxnRequest(wanted), version)
        codes = {
            each.transactional_id: [ErrorCode(part.partition_error_code).name for part in each.topic_results[0].results_by_partition]
            for each in answer.results_by_transaction
        }
        assert codes == {
            "app-0": ["NONE", "NONE"],
            "app-1": ["NONE", "TRANSACTION_ABORTABLE"],
            "app-2": ["PRODUCER_FENCED", "PRODUCER_FENCED"],
        }
    assert client.ask(AddPartitionsToTxnRequest([]), 4).results_by_transaction == []


def test_ids_are_described_and_listed(world: BrokerWorld, client: Client, make: Maker) -> None:
    producer = make()
    producer.init(timeout_ms=5000)
    producer.send("t", b"a", partition=1)
    producer.send("t", b"a")
    states = client.ask(describing.DescribeTransactionsRequest(["app", "other", ""]), 0).transaction_states
    assert [ErrorCode(each.error_code).name for each in states] == ["NONE", "TRANSACTIONAL_ID_NOT_FOUND", "INVALID_REQUEST"]
    assert states[0] == describing.DescribedTransaction(
        0, "app", "Ongoing", 5000, world.clock.time_ms(), producer.producer_id, 0, [describing.TopicData("t", [0, 1])]
    )
    make("other").init()
    world.clock.advance(2)

    def listed(version: int = 2, **filters: object) -> list[str]:
        answer = client.ask(listing.ListTransactionsRequest(**filters), version)  # type: ignore[arg-type]
        assert answer.error_code == 0
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert listed() == listed(0) == ["app", "other"]
    assert listed(0, state_filters=["Ongoing"]) == ["app"]
    assert listed(0, producer_id_filters=[producer.producer_id]) == ["app"]
    assert listed(1, state_filters=["Ongoing"], duration_filter=1000) == ["app"]
    assert listed(1, state_filters=["Ongoing"], duration_filter=3000) == []
    assert listed(2, transactional_id_pattern="o.*") == ["other"]
    answer = client.ask(listing.ListTransactionsRequest(["Ongoing", "Odd"]), 0)
    assert answer.unknown_state_filters == ["Odd"]
    answer = client.ask(listing.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_markers_are_written_for_others(client: Client, make: Maker) -> None:
    """What another broker's coordinator does, or an operator who ends a transaction that hangs."""
    producer = make(versions=OLDER)
    producer.init()
    producer.send("t", b"a")
    topics = [WritableTxnMarkerTopic("t", [0, 7]), WritableTxnMarkerTopic("gone", [0])]
    for version in (1, 2):
        marker = WritableTxnMarker(producer.producer_id, producer.epoch, True, topics, 0)
        (result,) = client.ask(WriteTxnMarkersRequest([marker]), version).markers
        codes = {(topic.name, each.partition_index): ErrorCode(each.error_code) for topic in result.topics for each in topic.partitions}
        assert codes == {
            ("t", 0): NONE,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    assert read_committed(client.ask, "t") == [b"a"]
    assert client.ask(WriteTxnMarkersRequest([]), 1).markers == []


def write_marker(client: Client, producer_id: int, epoch: int, coordinator_epoch: int) -> ErrorCode:
    marker = WritableTxnMarker(producer_id, epoch, False, [WritableTxnMarkerTopic("t", [0])], coordinator_epoch)
    (result,) = client.ask(WriteTxnMarkersRequest([marker]), 1).markers
    return ErrorCode(result.topics[0].partitions[0].error_code)


@EVERY
def test_no_client_can_fence_a_coordinator_or_a_producer_with_a_marker(client: Client, make: Maker, versions: Versions) -> None:
    producer = make(versions=versions)
    assert producer.init() is NONE
    for committed in (False, True):
        assert producer.send("t", b"a") is NONE
        for epoch in (producer.epoch, producer.epoch + 1, 32767):
            assert write_marker(client, producer.producer_id, epoch, 1) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for epoch in (producer.epoch + 1, 32767):
            assert write_marker(client, producer.producer_id, epoch, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.end(committed=committed) is NONE
    assert read_committed(client.ask, "t") == [b"a"]


def test_a_marker_of_an_unknown_producer_fences_no_later_one(client: Client, make: Maker) -> None:
    first = make()
    first.init()
    unknown = first.producer_id + 1
    assert write_marker(client, unknown, 7, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write_marker(client, unknown, 0, 7) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert write_marker(client, unknown, 0, 0) is NONE
    later = make("later")
    assert (later.init(), later.producer_id) == (NONE, unknown)
    assert later.send("t", b"a") is NONE
    assert later.end(committed=True) is NONE
    assert read_committed(client.ask, "t") == [b"a"]


def test_an_operator_ends_a_transaction_that_hangs_with_what_the_partition_tells(world: BrokerWorld, client: Client, make: Maker) -> None:
    """`kafka-transactions.sh abort` takes both epochs from DescribeProducers, and 0 where no coordinator's is known."""
    producer = make(versions=OLDER)
    producer.init()
    producer.send("t", b"a")
    producer.end(committed=True)
    world.append(MarkerBatch(world.partition("t"), producer.producer_id, 0, EndTxnMarker(ControlType.ABORT, 5), 0))
    producer.send("t", b"b")
    (described,) = client.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0).topics[0].partitions[0].active_producers
    assert described.coordinator_epoch == 5
    assert write_marker(client, producer.producer_id, described.producer_epoch, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write_marker(client, producer.producer_id, described.producer_epoch, 5) is NONE
    assert read_committed(client.ask, "t") == [b"a"]


def test_a_group_that_nobody_coordinates_can_be_added(client: Client, make: Maker) -> None:
    producer = make(versions=OLDER)
    producer.init()
    for version in (0, 1, 2, 3, 4):
        assert client.ask(AddOffsetsToTxnRequest("app", producer.producer_id, producer.epoch, "group"), version).error_code == NONE
    assert producer.end(committed=True) is NONE  # the offsets topic does not exist: nothing to mark there


def test_clients_are_told_of_the_newer_protocol(client: Client) -> None:
    for version, least in ((3, 1), (4, 0)):
        answer = client.ask(ApiVersionsRequest("tests", "1"), version)
        (feature,) = answer.supported_features
        assert (feature.name, feature.min_version, feature.max_version) == ("transaction.version", least, 2)
        (final,) = answer.finalized_features
        assert (final.name, final.min_version_level, final.max_version_level) == ("transaction.version", 2, 2)
        assert answer.finalized_features_epoch == 0
    assert client.ask(ApiVersionsRequest(), 2).finalized_features == []


def test_a_broker_says_how_many_transactions_it_coordinates(world: BrokerWorld, make: Callable[..., RawProducer]) -> None:
    assert "transactional_ids" not in BrokerWorld().broker.statistics()
    producer = make()
    producer.init()
    producer.produce("t", b"x")
    numbers = world.broker.statistics()
    assert [numbers[f"transaction{name}"] for name in ("al_ids", "s_open", "s_tried_again")] == [1, 1, 0]
    assert producer.end(committed=True) is NONE
    assert world.broker.statistics()["transactions_open"] == 0
