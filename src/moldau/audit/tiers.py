"""What the audit topic says: the counts of every tier, and which producer instances have opened and closed theirs.

A tier other than the producers' is heard of in two ways: by its counts, and by *marks*, records of the kind ``open`` with which an auditor
says that at this time everything in its logs was counted. A load publishes no marks; there its newest counts stand in. An ``open`` with a
topic is no mark: with it an auditor says which topic of that name it counts, by the topic's id.
"""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moldau.audit.tally import is_untracked
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import AUDIT_TOPIC, PRODUCER_TIER, AuditRecord, AuditRecordError
from moldau.tracking.counts import Count, CountKey

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

log = logging.getLogger(__name__)

NOTHING = Count()


@dataclass(slots=True)
class Told:
    """What one tier has told of one key: the count, and the time of the newest record of it, in ms."""

    count: Count = NOTHING
    changed_ms: int = 0


@dataclass(slots=True)
class Instance:
    """A producer instance: when it opened and closed, its last sign of life, and what it says to have counted in all. Times in ms."""

    instance: str
    datacenter: str
    service: str
    host: str
    opened_ms: int | None = None
    closed_ms: int | None = None
    heard_ms: int = 0
    published: Count = NOTHING
    declared: Count | None = None

    @property
    def final(self) -> bool:
        """Whether nothing more will come of it: it is closed, and all that it counted has been read."""
        return self.declared is not None and (self.declared.count, self.declared.checksum) == (
            self.published.count,
            self.published.checksum,
        )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record of the audit topic that is no audit record, and why."""

    partition: int
    offset: int
    reason: str


@dataclass(slots=True)
class TierCounts:
    """All tiers. `take` adds a record; the same record twice is the same as once."""

    counts: dict[str, dict[CountKey, Told]] = field(default_factory=dict)
    """By tier, in the order in which the tiers were first heard of."""
    untracked: dict[tuple[str, str], Count] = field(default_factory=dict)
    """Records without a tracked header, by tier and topic."""
    instances: dict[str, Instance] = field(default_factory=dict)
    heard_ms: dict[str, int] = field(default_factory=dict)
    """The newest record of each tier."""
    marked_ms: dict[str, int] = field(default_factory=dict)
    """The newest mark of each tier that publishes marks."""
    topic_ids: dict[tuple[str, str], str] = field(default_factory=dict)
    """By tier and topic: the id, in hex, of the topic of that name that an auditor counted last."""
    unreadable: list[Unreadable] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """Where reading goes on."""
    records: int = 0
    forgotten_ms: dict[str, int] = field(default_factory=dict)
    """Topics of which the audit topic has lost old records, by its retention: the time of the oldest that is left."""
    _oldest_ms: dict[int, int | None] = field(default_factory=dict)
    """The same by partition; None until a record of it was read."""
    _first_ms: dict[str, int] = field(default_factory=dict)
    _patterns: dict[str, tuple[int, str]] = field(default_factory=dict)
    _topics: dict[str, set[str]] = field(default_factory=dict)
    _guids: set[bytes] = field(default_factory=set)

    @property
    def tiers(self) -> tuple[str, ...]:
        """All tiers that have counted: producers first, also if they only opened; then auditors, then loads, by their first counts."""
        auditors = self.auditors
        found = sorted(self.counts.keys() - {PRODUCER_TIER}, key=lambda tier: (tier not in auditors, self._first_ms[tier], tier))
        return (PRODUCER_TIER, *found) if PRODUCER_TIER in self.heard_ms else tuple(found)

    @property
    def auditors(self) -> set[str]:
        """The tiers that say what they count, and up to when."""
        return self.marked_ms.keys() | self._patterns.keys()

    def pattern_of(self, tier: str) -> str:
        """The topics that an auditor counts now, as it says itself; empty if it has no pattern."""
        return self._patterns.get(tier, (0, ""))[1]

    def has_counts_of(self, tier: str, topic: str) -> bool:
        """Whether the tier has ever counted anything of the topic."""
        return topic in self._topics.get(tier, ())

    def vouches_until(self, tier: str) -> int:
        """Up to when the tier is known to have counted everything, in ms; 0 if it was never heard of."""
        return self.marked_ms.get(tier, self.heard_ms.get(tier, 0))

    def take(self, record: AuditRecord) -> bool:
        """Add a record; whether it was a new one."""
        guid = record.guid.encode()
        if guid in self._guids:
            return False
        self._guids.add(guid)
        self.records += 1
        tier, key, time_ms = record.tier, record.key, record.time_ms
        if record.kind == "counts" or not key.topic:
            self.heard_ms[tier] = max(time_ms, self.heard_ms.get(tier, 0))
        if tier == PRODUCER_TIER:
            self._take_sign_of_life(record)
        elif record.kind == "open":
            self._take_mark(record)
        if record.kind != "counts":
            return True
        self._topics.setdefault(tier, set()).add(key.topic)
        if is_untracked(key):
            self.untracked[tier, key.topic] = self.untracked.get((tier, key.topic), NOTHING) + record.count
            return True
        self._first_ms[tier] = min(time_ms, self._first_ms.get(tier, time_ms))
        told = self.counts.setdefault(tier, {}).setdefault(key, Told())
        told.count = told.count + record.count
        told.changed_ms = max(told.changed_ms, time_ms)
        return True

    def _take_mark(self, record: AuditRecord) -> None:
        tier, key, time_ms = record.tier, record.key, record.time_ms
        if time_ms >= self._patterns.get(tier, (0, ""))[0]:
            self._patterns[tier] = (time_ms, key.service)
        if key.topic:
            self.topic_ids[tier, key.topic] = key.instance
        else:
            self.marked_ms[tier] = max(time_ms, self.marked_ms.get(tier, 0))

    def _take_sign_of_life(self, record: AuditRecord) -> None:
        key = record.key
        known = self.instances.get(key.instance)
        if known is None:
            known = self.instances[key.instance] = Instance(key.instance, key.datacenter, key.service, key.host)
        known.heard_ms = max(known.heard_ms, record.time_ms)
        if record.kind == "open":
            known.opened_ms = record.time_ms
        elif record.kind == "close":
            known.closed_ms, known.declared = record.time_ms, record.count
        else:
            known.published = known.published + record.count

    def take_value(self, partition: int, offset: int, value: bytes | None) -> None:
        """Add a record of the audit topic; one that cannot be read is skipped, and the log says which."""
        try:
            record = AuditRecord.from_bytes(value)
        except AuditRecordError as error:
            log.warning("audit record skipped: partition=%s-%d offset=%d reason=%s", AUDIT_TOPIC, partition, offset, error)
            self.unreadable.append(Unreadable(partition, offset, str(error)))
            return
        self.take(record)
        if partition in self._oldest_ms:
            oldest_ms = self._oldest_ms[partition]
            if oldest_ms is None:
                oldest_ms = self._oldest_ms[partition] = record.time_ms
            if record.key.topic:  # the records of a topic share a partition
                self.forgotten_ms[record.key.topic] = oldest_ms

    def begin_at(self, where: TopicPartition, first_offset: int) -> None:
        """Reading goes on there, or at the log's first offset if what comes next is gone."""
        position = self.positions.get(where, 0)
        if first_offset > position:
            self._oldest_ms[where.partition] = None
        self.positions[where] = max(position, first_offset)


def read_audit(cluster: "Cluster", into: TierCounts | None = None) -> TierCounts:
    """Read the audit topic from its beginning, or from where `into` ends, up to what is there now; committed records only.

    Nothing if there is no audit topic. UnreachableError, ConnectionLostError, RequestFailedError.
    """
    from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED

    found = into if into is not None else TierCounts()
    try:
        count = len(cluster.topic(AUDIT_TOPIC).partitions)
    except PeerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return found
    partitions = [TopicPartition(AUDIT_TOPIC, number) for number in range(count)]
    first = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    end = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    for where in partitions:
        found.begin_at(where, first[where].offset)
    left = {where for where in partitions if found.positions[where] < end[where].offset}
    while left:
        _read_some(cluster, left, found)
        left = {where for where in left if found.positions[where] < end[where].offset}
    return found


def _read_some(cluster: "Cluster", partitions: set[TopicPartition], into: TierCounts) -> None:
    from moldau.client.partition_requests import READ_COMMITTED, FetchLimits
    from moldau.client.visible import Visible
    from moldau.protocol.records.batch import batches, iterate

    limits = FetchLimits(isolation_level=READ_COMMITTED, partition_max_bytes=4 << 20)
    answers = cluster.fetch_many({where: into.positions[where] for where in sorted(partitions)}, limits)
    for where, fetched in answers.items():
        visible, position = Visible(fetched.aborted), into.positions[where]
        for header, batch in batches(fetched.records):
            if header.last_offset < position:
                continue
            if visible.shows(header, batch):
                for record in iterate(batch, max_decompressed_bytes=64 << 20):
                    if record.offset >= position:
                        into.take_value(where.partition, record.offset, record.value)
            position = header.last_offset + 1
        into.positions[where] = position
