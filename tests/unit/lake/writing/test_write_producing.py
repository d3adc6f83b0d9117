"""A batch without an answer is sent again before anything behind it, and what a broker refuses is named by topic, partition and row."""

from collections.abc import Iterator

import pytest

from moldau.lake.writing.producing import BatchSender, DeliveryError, PartitionBatch
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from support.scripted_broker import HANG_UP, Request, ScriptedBroker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Leader:
    """Leads both partitions, and answers Produce as it is told, each answer once; then it takes everything."""

    def __init__(self) -> None:
        self.server = ScriptedBroker(self.answer)
        self.told: list[object] = []
        self.sent: list[dict[int, bytes]] = []

    def answer(self, request: Request) -> object:
        if request.api_key is ApiKey.METADATA:
            partitions = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in (0, 1)]
            return MetadataResponse(
                brokers=[MetadataResponseBroker(1, "127.0.0.1", self.server.port)],
                controller_id=1,
                topics=[MetadataResponseTopic(name="t", partitions=partitions)],
            )
        assert request.api_key is ApiKey.PRODUCE
        sent = {each.index: bytes(each.records) for each in request.message.topic_data[0].partition_data}
        self.sent.append(sent)
        told = self.told.pop(0) if self.told else {}
        if not isinstance(told, dict):
            return told
        answers = [told.get(number) or PartitionProduceResponse(number, base_offset=10 + number) for number in sent]
        return ProduceResponse([TopicProduceResponse("t", partition_responses=answers)])


@pytest.fixture
def leader() -> Iterator[Leader]:
    leader = Leader()
    with leader.server:
        yield leader


@pytest.fixture
def producing(leader: Leader) -> Iterator[BatchSender]:
    with BatchSender(leader.server.bootstrap, client_id="test", timeout_s=10, request_timeout_ms=1000) as producing:
        yield producing


def refused(number: int, code: ErrorCode, **more: object) -> PartitionProduceResponse:
    return PartitionProduceResponse(number, code, -1, **more)  # type: ignore[arg-type]


def test_many_partitions_are_sent_at_once(leader: Leader, producing: BatchSender) -> None:
    producing.send({FIRST: PartitionBatch(b"a", [0]), SECOND: PartitionBatch(b"b", [1])}, None)
    assert producing.wait() == {FIRST: 10, SECOND: 11}
    assert leader.sent == [{0: b"a", 1: b"b"}]


@pytest.mark.parametrize(
    "trouble",
    [HANG_UP, {0: refused(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)}, {0: refused(0, ErrorCode.NOT_ENOUGH_REPLICAS)}],
    ids=["connection lost", "another leader", "too few replicas"],
)
def test_what_may_pass_is_sent_again(trouble: object, leader: Leader, producing: BatchSender) -> None:
    leader.told = [trouble]
    producing.send({FIRST: PartitionBatch(b"a", [0])}, None)
    assert producing.wait() == {FIRST: 10}
    producing.send({FIRST: PartitionBatch(b"b", [1])}, None)
    producing.wait()
    assert leader.sent == [{0: b"a"}, {0: b"a"}, {0: b"b"}]


def test_what_brokers_have_already_is_written(leader: Leader, producing: BatchSender) -> None:
    """They know it by its sequence; where it is they do not say."""
    leader.told = [{0: refused(0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)}]
    producing.send({FIRST: PartitionBatch(b"a", [0])}, None)
    assert producing.wait() == {FIRST: -1}


@pytest.mark.parametrize(
    ("answer", "rows", "text"),
    [
        (refused(1, ErrorCode.MESSAGE_TOO_LARGE), [7], "row 7 of the task not written: partition t-1: message too large"),
        (refused(1, ErrorCode.INVALID_PRODUCER_EPOCH), [3, 5, 9], "3 rows from row 3 to row 9 of the task not written"),
        (
            refused(1, ErrorCode.INVALID_RECORD, record_errors=[BatchIndexAndErrorMessage(1, "no key")]),
            [3, 5, 9],
            "row 5 of the task not written: partition t-1: no key",
        ),
    ],
    ids=["one row", "many rows", "one row of many"],
)
def test_what_is_refused_is_named(answer: object, rows: list[int], text: str, leader: Leader, producing: BatchSender) -> None:
    leader.told = [{1: answer}]
    producing.send({FIRST: PartitionBatch(b"a", [0]), SECOND: PartitionBatch(b"b", rows)}, None)
    with pytest.raises(DeliveryError) as caught:
        producing.wait()
    assert str(caught.value).startswith(f"topic t, partition 1: {text}")
    assert len(leader.sent) == 1, "nothing is tried again that cannot pass"
