"""DeleteRecords (KIP-107): the start of logs moves at their leader, and the answer waits until it has moved at the followers that live.

So none of the records is there again after an election. Followers learn the leader's start with what they fetch, and say theirs with the
next fetch, so that this takes as long as a fetch waits (`replica.fetch.wait.max.ms`).
"""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.services import AdminServices, ConfigServices, MetadataServices, PartitionServices
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.request import Reply, Request
from moldau.cluster.internal_topics import check_unprotected
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.steps import Steps, Suspension
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from moldau.broker.replicas.purgatory import Purgatory
    from moldau.ports.clock import Clock


class Services(AdminServices, ConfigServices, MetadataServices, PartitionServices, Protocol):
    """What this handler uses of the broker."""

    @property
    def purgatory(self) -> "Purgatory":
        """Fetches that wait."""

    @property
    def clock(self) -> "Clock":
        """Of the broker's thread."""


HIGH_WATERMARK = -1
LOOK_S = 0.01
"""How often to look whether followers have deleted, too."""


def delete_records(services: Services, message: DeleteRecordsRequest, request: Request, reply: Reply) -> Steps:
    """Delete what lies before each offset.

    Codes: UNKNOWN_TOPIC_OR_PARTITION; OFFSET_OUT_OF_RANGE beyond the high watermark; LEADER_NOT_AVAILABLE where a new leader does not know
    that yet; POLICY_VIOLATION where the topic is only compacted, protected or a mirror; INVALID_TOPIC_EXCEPTION where it is internal;
    REQUEST_TIMED_OUT where a follower that lives has not deleted them in time, NOT_LEADER_OR_FOLLOWER where another broker leads meanwhile:
    then they are deleted here, and an election may show them again.
    """
    topics = []
    waiting: list[tuple[HostedPartition, int, DeleteRecordsPartitionResult]] = []
    for topic in message.topics:
        name = topic.name.encode()
        led = services.partitions_of(name, by_id=False)
        results = []
        for wanted in topic.partitions:
            yield None
            index = wanted.partition_index
            try:
                partition = led.get(index)
                if partition is None:
                    raise services.missing_partition(name, index, by_id=False)
                first = _delete_before(services, partition, wanted)
                services.admin_log.note(request, "records deleted", partition=partition.topic_partition, before_offset=first)
                results.append(DeleteRecordsPartitionResult(index, first))
                waiting.append((partition, first, results[-1]))
                services.purgatory.changed((partition,))
            except PeerError as error:
                results.append(DeleteRecordsPartitionResult(index, -1, error.code))
            except StorageError as error:
                assert partition is not None, "only a log raises it"
                services.storage_failed(partition, error)
                results.append(DeleteRecordsPartitionResult(index, -1, ErrorCode.KAFKA_STORAGE_ERROR))
        topics.append(DeleteRecordsTopicResult(topic.name, results))
    deadline_s = services.clock.monotonic() + message.timeout_ms / 1000
    while waiting:
        partition, wanted_start, result = waiting[-1]
        result.low_watermark = _low_watermark(services, partition)
        if not partition.is_led:
            result.low_watermark, result.error_code = -1, ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif result.low_watermark < wanted_start:
            if services.clock.monotonic() < deadline_s:
                yield Suspension(partial(services.clock.call_later, LOOK_S))
                continue
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        waiting.pop()
        yield None
    reply(DeleteRecordsResponse(topics=topics))


def _low_watermark(services: Services, partition: HostedPartition) -> int:
    """The least start of the log at the replicas that live; 0 for one that has not said its own."""
    machine, live = partition.machine, services.metadata.brokers
    starts = [partition.log.start_offset]
    for broker_id in machine.replicas:
        if broker_id != machine.broker_id and broker_id in live:
            progress = machine.followers.get(broker_id)
            starts.append(0 if progress is None else progress.log_start_offset)
    return min(starts)


def _delete_before(services: Services, partition: HostedPartition, wanted: DeleteRecordsPartition) -> int:
    """Delete the records before the offset wanted; the first one left."""
    log = partition.log
    if partition.is_internal:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic_partition} is internal: no client may delete from it")
    if partition.machine.is_mirror:
        raise PeerError(
            ErrorCode.POLICY_VIOLATION, f"{partition.topic_partition} is a mirror (mirror.source is set): its records are the source's"
        )
    check_unprotected(services.config, partition.topic_partition.topic, "delete its records")
    if not log.config.deletes and log.config.compacts:
        raise PeerError(ErrorCode.POLICY_VIOLATION, f"{partition.topic_partition}: cleanup.policy is compact, records go by key")
    offset = log.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
    if partition.shows_too_little and (wanted.offset == HIGH_WATERMARK or offset > log.high_watermark):
        raise PeerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition.topic_partition}: the high watermark is not known yet")
    if not 0 <= offset <= log.high_watermark:
        raise PeerError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.topic_partition}: offset {offset} is beyond the high watermark {log.high_watermark}"
        )
    if offset > log.start_offset:
        log.delete_records(offset)
    return log.start_offset


HANDLERS = {
    ApiKey.DELETE_RECORDS: delete_records,
}
