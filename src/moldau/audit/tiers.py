"""What the audit topic holds: the counts of every tier, and which producer instances have opened and closed theirs. Pure.

A tier other than the producers' is known by two things: its counts, and *marks*, records of the kind ``open`` by which an auditor
states that at this time everything in its logs was counted. A load publishes no marks; there its newest counts stand in. An ``open`` with a
topic is no mark: by it an auditor states which topic of that name it counts, by the topic's id.

The time of a record is the time of the broker that took it, where the audit topic has that (``LogAppendTime``): clocks of hosts
may be wrong, and it is for the audit to find that out. Otherwise it is the time in the record itself.

A watch of months cannot keep each count. A window is *settled* when it is complete in all tiers, to the byte, and was not changed
for a day: all tiers have the same count, so that nothing is lost to any comparison when it is taken away from all of them. Settled windows
are kept as one number for each topic. Late events that come into one later are compared by themselves, and are missing or doubled if they
would have been with all the others.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from moldau.audit.tally import is_untracked
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import AUDIT_TOPIC, PRODUCER_TIER, AuditRecord, AuditRecordError, Gap
from moldau.tracking.counts import NOTHING, WINDOW_MS, Count, CountKey
from moldau.tracking.latencies import NO_LATENCIES, Latencies

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TierCount:
    """What a tier has published of a key: the count, the time of its newest record, and how long that was after its newest event at
    least, all in ms; negative for events of the future."""

    count: Count = NOTHING
    changed_ms: int = 0
    lag_ms: int | None = None
    dead_letters: int = 0


@dataclass(slots=True)
class ProducerInstance:
    """A producer instance: when it opened and closed, its newest record, and its own total. Times in ms."""

    instance: str
    datacenter: str
    service: str
    host: str
    opened_ms: int | None = None
    closed_ms: int | None = None
    heard_ms: int = 0
    newest_ms: int = 0
    """When it made its newest record, by its own clock."""
    vouched_ms: int = 0
    """The same by the earlier of two clocks, its own and the broker's: everything before that is published."""
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
class ReportedGap:
    """A gap in what a tier has counted of a topic, and when that was published, in ms."""

    tier: str
    topic: str
    gap: Gap
    time_ms: int


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record of the audit topic that is no audit record, and why."""

    partition: int
    offset: int
    reason: str
    source: str = ""
    """The cluster, where several were asked."""


@dataclass(slots=True)
class SettledShare:
    """What one tier had of the settled windows of a topic."""

    count: Count = NOTHING
    dead_letters: int = 0
    """How many of the count were put aside."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """From and to when it has such windows, in order, not touching."""

    @property
    def windows(self) -> int:
        """How many."""
        return sum(end - start for start, end in self.spans) // WINDOW_MS

    def __contains__(self, start_ms: object) -> bool:
        return isinstance(start_ms, int) and any(start <= start_ms < end for start, end in self.spans)

    def add(self, start_ms: int, count: Count) -> None:
        """One more window, or one that was settled before and had late events since."""
        self.count = self.count + count
        self.spans = _joined([*self.spans, (start_ms, start_ms + WINDOW_MS)])


@dataclass(slots=True)
class SettledWindows:
    """Of one topic. `tiers` had all counted all of them, each its share."""

    shares: dict[str, SettledShare] = field(default_factory=dict)
    """By lower tier that had any of them: the windows whose numbers are wanted."""
    tiers: tuple[str, ...] = ()
    spans: list[tuple[int, int]] = field(default_factory=list)
    """From and to when there are settled windows, in order, not touching."""
    skewed: list[tuple[int, int]] = field(default_factory=list)
    """The same of those that only hosts with wrong clocks have; they hold up no watermark, and raise none."""

    def share(self, tier: str) -> SettledShare:
        """What a tier had of them."""
        return self.shares.setdefault(tier, SettledShare())

    def add(self, start_ms: int, counts: Mapping[str, Count], *, shown: bool, skewed: bool) -> None:
        """One more window, or one that was settled before and had late events since. `shown`: whether its numbers are wanted."""
        for tier, count in counts.items():
            share = self.share(tier)
            if shown:
                share.add(start_ms, count)
        if skewed:
            self.skewed = _joined([*self.skewed, (start_ms, start_ms + WINDOW_MS)])
        else:
            self.spans = _joined([*self.spans, (start_ms, start_ms + WINDOW_MS)])

    def shared_by(self, tiers: Iterable[str]) -> None:
        """What comes now is counted by these: the first ones of all, or else those of them that had what there is already."""
        self.tiers = tuple(tier for tier in self.tiers if tier in set(tiers)) if self.spans or self.skewed else tuple(tiers)

    def newest_before(self, limit_ms: int | None) -> int | None:
        """The end of the newest settled window that begins before a time, None: of all."""
        ends = [end if limit_ms is None else min(end, limit_ms) for start, end in self.spans if limit_ms is None or start < limit_ms]
        return max(ends, default=None)


@dataclass(frozen=True, slots=True)
class SettledPair:
    """What is settled of a topic between a tier and those above it: complete, and not among the windows of the report."""

    topic: str
    upper_tier: str
    lower_tier: str
    count: Count
    windows: int
    dead_letters: int = 0
    """Of the lower tier."""


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


@dataclass(slots=True)
class AuditPlace:
    """Where reading is in the audit topic of one cluster."""

    topic_id: bytes | None = None
    """Of the topic that was read."""
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """Where reading continues."""
    oldest_ms: dict[int, int | None] = field(default_factory=dict)
    """Of partitions that have lost records, by retention: the time of the oldest that is left; None until it was read."""

    def begin_at(self, where: TopicPartition, first_offset: int) -> None:
        """Continue there, or at the log's first offset if the next record was deleted."""
        position = self.positions.get(where, 0)
        if first_offset > position:
            self.oldest_ms[where.partition] = None
        self.positions[where] = max(position, first_offset)


OWN_SOURCE = ""
"""The name of the only cluster that is asked, where there is one."""

LATE_MS = 24 * 3_600_000
"""A record that is so much older than the newest one, and that may have been taken before, is looked up."""


@dataclass(slots=True)
class TierCounts:
    """All tiers. `take` adds a record; the same record twice is the same as once, and one that was taken back before it came is none."""

    counts: dict[str, dict[CountKey, TierCount]] = field(default_factory=dict)
    """By tier, in the order in which the tiers were first seen."""
    untracked: dict[tuple[str, str], Count] = field(default_factory=dict)
    """Records without a tracked header, by tier and topic."""
    instances: dict[str, ProducerInstance] = field(default_factory=dict)
    heard_ms: dict[str, int] = field(default_factory=dict)
    """The newest record of each tier; 0 for one that has only claimed topics, or taken counts back."""
    marked_ms: dict[str, int] = field(default_factory=dict)
    """The newest mark of each tier that publishes marks."""
    cluster_marks: dict[str, dict[str, int]] = field(default_factory=dict)
    """The same by the id of the cluster that was counted; a tier should be one cluster."""
    counted_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """The newest mark of each tier and topic, of tiers that publish them by topic."""
    owners: dict[tuple[str, str], str] = field(default_factory=dict)
    """The owner of the counts of a tier and topic, where one was published."""
    epochs: dict[tuple[str, str], str] = field(default_factory=dict)
    """By tier and topic: the guid of the last record that took its counts back."""
    dead_letters: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of the untracked records of a tier and topic, how many were put aside as dead letters."""
    topic_ids: dict[tuple[str, str], str] = field(default_factory=dict)
    """By tier and topic: the id, in hex, of the topic of that name that an auditor counted last."""
    gaps: list[ReportedGap] = field(default_factory=list)
    unreadable: list[UnreadableRecord] = field(default_factory=list)
    settled: dict[str, SettledWindows] = field(default_factory=dict)
    """By topic: windows that are complete in all tiers, and no longer among the counts; see `moldau.audit.forgetting`."""
    latencies: dict[tuple[str, str, int], Latencies] = field(default_factory=dict)
    """By tier, topic and start of the window: how long events were on their way to the tier."""
    counted_by: dict[str, set[str]] = field(default_factory=dict)
    """By instance: the tiers that counted it in windows that are no longer among the counts."""
    lags: dict[tuple[str, str, str, str], int] = field(default_factory=dict)
    """Of hosts (topic, datacenter, service, host) in settled windows: how much later than its newest event a count was published."""
    stale: bool = False
    """Whether records arrived about what was dropped here: the audit topic has to be read again."""
    again_at: float = 0.0
    """Not before that, by the monotonic clock."""
    places: dict[str, AuditPlace] = field(default_factory=dict)
    """By the name of the cluster whose audit topic was read: a record may be in several of them, and counts once."""
    beginnings: int = 0
    """How often everything was forgotten, to be read again."""
    records: int = 0
    forgotten_ms: dict[str, int] = field(default_factory=dict)
    """Topics of which the audit topic has lost old records, by its retention: the time of the oldest that is left."""
    _first_ms: dict[str, int] = field(default_factory=dict)
    _patterns: dict[str, tuple[int, str]] = field(default_factory=dict)
    _topics: dict[str, set[str]] = field(default_factory=dict)
    _guids: set[bytes] = field(default_factory=set)
    _guids_before: set[bytes] | None = None
    """Those of the day before; None while all are known."""

    @property
    def tiers(self) -> tuple[str, ...]:
        """All tiers that have counted: producers first, also if they only opened; then auditors, then loads, by their first counts."""
        auditors = self.auditors
        found = sorted(self.counts.keys() - {PRODUCER_TIER}, key=lambda tier: (tier not in auditors, self._first_ms[tier], tier))
        return (PRODUCER_TIER, *found) if PRODUCER_TIER in self.heard_ms else tuple(found)

    @property
    def auditors(self) -> set[str]:
        """The tiers that publish what they count, and up to when."""
        return self.marked_ms.keys() | self._patterns.keys()

    def pattern_of(self, tier: str) -> str:
        """The pattern of topics that an auditor counts now, as it published it; empty if it has none."""
        return self._patterns.get(tier, (0, ""))[1]

    def has_counts_of(self, tier: str, topic: str) -> bool:
        """Whether the tier has ever counted anything of the topic."""
        return topic in self._topics.get(tier, ())

    def vouches_until(self, tier: str, topic: str) -> int:
        """Up to when the tier is known to have counted everything of the topic, in ms; 0 if it has published nothing."""
        if tier in self.marked_ms:
            return min((self.cluster_marks[tier][cluster] for cluster in self.clusters_of(tier)), default=self.marked_ms[tier])
        if any(each == tier for each, _ in self.counted_ms):
            return self.counted_ms.get((tier, topic), 0)
        return self.heard_ms.get(tier, 0)

    def clusters_of(self, tier: str) -> list[str]:
        """The clusters that are counted under a tier's name, by their ids; one that has published no mark for a day is none any more."""
        marks = self.cluster_marks.get(tier, {})
        return sorted(cluster for cluster, marked_ms in marks.items() if marked_ms > self.marked_ms[tier] - LATE_MS)

    def start_over(self) -> None:
        """Forget everything."""
        fresh = TierCounts(again_at=self.again_at, beginnings=self.beginnings + 1)
        for each in fields(self):
            setattr(self, each.name, getattr(fresh, each.name))

    def forget_guids(self) -> None:
        """Keep those since the last time that this was asked, and no others."""
        self._guids_before, self._guids = self._guids, set()

    def take(self, record: AuditRecord, at_ms: int | None = None) -> bool:
        """Add a record; whether it was a new one. `at_ms` is the time of the broker that took it."""
        if record.epoch is not None and record.epoch != self.epochs.get((record.tier, record.key.topic), record.epoch):
            return False  # taken back while it was on its way
        guid = _packed(record.guid)
        if guid in self._guids or (self._guids_before is not None and guid in self._guids_before):
            return False
        self._guids.add(guid)
        self.records += 1
        tier, key, time_ms = record.tier, record.key, record.time_ms if at_ms is None else at_ms
        if record.kind == "counts" and self._may_be_known(record, at_ms):
            self.stale = True
        if record.latencies:
            self._take_latencies(record)
            return True
        if record.kind == "counts" or not key.topic:
            says_nothing_counted = record.is_of_tier and record.counted_ms is None  # claims a topic, or takes counts back
            self.heard_ms[tier] = max(0 if says_nothing_counted else time_ms, self.heard_ms.get(tier, 0))
        if tier == PRODUCER_TIER:
            self._take_sign_of_life(record, time_ms)
        elif record.kind == "open":
            self._take_mark(record, time_ms)
        if record.gap is not None:
            self.gaps.append(ReportedGap(tier, key.topic, record.gap, time_ms))
        if record.kind != "counts":
            return True
        if record.forgets:
            self._take_back(tier, key.topic, record.guid)
            return True
        if record.owner:
            self.owners.setdefault((tier, key.topic), record.owner)
        if record.counted_ms is not None:
            counted_ms = min(record.counted_ms, time_ms)
            self.counted_ms[tier, key.topic] = max(counted_ms, self.counted_ms.get((tier, key.topic), 0))
        self._topics.setdefault(tier, set()).add(key.topic)
        if record.is_of_tier:
            self._first_ms[tier] = min(time_ms, self._first_ms.get(tier, time_ms))
            self.counts.setdefault(tier, {})
            return True
        if is_untracked(key):
            self.untracked[tier, key.topic] = self.untracked.get((tier, key.topic), NOTHING) + record.count
            self.dead_letters[tier, key.topic] = self.dead_letters.get((tier, key.topic), 0) + record.dead_letters
            return True
        self._first_ms[tier] = min(time_ms, self._first_ms.get(tier, time_ms))
        counts = self.counts.setdefault(tier, {})
        entry = counts.get(key)
        if entry is None:
            entry = counts[key] = TierCount()
        entry.count = entry.count + record.count
        entry.dead_letters += record.dead_letters
        entry.changed_ms = max(entry.changed_ms, time_ms)
        if record.count.max_time_ms is not None:
            lag_ms = time_ms - record.count.max_time_ms
            entry.lag_ms = lag_ms if entry.lag_ms is None else min(lag_ms, entry.lag_ms)
        return True

    def _take_latencies(self, record: AuditRecord) -> None:
        window = (record.tier, record.key.topic, record.key.window_start_ms)
        self.latencies[window] = self.latencies.get(window, NO_LATENCIES) + record.latencies

    def _take_back(self, tier: str, topic: str, guid: str) -> None:
        """Forget what the tier has counted of the topic so far; where windows of it are settled, by reading everything again."""
        for key in [key for key in self.counts.get(tier, ()) if key.topic == topic]:
            del self.counts[tier][key]
        self._topics.get(tier, set()).discard(topic)
        for of_topic in (self.untracked, self.dead_letters, self.owners, self.counted_ms):
            of_topic.pop((tier, topic), None)
        self.gaps = [gap for gap in self.gaps if (gap.tier, gap.topic) != (tier, topic)]
        self.latencies = {window: each for window, each in self.latencies.items() if window[:2] != (tier, topic)}
        self.epochs[tier, topic] = guid
        if topic in self.settled and tier in self.settled[topic].tiers:
            self.stale = True

    def _may_be_known(self, record: AuditRecord, at_ms: int | None) -> bool:
        """Whether it may have been taken before, by a guid that is forgotten.

        Where brokers do not say when they took it, it is not before the records of tiers other than producers, whose clocks may be wrong.
        """
        if self._guids_before is None or record.tier in self.marked_ms:
            return False
        if record.tier == PRODUCER_TIER:  # by its own clock, which may be wrong
            instance = self.instances.get(record.key.instance)
            return instance is not None and record.time_ms < instance.newest_ms - LATE_MS
        if at_ms is None:
            at_ms = max((heard_ms for tier, heard_ms in self.heard_ms.items() if tier != PRODUCER_TIER), default=0)
        return record.time_ms < at_ms - LATE_MS

    def _take_mark(self, record: AuditRecord, at_ms: int) -> None:
        tier, key, time_ms = record.tier, record.key, min(record.time_ms, at_ms)
        if time_ms >= self._patterns.get(tier, (0, ""))[0]:
            self._patterns[tier] = (time_ms, key.service)
        if key.topic:
            self.topic_ids[tier, key.topic] = key.instance
        else:
            self.marked_ms[tier] = max(time_ms, self.marked_ms.get(tier, 0))
            if record.cluster:
                marks = self.cluster_marks.setdefault(tier, {})
                marks[record.cluster] = max(time_ms, marks.get(record.cluster, 0))

    def _take_sign_of_life(self, record: AuditRecord, time_ms: int) -> None:
        key = record.key
        known = self.instances.get(key.instance)
        if known is None:
            known = self.instances[key.instance] = ProducerInstance(key.instance, key.datacenter, key.service, key.host)
        known.heard_ms = max(known.heard_ms, time_ms)
        known.newest_ms = max(known.newest_ms, record.time_ms)
        known.vouched_ms = max(known.vouched_ms, min(record.time_ms, time_ms))
        if record.kind == "open":
            known.opened_ms = time_ms
        elif record.kind == "close":
            known.closed_ms, known.declared = time_ms, record.count
        else:
            known.published = known.published + record.count

    def place(self, source: str = OWN_SOURCE) -> AuditPlace:
        """Where reading is in the audit topic of a cluster."""
        return self.places.setdefault(source, AuditPlace())

    def take_value(self, partition: int, offset: int, value: bytes | None, at_ms: int | None = None, source: str = OWN_SOURCE) -> None:
        """Add a record of the audit topic; one that cannot be read is skipped and logged."""
        try:
            record = AuditRecord.from_bytes(value)
        except AuditRecordError as error:
            log.warning("audit record skipped: partition=%s-%d offset=%d reason=%s", AUDIT_TOPIC, partition, offset, error)
            self.unreadable.append(UnreadableRecord(partition, offset, str(error), source))
            return
        self.take(record, at_ms)
        oldest = self.place(source).oldest_ms
        if partition in oldest:
            oldest_ms = oldest[partition]
            if oldest_ms is None:
                oldest_ms = oldest[partition] = record.time_ms if at_ms is None else at_ms
            if record.key.topic:  # the records of a topic share a partition
                self.forgotten_ms[record.key.topic] = max(oldest_ms, self.forgotten_ms.get(record.key.topic, oldest_ms))

    def begin_at(self, where: TopicPartition, first_offset: int, source: str = OWN_SOURCE) -> None:
        """Continue there, or at the log's first offset if the next record was deleted; unreadable records before it are dropped."""
        place = (source, where.partition)
        self.unreadable = [each for each in self.unreadable if (each.source, each.partition) != place or each.offset >= first_offset]
        self.place(source).begin_at(where, first_offset)


def _packed(guid: str) -> bytes:
    """In half the room, if it is made of hex digits as ours are."""
    try:
        return bytes.fromhex(guid) if len(guid) == 32 else guid.encode()
    except ValueError:
        return guid.encode()
