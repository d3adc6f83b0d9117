"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn: a producer's transaction, but for its id and the records.

From version 4 on AddPartitionsToTxn is for brokers: any number of transactions in one request, and a question instead of an addition
(`verify_only`). All partitions of a request are added or none: where one cannot be, the others get OPERATION_NOT_ATTEMPTED.

The partition of a group's offsets must be part of the transaction: from version 5 on TxnOffsetCommit adds it itself (KIP-890), before the
producer has asked for it with AddOffsetsToTxn. While the offsets topic's log holds an open transaction of the producer, that is so for
sure. From version 5 on EndTxn gives the producer the epoch of its next transaction.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.state_log import TransactionalProducer
from moldau.broker.handlers.offsets import CommitOutcome, commit_code
from moldau.broker.handlers.services import (
    ConfigServices,
    CoordinatorServices,
    GroupServices,
    MetadataServices,
    PartitionServices,
    TransactionServices,
)
from moldau.broker.request import Reply, Request
from moldau.broker.transactions.events import AddPartitions, EndTransaction
from moldau.broker.transactions.transaction import EPOCH_PER_TRANSACTION, OLD_PROTOCOL, gathered, partitions_of
from moldau.cluster.internal_topics import INTERNAL, OFFSETS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, Steps, drain, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.groups.group import Group


class Services(ConfigServices, CoordinatorServices, GroupServices, MetadataServices, PartitionServices, TransactionServices, Protocol):
    """What these handlers use of the broker."""


FIRST_WITH_FENCED = 2
"""Clients before know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""
FIRST_FOR_BROKERS = 4

Codes = Mapping[TopicPartition, ErrorCode]
Answer = Callable[[Codes], Steps]


def add_partitions(services: Services, message: AddPartitionsToTxnRequest, request: Request, reply: Reply) -> Steps | None:
    """A code for each partition: TOPIC_AUTHORIZATION_FAILED for internal topics, UNKNOWN_TOPIC_OR_PARTITION, and the coordinator's."""
    version = request.api_version
    if version >= FIRST_FOR_BROKERS:
        return unless_few(_Batch(services, message.transactions, version, reply).steps(), sum(map(_size, message.transactions)))
    only = AddPartitionsToTxnTransaction(
        message.v3_and_below_transactional_id,
        message.v3_and_below_producer_id,
        message.v3_and_below_producer_epoch,
        verify_only=False,
        topics=message.v3_and_below_topics,
    )

    def answer(codes: Codes) -> Steps:
        results = yield from _by_topic(codes)
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

    return unless_few(_add(services, only, version, answer), _size(only))


def _size(transaction: AddPartitionsToTxnTransaction) -> int:
    """How much work it is."""
    return 1 + sum(len(topic.partitions) for topic in transaction.topics)


class _Batch:
    """The transactions of one request of a broker; it is answered when all of them are."""

    def __init__(self, services: Services, transactions: list[AddPartitionsToTxnTransaction], version: int, reply: Reply) -> None:
        self._services = services
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
            yield from _add(self._services, transaction, self._version, self._answer_to(place, transaction.transactional_id))
            yield None

    def _answer_to(self, place: int, transactional_id: str) -> Answer:
        def answer(codes: Codes) -> Steps:
            results = yield from _by_topic(codes)
            self._results[place] = AddPartitionsToTxnResult(transactional_id, results)
            self._left -= 1
            if not self._left:
                self._reply(AddPartitionsToTxnResponse(results_by_transaction=[self._results[each] for each in sorted(self._results)]))

        return answer


def _add(services: Services, transaction: AddPartitionsToTxnTransaction, version: int, answer: Answer) -> Steps:
    judged = yield from _judged(services, transaction.topics, from_broker=version >= FIRST_FOR_BROKERS)
    if any(judged.values()):
        yield from answer({each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in judged.items()})
        return
    transactions, transactional_id = services.transactions, transaction.transactional_id
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
    transactions.add_partitions(transactional_id, AddPartitions(answered, producer_id, epoch, partitions, protocol))
    is_asking = False
    for code in outcomes:
        yield from answer(dict.fromkeys(judged, _known_to(version, code)))


def _judged(services: Services, wanted: Iterable[AddPartitionsToTxnTopic], *, from_broker: bool) -> Generator[Pause, None, Codes]:
    """Which partitions a transaction can have, with NONE; internal topics get their records through other requests."""
    topics = services.metadata.topics
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


def add_offsets(services: Services, message: AddOffsetsToTxnRequest, request: Request, reply: Reply) -> None:
    """Take the partition of the offsets topic that keeps a group's offsets; codes are the coordinator's."""

    def answer(code: ErrorCode, _producer_id: int, _epoch: int) -> None:
        reply(AddOffsetsToTxnResponse(error_code=_known_to(request.api_version, code)))

    topic = services.coordinators.offsets_topic
    partition = TopicPartition(topic.name, topic.partition_for(message.group_id))
    wanted = AddPartitions(answer, message.producer_id, message.producer_epoch, partitions_of([partition]), OLD_PROTOCOL)
    services.transactions.add_partitions(message.transactional_id, wanted)


FIRST_WITH_FENCED = 2
"""Clients before know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""
FIRST_WITH_EPOCHS = 5


def end_transaction(services: Services, message: EndTxnRequest, request: Request, reply: Reply) -> None:
    """Answered when all partitions have the marker, or else when the outcome cannot change any more."""

    def answer(code: ErrorCode, producer_id: int, epoch: int) -> None:
        if code is ErrorCode.PRODUCER_FENCED and request.api_version < FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        reply(EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

    protocol = EPOCH_PER_TRANSACTION if request.api_version >= FIRST_WITH_EPOCHS else OLD_PROTOCOL
    wanted = EndTransaction(answer, message.producer_id, message.producer_epoch, message.committed, protocol, request.channel.number)
    services.transactions.end(message.transactional_id, wanted)


FIRST_WITH_LOADING = 2
"""Before, producers took COORDINATOR_LOAD_IN_PROGRESS for a fatal error (KAFKA-7296)."""
FIRST_WITH_ABORTABLE = 4
"""Earlier versions get INVALID_TXN_STATE instead of TRANSACTION_ABORTABLE."""
FIRST_ADDING = 5
_FROM_ANOTHER_COORDINATOR = dict.fromkeys((ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""The transaction's coordinator is not reached: the client tries again, and need not look for another coordinator of its group."""


def commit_offsets(services: Services, message: TxnOffsetCommitRequest, request: Request, reply: Reply) -> Steps | None:
    """Append what can be as part of the transaction, partition by partition.

    Codes: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE; for all that are there, if the group or the transaction refuses:
    INVALID_GROUP_ID, those of `Membership.check_commit`, ILLEGAL_GENERATION for a member of a group that is not there, those of the
    transaction's coordinator, INVALID_PRODUCER_EPOCH, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE;
    TRANSACTION_ABORTABLE (POLICY_VIOLATION before version 4) at the bound on memory.
    """
    return unless_few(_commit_in_steps(services, message, request, reply), sum(len(topic.partitions) for topic in message.topics))


def _commit_in_steps(services: Services, message: TxnOffsetCommitRequest, request: Request, reply: Reply) -> Steps:
    snapshot = services.metadata
    metadata_max = services.config.int("offset.metadata.max.bytes")
    verdict = CommitOutcome(TxnOffsetCommitResponsePartition)
    topics: list[TxnOffsetCommitResponseTopic] = []
    for each in message.topics:
        topic = snapshot.topics.get(each.name)
        partitions = yield from verdict.judge(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, each.partitions, metadata_max)
        topics.append(TxnOffsetCommitResponseTopic(each.name, partitions))
    encoded = yield from services.groups.encode(message.group_id, verdict.commits)

    def answer(error: PeerError | None) -> None:
        if error is not None:
            verdict.refuse(_client_code(commit_code(error.code), request.api_version))
        reply(TxnOffsetCommitResponse(topics=topics))

    def commit(code: ErrorCode) -> None:
        """The transaction's coordinator has spoken."""
        try:
            if code is not ErrorCode.NONE:
                code = _FROM_ANOTHER_COORDINATOR.get(code, code)
                raise PeerError(code, f"transactional id '{message.transactional_id}': {code.name}")
            verdict.check_topics(services.metadata)
            group = _group_for(services, message)
        except PeerError as error:
            answer(error)
            return
        producer = TransactionalProducer(message.producer_id, message.producer_epoch)
        services.groups.commit(group, verdict.commits, answer, encoded=encoded, producer=producer)

    if not verdict.is_for_the_group:
        answer(None)
        return
    try:
        services.groups.group_for(message.group_id)
    except PeerError as error:
        answer(error)
        return
    if not verdict.commits:
        answer(None)
        return
    place = TopicPartition(OFFSETS.name, services.coordinators.offsets_topic.partition_for(message.group_id))
    led = services.partitions.get(place)
    if led is None or led.log.has_ongoing_transaction(message.producer_id, message.producer_epoch):
        commit(ErrorCode.NONE)
        return
    take_in = services.transactions.add_partitions_for_produce if request.api_version >= FIRST_ADDING else services.transactions.verify
    take_in(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        [place],
        lambda codes: commit(codes[place]),
    )


def _group_for(services: Services, message: TxnOffsetCommitRequest) -> "Group":
    """The group, once it has agreed. PeerError."""
    group = services.groups.group_for(message.group_id, create=message.generation_id < 0)
    if group is None:
        raise PeerError(ErrorCode.ILLEGAL_GENERATION, f"group '{message.group_id}' is not there")
    code = group.check_commit(message.member_id, message.group_instance_id, message.generation_id, transactional=True)
    if code is not ErrorCode.NONE:
        who = f"member '{message.member_id}' of generation {message.generation_id}"
        raise PeerError(code, f"group '{message.group_id}': {who} may not commit")
    return group


def _client_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.POLICY_VIOLATION and version >= FIRST_WITH_ABORTABLE:  # other codes end the producer, not only its transaction
        return ErrorCode.TRANSACTION_ABORTABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


HANDLERS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets,
    ApiKey.END_TXN: end_transaction,
    ApiKey.TXN_OFFSET_COMMIT: commit_offsets,
}
