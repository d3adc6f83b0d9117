"""AddPartitionsToTxn and AddOffsetsToTxn: what a producer that does so itself takes into its transaction.

From version 4 on AddPartitionsToTxn is for brokers: any number of transactions in one request, and a question instead of an addition
(`verify_only`). All partitions of a request are added or none: where one cannot be, the others get OPERATION_NOT_ATTEMPTED.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING

from moldau.broker.coordinators.internal_topics import INTERNAL
from moldau.broker.request import Reply, Request
from moldau.broker.transactions.events import Add
from moldau.broker.transactions.partitions import gathered, partitions_of
from moldau.broker.transactions.transaction import EPOCH_PER_TRANSACTION, OLD_PROTOCOL
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, Steps, drain, unless_few
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
Answer = Callable[[Codes], Steps]


def handle_partitions(broker: "Broker", request: AddPartitionsToTxnRequest, context: Request, reply: Reply) -> Steps | None:
    """A code for each partition: TOPIC_AUTHORIZATION_FAILED for internal topics, UNKNOWN_TOPIC_OR_PARTITION, and the coordinator's."""
    version = context.api_version
    if version >= FIRST_FOR_BROKERS:
        return unless_few(_Batch(broker, request.transactions, version, reply).steps(), sum(map(_size, request.transactions)))
    only = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )

    def answer(codes: Codes) -> Steps:
        results = yield from _by_topic(codes)
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

    return unless_few(_add(broker, only, version, answer), _size(only))


def _size(transaction: AddPartitionsToTxnTransaction) -> int:
    """How much work it is."""
    return 1 + sum(len(topic.partitions) for topic in transaction.topics)


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

    def _answer_to(self, place: int, transactional_id: str) -> Answer:
        def answer(codes: Codes) -> Steps:
            results = yield from _by_topic(codes)
            self._results[place] = AddPartitionsToTxnResult(transactional_id, results)
            self._left -= 1
            if not self._left:
                self._reply(AddPartitionsToTxnResponse(results_by_transaction=[self._results[each] for each in sorted(self._results)]))

        return answer


def _add(broker: "Broker", transaction: AddPartitionsToTxnTransaction, version: int, answer: Answer) -> Steps:
    judged = yield from _judged(broker, transaction.topics, from_broker=version >= FIRST_FOR_BROKERS)
    if any(judged.values()):
        yield from answer({each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in judged.items()})
        return
    transactions, transactional_id = broker.transactions, transaction.transactional_id
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        outcome = transactions.verified(transactional_id, producer_id, epoch, judged)
        yield from answer(outcome if isinstance(outcome, dict) else dict.fromkeys(judged, outcome))
        return
    outcomes: list[ErrorCode] = []
    is_asking = True

    def answered(code: ErrorCode, _producer_id: int, _epoch: int) -> None:
        if is_asking:
            outcomes.append(code)
        else:
            drain(answer(dict.fromkeys(judged, _known_to(version, code))))

    protocol = EPOCH_PER_TRANSACTION if version >= FIRST_FOR_BROKERS else OLD_PROTOCOL
    partitions = yield from gathered(judged)
    transactions.add_partitions(transactional_id, Add(answered, producer_id, epoch, partitions, protocol))
    is_asking = False
    for code in outcomes:
        yield from answer(dict.fromkeys(judged, _known_to(version, code)))


def _judged(broker: "Broker", wanted: Iterable[AddPartitionsToTxnTopic], *, from_broker: bool) -> Generator[Pause, None, Codes]:
    """Which partitions a transaction can have, with NONE; internal topics get their records through other requests."""
    topics = broker.metadata.topics
    judged: dict[TopicPartition, ErrorCode] = {}
    for each in wanted:
        topic = topics.get(each.name)
        name = each.name if topic is None else topic.name
        for index in each.partitions:
            yield None
            code = ErrorCode.NONE
            if name in INTERNAL and not from_broker:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not 0 <= index < len(topic.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            judged[TopicPartition(name, index)] = code
    return judged


def _by_topic(codes: Codes) -> Generator[Pause, None, list[AddPartitionsToTxnTopicResult]]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, partition), code in codes.items():
        result = topics.get(topic)
        if result is None:
            result = topics[topic] = AddPartitionsToTxnTopicResult(topic, [])
        result.results_by_partition.append(AddPartitionsToTxnPartitionResult(partition, code))
        yield None
    return list(topics.values())


def _known_to(version: int, code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_FENCED else code


def handle_offsets(broker: "Broker", request: AddOffsetsToTxnRequest, context: Request, reply: Reply) -> None:
    """Take the partition of the offsets topic that keeps a group's offsets; codes are the coordinator's."""

    def answer(code: ErrorCode, _producer_id: int, _epoch: int) -> None:
        reply(AddOffsetsToTxnResponse(error_code=_known_to(context.api_version, code)))

    topic = broker.coordinators.offsets_topic
    partition = TopicPartition(topic.name, topic.partition_for(request.group_id))
    wanted = Add(answer, request.producer_id, request.producer_epoch, partitions_of([partition]), OLD_PROTOCOL)
    broker.transactions.add_partitions(request.transactional_id, wanted)


HANDLERS = {ApiKey.ADD_PARTITIONS_TO_TXN: handle_partitions, ApiKey.ADD_OFFSETS_TO_TXN: handle_offsets}
