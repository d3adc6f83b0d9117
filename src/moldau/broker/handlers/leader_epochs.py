"""OffsetForLeaderEpoch: where an epoch ends in the log, so that a client sees that what it has read was cut off (KIP-101, KIP-320)."""

from typing import TYPE_CHECKING

from moldau.broker.request import Reply, Request
from moldau.model.errors import PeerError
from moldau.model.steps import Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker


def handle(broker: "Broker", request: OffsetForLeaderEpochRequest, context: Request, reply: Reply) -> Steps | None:
    """Look up each epoch's end. Codes: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH."""
    return unless_few(_handle(broker, request, reply), sum(len(topic.partitions) for topic in request.topics))


def _handle(broker: "Broker", request: OffsetForLeaderEpochRequest, reply: Reply) -> Steps:
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answers.append(_look_up(broker, topic.topic.encode(), wanted))
            yield None
        topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
    reply(OffsetForLeaderEpochResponse(topics=topics))


def _look_up(broker: "Broker", topic: bytes, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    index = wanted.partition
    partition = broker.partitions_of(topic, by_id=False).get(index)
    try:
        if partition is None:
            raise broker.missing_partition(topic, index, by_id=False)
        partition.machine.check_leader_epoch(wanted.current_leader_epoch)
    except PeerError as error:
        return EpochEndOffset(error.code, index)
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(0, index, epoch, min(end_offset, partition.log.high_watermark))


HANDLERS = {ApiKey.OFFSET_FOR_LEADER_EPOCH: handle}
