"""TxnOffsetCommit: offsets that a group commits when the transaction of a producer does (KIP-98, with the member's name since KIP-447).

The offsets' partition must be part of the transaction: since version 5 it becomes part of it here (KIP-890), before the producer has asked
for it with AddOffsetsToTxn. While the offsets topic's log holds an open transaction of the producer, that is so for sure.
"""

from typing import TYPE_CHECKING

from moldau.broker.coordinators.internal_topics import OFFSETS
from moldau.broker.coordinators.state_log import TransactionalProducer
from moldau.broker.handlers.committing import Verdict, commit_code
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.groups.group import Group

FIRST_WITH_LOADING = 2
"""Before, producers took COORDINATOR_LOAD_IN_PROGRESS for a fatal error (KAFKA-7296)."""
FIRST_WITH_ABORTABLE = 4
"""Before, INVALID_TXN_STATE stands for TRANSACTION_ABORTABLE."""
FIRST_ADDING = 5


def handle(broker: "Broker", request: TxnOffsetCommitRequest, context: Request, reply: Reply) -> Steps | None:
    """Append what can be as part of the transaction, partition by partition.

    Codes: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE; for all that are there, if the group or the transaction refuses:
    INVALID_GROUP_ID, those of `Membership.check_commit`, ILLEGAL_GENERATION for a member of a group that is not there, those of the
    transaction's coordinator, INVALID_PRODUCER_EPOCH, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE;
    TRANSACTION_ABORTABLE (POLICY_VIOLATION before version 4) at the bound on memory.
    """
    return unless_few(_handle(broker, request, context, reply), sum(len(topic.partitions) for topic in request.topics))


def _handle(broker: "Broker", request: TxnOffsetCommitRequest, context: Request, reply: Reply) -> Steps:
    snapshot = broker.metadata
    metadata_max = broker.config.int("offset.metadata.max.bytes")
    verdict = Verdict(TxnOffsetCommitResponsePartition)
    topics: list[TxnOffsetCommitResponseTopic] = []
    for each in request.topics:
        topic = snapshot.topics.get(each.name)
        partitions = yield from verdict.judge(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, each.partitions, metadata_max)
        topics.append(TxnOffsetCommitResponseTopic(each.name, partitions))
    encoded = yield from broker.groups.encode(request.group_id, verdict.commits)

    def answer(error: PeerError | None) -> None:
        if error is not None:
            verdict.refuse(_told(commit_code(error.code), context.api_version))
        reply(TxnOffsetCommitResponse(topics=topics))

    def commit(code: ErrorCode) -> None:
        """The transaction's coordinator has spoken."""
        try:
            if code is not ErrorCode.NONE:
                raise PeerError(code, f"transactional id '{request.transactional_id}': {code.name}")
            verdict.check_topics(broker.metadata)
            group = _group_for(broker, request)
        except PeerError as error:
            answer(error)
            return
        producer = TransactionalProducer(request.producer_id, request.producer_epoch)
        broker.groups.commit(group, verdict.commits, answer, encoded=encoded, producer=producer)

    if not verdict.is_for_the_group:
        answer(None)
        return
    try:
        broker.groups.group_for(request.group_id)
    except PeerError as error:
        answer(error)
        return
    if not verdict.commits:
        answer(None)
        return
    place = TopicPartition(OFFSETS.name, broker.coordinators.offsets_topic.partition_for(request.group_id))
    led = broker.partitions.get(place)
    if led is None or led.log.has_ongoing_transaction(request.producer_id, request.producer_epoch):
        commit(ErrorCode.NONE)
        return
    take_in = broker.transactions.add_partitions_for_produce if context.api_version >= FIRST_ADDING else broker.transactions.verify
    take_in(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [place],
        lambda codes: commit(codes[place]),
    )


def _group_for(broker: "Broker", request: TxnOffsetCommitRequest) -> "Group":
    """The group, once it has agreed. PeerError."""
    group = broker.groups.group_for(request.group_id, create=request.generation_id < 0)
    if group is None:
        raise PeerError(ErrorCode.ILLEGAL_GENERATION, f"group '{request.group_id}' is not there")
    code = group.check_commit(request.member_id, request.group_instance_id, request.generation_id, transactional=True)
    if code is not ErrorCode.NONE:
        message = f"group '{request.group_id}': member '{request.member_id}' of generation {request.generation_id} may not commit"
        raise PeerError(code, message)
    return group


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.POLICY_VIOLATION and version >= FIRST_WITH_ABORTABLE:  # other codes end the producer, not only its transaction
        return ErrorCode.TRANSACTION_ABORTABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


HANDLERS = {ApiKey.TXN_OFFSET_COMMIT: handle}
