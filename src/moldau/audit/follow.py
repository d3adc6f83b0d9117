"""Reads the audit topic: all of it, or what is new since the last time; and takes back what a tier has counted of topics."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from moldau.audit.tiers import TierCounts, UnreadableRecord
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord
from moldau.tracking.clock import now_ms

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.partition_requests import FetchedBatches

log = logging.getLogger(__name__)

_ANOTHER_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
_AGAIN_S: Final = 3600.0
"""Between two times that everything is read again: a topic of long ago can ask for that with each record."""
_CORRUPT_TRIES: Final = 3
_BATCH_BYTES_MAX: Final = 64 << 20

RecordFilter = Callable[[bytes | None, bytes | None], bool]
"""Whether a record with this key and value is wanted."""


def read_audit(cluster: "Cluster", into: TierCounts | None = None, *, wanted: RecordFilter | None = None) -> TierCounts:
    """Read the audit topic from its beginning, or from where `into` ends, up to what is there now; committed records only.

    With `wanted` only such records; the keys of counts are the names of their topics. Nothing if there is no audit topic. An audit
    topic that was recreated, or whose log was cut, is read from its beginning, and so is one that has records about what `into` has
    forgotten. UnreachableError, ConnectionLostError, RequestFailedError.
    """
    found = into if into is not None else TierCounts()
    try:
        topic = cluster.topic(AUDIT_TOPIC)
    except PeerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return found
    if found.topic_id is not None and found.topic_id != topic.id:
        log.warning("the audit topic was recreated and is read from its beginning")
        cluster.forget_topic(AUDIT_TOPIC)
        found.start_over()
    found.topic_id = topic.id
    partitions = [TopicPartition(AUDIT_TOPIC, each.partition) for each in topic.partitions]
    _read_up_to_now(cluster, partitions, found, wanted)
    if found.stale and time.monotonic() >= found.again_at:
        log.info("records about dropped windows or topics arrived: the audit topic is read from its beginning")
        found.start_over()
        found.topic_id, found.again_at = topic.id, time.monotonic() + _AGAIN_S
        _read_up_to_now(cluster, partitions, found, wanted)
    return found


def _read_up_to_now(cluster: "Cluster", partitions: list[TopicPartition], found: TierCounts, wanted: RecordFilter | None) -> None:
    from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED

    first = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    end = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    if any(found.positions.get(where, 0) > max(end[where].offset, first[where].offset) for where in partitions):
        log.warning("the log of the audit topic was cut, and is read from its beginning")
        topic_id = found.topic_id
        found.start_over()
        found.topic_id = topic_id
    for where in partitions:
        found.begin_at(where, first[where].offset)
    tries: dict[TopicPartition, int] = {}
    while left := {where for where in partitions if found.positions[where] < end[where].offset}:
        try:
            _read_some(cluster, left, found, wanted, tries)
        except PeerError as error:
            if error.code in _ANOTHER_TOPIC:
                cluster.forget_topic(AUDIT_TOPIC)
            cut = getattr(error, "subject", None)
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or cut not in left:
                raise
            at = cluster.list_offsets({cut: EARLIEST})[cut].offset
            if at <= found.positions[cut]:
                raise
            found.begin_at(cut, at)  # retention was at work


def _read_some(
    cluster: "Cluster", partitions: set[TopicPartition], into: TierCounts, wanted: RecordFilter | None, tries: dict[TopicPartition, int]
) -> None:
    from moldau.client.partition_requests import READ_COMMITTED, FetchLimits

    limits = FetchLimits(isolation_level=READ_COMMITTED, partition_max_bytes=4 << 20)
    answers = cluster.fetch_many({where: into.positions[where] for where in sorted(partitions)}, limits)
    for where, fetched in answers.items():
        try:
            _take(where, fetched, into, wanted)
        except CorruptBatchError as error:  # once may be the way from the broker, more often is the log
            tries[where] = tries.get(where, 0) + 1
            if tries[where] > _CORRUPT_TRIES:
                del tries[where]
                _skip(cluster, where, error, into)


def _take(where: TopicPartition, fetched: "FetchedBatches", into: TierCounts, wanted: RecordFilter | None) -> None:
    """The records of a fetch; CorruptBatchError at a batch that is damaged, with all before it taken."""
    from moldau.client.fetched_batches import UnreadableBatchError, VisibleBatches, checked_batches
    from moldau.protocol.records.batch import iterate

    visible, position = VisibleBatches(fetched.aborted), into.positions[where]
    for header, batch in checked_batches(where, fetched, position):
        if visible.shows(header, batch):
            at_ms = header.max_timestamp if header.timestamp_type_is_log_append else None
            try:
                for record in iterate(batch, max_decompressed_bytes=_BATCH_BYTES_MAX, with_headers=False):
                    if record.offset >= position and (wanted is None or wanted(record.key, record.value)):
                        into.take_value(where.partition, record.offset, record.value, at_ms)
            except PeerError as error:  # its checksum is right, so it is known where it ends
                raise UnreadableBatchError(where, position, header.last_offset + 1, error.message) from error
        position = into.positions[where] = header.last_offset + 1


def _skip(cluster: "Cluster", where: TopicPartition, error: CorruptBatchError, into: TierCounts) -> None:
    """Continue after a batch that stays damaged."""
    from moldau.client.fetched_batches import UnreadableBatchError, next_readable

    position = into.positions[where]
    known = error.next_offset if isinstance(error, UnreadableBatchError) else None
    into.positions[where] = known or next_readable(cluster, where, position)
    log.error("audit records skipped: partition=%s offset=%d up_to=%d reason=%s", where, position, into.positions[where], error.message)
    into.unreadable.append(UnreadableRecord(where.partition, position, error.message))


def counted_topics(found: "TierCounts", tier: str) -> list[str]:
    """The topics that a tier has counted, owns, or had counted when its counts were taken back."""
    topics = {key.topic for key in found.counts.get(tier, ())}
    topics |= {topic for each, topic in [*found.owners, *found.untracked, *found.counted_ms, *found.epochs] if each == tier}
    return sorted(topics)


def take_back(bootstrap: str, tier: str, topics: Sequence[str]) -> None:
    """Publish that the tier's counts of these topics are void; idempotent. What the tier publishes later counts. SendError."""
    from moldau.client.producer import Producer

    with Producer(bootstrap, client_id="moldau-audit-forget") as producer:
        records = [AuditRecord.of_tier(tier, topic, time_ms=now_ms(), forgets=True) for topic in topics]
        for sent in [producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key) for record in records]:
            sent.result()
