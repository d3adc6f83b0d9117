"""AddPartitionsToTxn and AddOffsetsToTxn: what a producer that does so itself takes into its transaction.

From version 4 on AddPartitionsToTxn is for brokers: any number of transactions in one request, and a question instead of an addition
(`verify_only`). All partitions of a request are added or none: where one cannot be, the others get OPERATION_NOT_ATTEMPTED.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.broker.dispatch import Reply
from moldau.broker.internal_topics import INTERNAL
from moldau.broker.transactions.events import Add
from moldau.broker.transactions.transaction import EPOCH_PER_TRANSACTION, OLD_PROTOCOL
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

FIRST_WITH_FENCED = 2
"""Clients before know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""
FIRST_FOR_BROKERS = 4

Codes = Mapping[TopicPartition, ErrorCode]
Refused = Generator[Pause, None, dict[TopicPartition, ErrorCode]]


def handle_partitions(broker: "Broker", request: AddPartitionsToTxnRequest, context: RequestContext, reply: Reply) -> Steps | None:
    """A code for each partition: TOPIC_AUTHORIZATION_FAILED for internal topics, UNKNOWN_TOPIC_OR_PARTITION, and the coordinator's."""
    version = context.api_version
    if version >= FIRST_FOR_BROKERS:
        return unless_few(_Batch(broker, request.transactions, version, reply).steps(), len(request.transactions))
    only = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )

    def answer(codes: Codes) -> None:
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(codes)))

    return unless_few(_add(broker, only, version, answer), sum(len(topic.partitions) for topic in only.topics))


class _Batch:
    """The transactions of one request of a broker; it is answered when all of them are."""

    def __init__(self, broker: "Broker", transactions: list[AddPartitionsToTxnTransaction], version: int, reply: Reply) -> None:
        self._broker = broker
        self._transactions = transactions
        self._version = version
        self._reply = reply
        self._left = len(transactions)
        self._results: dict[int, AddPartitionsToTxnResult] = {}

    def steps(self) -> Steps:
        """Ask for each."""
        if not self._transactions:
            self._reply(AddPartitionsToTxnResponse())
        for place, transaction in enumerate(self._transactions):
            yield from _add(self._broker, transaction, self._version, self._answer_to(place, transaction.transactional_id))
            yield None

    def _answer_to(self, place: int, transactional_id: str) -> Callable[[Codes], None]:
        def answer(codes: Codes) -> None:
            self._results[place] = AddPartitionsToTxnResult(transactional_id, _by_topic(codes))
            self._left -= 1
            if not self._left:
                self._reply(AddPartitionsToTxnResponse(results_by_transaction=[self._results[each] for each in sorted(self._results)]))

        return answer


def _add(broker: "Broker", transaction: AddPartitionsToTxnTransaction, version: int, answer: Callable[[Codes], None]) -> Steps:
    partitions = _partitions(transaction.topics)
    refused = yield from _refused(broker, partitions, from_broker=version >= FIRST_FOR_BROKERS)
    if refused:
        answer({each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions})
        return
    transactions, transactional_id = broker.transactions, transaction.transactional_id
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        outcome = transactions.verified(transactional_id, producer_id, epoch, partitions)
        answer(outcome if isinstance(outcome, dict) else dict.fromkeys(partitions, outcome))
        return

    def answer_all(code: ErrorCode, _producer_id: int, _epoch: int) -> None:
        answer(dict.fromkeys(partitions, _known_to(version, code)))

    protocol = EPOCH_PER_TRANSACTION if version >= FIRST_FOR_BROKERS else OLD_PROTOCOL
    transactions.add_partitions(transactional_id, Add(answer_all, producer_id, epoch, frozenset(partitions), protocol))


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(broker: "Broker", partitions: Iterable[TopicPartition], *, from_broker: bool) -> Refused:
    """The partitions that no transaction can have; internal topics get their records through other requests."""
    topics = broker.metadata.topics
    refused: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        yield None
        topic = topics.get(partition.topic)
        if partition.topic in INTERNAL and not from_broker:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= partition.partition < len(topic.partitions):
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(topic, [AddPartitionsToTxnPartitionResult(each.partition, codes[each]) for each in group])
        for topic, group in groupby(sorted(codes), key=lambda each: each.topic)
    ]


def _known_to(version: int, code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_FENCED else code


def handle_offsets(broker: "Broker", request: AddOffsetsToTxnRequest, context: RequestContext, reply: Reply) -> None:
    """Take the partition of the offsets topic that keeps a group's offsets; codes are the coordinator's."""

    def answer(code: ErrorCode, _producer_id: int, _epoch: int) -> None:
        reply(AddOffsetsToTxnResponse(error_code=_known_to(context.api_version, code)))

    topic = broker.coordinating.offsets_topic
    partition = TopicPartition(topic.name, topic.partition_for(request.group_id))
    wanted = Add(answer, request.producer_id, request.producer_epoch, frozenset({partition}), OLD_PROTOCOL)
    broker.transactions.add_partitions(request.transactional_id, wanted)


HANDLERS = {ApiKey.ADD_PARTITIONS_TO_TXN: handle_partitions, ApiKey.ADD_OFFSETS_TO_TXN: handle_offsets}
