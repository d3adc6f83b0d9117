"""DeleteRecords: raises the first offset of a log."""

from typing import TYPE_CHECKING

from moldau.broker.protected_topics import check_unprotected
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

HIGH_WATERMARK = -1


def handle(broker: "Broker", request: DeleteRecordsRequest, context: Request, reply: Reply) -> Steps:
    """Delete what lies before each offset.

    Codes: UNKNOWN_TOPIC_OR_PARTITION; OFFSET_OUT_OF_RANGE beyond the high watermark; POLICY_VIOLATION where the topic is only compacted;
    or protected; INVALID_TOPIC_EXCEPTION where it is internal.
    """
    topics = []
    for topic in request.topics:
        name = topic.name.encode()
        led = broker.partitions_of(name, by_id=False)
        results = []
        for wanted in topic.partitions:
            yield None
            index = wanted.partition_index
            try:
                partition = led.get(index)
                if partition is None:
                    raise broker.missing_partition(name, index, by_id=False)
                first = _delete(broker, partition, wanted)
                broker.admin_log.note(context, "records deleted", partition=partition.topic_partition, before_offset=first)
                results.append(DeleteRecordsPartitionResult(index, first))
                broker.delayed.changed(partition)
            except PeerError as error:
                results.append(DeleteRecordsPartitionResult(index, -1, error.code))
            except StorageError as error:
                assert partition is not None, "only a log raises it"
                broker.storage_failed(partition, error)
                results.append(DeleteRecordsPartitionResult(index, -1, ErrorCode.KAFKA_STORAGE_ERROR))
        topics.append(DeleteRecordsTopicResult(topic.name, results))
    reply(DeleteRecordsResponse(topics=topics))


def _delete(broker: "Broker", partition: HostedPartition, wanted: DeleteRecordsPartition) -> int:
    """Delete the records before the offset wanted; the first one left."""
    log = partition.log
    if partition.is_internal:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic_partition} is internal: no client may delete from it")
    check_unprotected(broker.config, partition.topic_partition.topic, "delete its records")
    if not log.config.deletes and log.config.compacts:
        raise PeerError(ErrorCode.POLICY_VIOLATION, f"{partition.topic_partition}: cleanup.policy is compact, records go by key")
    offset = log.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= log.high_watermark:
        raise PeerError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.topic_partition}: offset {offset} is beyond the high watermark {log.high_watermark}"
        )
    if offset > log.start_offset:
        log.delete_records(offset)
    return log.start_offset


HANDLERS = {ApiKey.DELETE_RECORDS: handle}
