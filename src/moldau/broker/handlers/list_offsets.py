"""ListOffsets: the first, the last, or by time (mission A12).

Names instead of times: -1 latest, -2 earliest, -3 the record with the largest timestamp (version 7), -4 earliest on local disk (8, the
same as earliest here), -5 the last in tiered storage (9) and -6 the first not there yet (11); without tiered storage -5 gives none, and -6
the earliest. By time: the first record whose timestamp is not smaller, or none. A name that a version does not have yet is looked up all
the same. Consumers see nothing from the high watermark on, those of
committed records (isolation level 1) nothing from the last stable offset on.
"""

from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.broker.dispatch import Reply
from moldau.broker.partition import Partition
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import UNKNOWN_EPOCH
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

FIRST_WITH_LEADER_EPOCH = 4
READ_COMMITTED = 1


def handle(broker: "Broker", request: ListOffsetsRequest, context: RequestContext, reply: Reply) -> None:
    """Look up each partition's offset. Codes: UNKNOWN_TOPIC_OR_PARTITION, FENCED_ and UNKNOWN_LEADER_EPOCH, INVALID_REQUEST, storage."""
    topics = []
    for topic in request.topics:
        name = topic.name.encode()
        led = broker.partitions_of(name, by_id=False)
        answers = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            try:
                partition = led.get(index)
                if partition is None:
                    raise broker.missing_partition(name, index, by_id=False)
                partition.check_leader_epoch(wanted.current_leader_epoch)
                answers.append(_look_up(partition, wanted, committed=request.isolation_level == READ_COMMITTED))
            except PeerError as error:
                answers.append(ListOffsetsPartitionResponse(index, error.code))
            except StorageError as error:
                assert partition is not None, "only a log raises it"
                broker.storage_failed(partition, error)
                answers.append(ListOffsetsPartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR))
        if context.api_version < FIRST_WITH_LEADER_EPOCH:
            for answer in answers:
                answer.leader_epoch = UNKNOWN_EPOCH
        topics.append(ListOffsetsTopicResponse(topic.name, answers))
    reply(ListOffsetsResponse(topics=topics))


def _look_up(partition: Partition, wanted: ListOffsetsPartition, *, committed: bool) -> ListOffsetsPartitionResponse:
    log, index = partition.log, partition.index
    limit = log.last_stable_offset if committed else log.high_watermark
    match wanted.timestamp:
        case -1:
            return ListOffsetsPartitionResponse(index, 0, -1, limit, partition.leader_epoch)
        case -2 | -4 | -6:
            return ListOffsetsPartitionResponse(index, 0, -1, log.start_offset, log.epoch_at(log.start_offset))
        case -5:
            return ListOffsetsPartitionResponse(index)
        case -3:
            found = log.max_timestamp_offset(limit)
        case timestamp if timestamp >= 0:
            found = log.offset_for_timestamp(timestamp, limit)
        case timestamp:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{partition.topic_partition}: timestamp {timestamp} has no meaning")
    if found is None:
        return ListOffsetsPartitionResponse(index)
    return ListOffsetsPartitionResponse(index, 0, found.timestamp_ms, found.offset, found.leader_epoch)


HANDLERS = {ApiKey.LIST_OFFSETS: handle}
