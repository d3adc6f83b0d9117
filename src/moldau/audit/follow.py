"""Reads the audit topic: all of it, or what is new since the last time; and takes back what a tier has counted of topics."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moldau.audit.tiers import OWN_SOURCE, TierCounts, UnreadableRecord
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


def read_audits(clusters: "Mapping[str, Cluster]", into: TierCounts | None = None) -> TierCounts:
    """As `read_audit`, of several clusters by their names: one after the other, and all again where everything had to be forgotten."""
    found = into if into is not None else TierCounts()
    while True:
        before = found.beginnings
        for source, cluster in clusters.items():
            found = read_audit(cluster, found, source=source)
        if found.beginnings == before or len(clusters) < 2:
            return found


def read_audit(
    cluster: "Cluster", into: TierCounts | None = None, *, wanted: RecordFilter | None = None, source: str = OWN_SOURCE
) -> TierCounts:
    """Read the audit topic from its beginning, or from where `into` ends, up to what is there now; committed records only.

    With `wanted` only such records; the keys of counts are the names of their topics. Nothing if there is no audit topic. An audit
    topic that was recreated, or whose log was cut, is read from its beginning, and so is one that has records about what `into` has
    forgotten. `source` is the cluster's name where `into` has the records of several. UnreachableError, ConnectionLostError,
    RequestFailedError.
    """
    found = into if into is not None else TierCounts()
    try:
        topic = cluster.topic(AUDIT_TOPIC)
    except PeerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return found
    if found.place(source).topic_id not in (None, topic.id):
        log.warning("the audit topic was recreated and is read from its beginning")
        cluster.forget_topic(AUDIT_TOPIC)
        found.start_over()
    found.place(source).topic_id = topic.id
    partitions = [TopicPartition(AUDIT_TOPIC, each.partition) for each in topic.partitions]
    reading = _Reading(cluster, source, found, wanted)
    reading.read_up_to_now(partitions)
    if found.stale and time.monotonic() >= found.again_at:
        log.info("records about dropped windows or topics arrived: the audit topic is read from its beginning")
        found.start_over()
        found.again_at = time.monotonic() + _AGAIN_S
        found.place(source).topic_id = topic.id
        reading.read_up_to_now(partitions)
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """Of the audit topic of one cluster."""

    cluster: "Cluster"
    source: str
    found: TierCounts
    wanted: RecordFilter | None

    @property
    def _positions(self) -> dict[TopicPartition, int]:
        return self.found.place(self.source).positions

    def read_up_to_now(self, partitions: list[TopicPartition]) -> None:
        """Up to where the log ends when this begins."""
        from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED

        first = self.cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
        end = self.cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
        if any(self._positions.get(where, 0) > max(end[where].offset, first[where].offset) for where in partitions):
            log.warning("the log of the audit topic was cut, and is read from its beginning")
            topic_id = self.found.place(self.source).topic_id
            self.found.start_over()
            self.found.place(self.source).topic_id = topic_id
        for where in partitions:
            self.found.begin_at(where, first[where].offset, self.source)
        tries: dict[TopicPartition, int] = {}
        while left := {where for where in partitions if self._positions[where] < end[where].offset}:
            try:
                self._read_some(left, tries)
            except PeerError as error:
                if error.code in _ANOTHER_TOPIC:
                    self.cluster.forget_topic(AUDIT_TOPIC)
                cut = getattr(error, "subject", None)
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or cut not in left:
                    raise
                at = self.cluster.list_offsets({cut: EARLIEST})[cut].offset
                if at <= self._positions[cut]:
                    raise
                self.found.begin_at(cut, at, self.source)  # retention was at work

    def _read_some(self, partitions: set[TopicPartition], tries: dict[TopicPartition, int]) -> None:
        from moldau.client.partition_requests import READ_COMMITTED, FetchLimits

        limits = FetchLimits(isolation_level=READ_COMMITTED, partition_max_bytes=4 << 20)
        answers = self.cluster.fetch_many({where: self._positions[where] for where in sorted(partitions)}, limits)
        for where, fetched in answers.items():
            try:
                self._take(where, fetched)
            except CorruptBatchError as error:  # once may be the way from the broker, more often is the log
                tries[where] = tries.get(where, 0) + 1
                if tries[where] > _CORRUPT_TRIES:
                    del tries[where]
                    self._skip(where, error)

    def _take(self, where: TopicPartition, fetched: "FetchedBatches") -> None:
        """The records of a fetch; CorruptBatchError at a batch that is damaged, with all before it taken."""
        from moldau.client.fetched_batches import UnreadableBatchError, VisibleBatches, checked_batches
        from moldau.protocol.records.batch import iterate

        visible, position = VisibleBatches(fetched.aborted), self._positions[where]
        for header, batch in checked_batches(where, fetched, position):
            if visible.shows(header, batch):
                at_ms = header.max_timestamp if header.timestamp_type_is_log_append else None
                try:
                    for record in iterate(batch, max_decompressed_bytes=_BATCH_BYTES_MAX, with_headers=False):
                        if record.offset >= position and (self.wanted is None or self.wanted(record.key, record.value)):
                            self.found.take_value(where.partition, record.offset, record.value, at_ms, self.source)
                except PeerError as error:  # its checksum is right, so it is known where it ends
                    raise UnreadableBatchError(where, position, header.last_offset + 1, error.message) from error
            position = self._positions[where] = header.last_offset + 1

    def _skip(self, where: TopicPartition, error: CorruptBatchError) -> None:
        """Continue after a batch that stays damaged."""
        from moldau.client.fetched_batches import UnreadableBatchError, next_readable

        position = self._positions[where]
        known = error.next_offset if isinstance(error, UnreadableBatchError) else None
        after = self._positions[where] = known or next_readable(self.cluster, where, position)
        log.error("audit records skipped: partition=%s offset=%d up_to=%d reason=%s", where, position, after, error.message)
        self.found.unreadable.append(UnreadableRecord(where.partition, position, error.message, self.source))


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
