"""What an auditor reads: all topics of a cluster that it is to count, as they come and go, and where it is in each partition.

A broker that was just started, or that has not yet received a change, does not know topics that exist. An auditor that took them for
deleted would count them from their beginning when they come back.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from moldau.audit.rules import is_counted
from moldau.client.cluster import Cluster
from moldau.client.errors import TruncationError, failure
from moldau.client.groups import GroupOffset
from moldau.client.metadata import NO_TOPIC_ID, TopicMetadata
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchedBatches, FetchLimits
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import Offset, TopicPartition
from moldau.tracking.audit_record import Gap
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)

_NOTE = re.compile(r"([0-9a-f]{32})/([0-9]{1,9})\0?")


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The offset that comes next in a partition, and of which topic; `partitions` is 0 where that is not known."""

    offset: int
    topic_id: bytes = NO_TOPIC_ID
    partitions: int = 0

    @classmethod
    def of(cls, committed: GroupOffset) -> Self:
        """As it was committed; offsets that were set by hand have no note."""
        found = _NOTE.fullmatch(committed.metadata)
        return cls(committed.offset) if found is None else cls(committed.offset, bytes.fromhex(found[1]), int(found[2]))

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it is of the topic with this id, as far as the ids are known."""
        return NO_TOPIC_ID in (self.topic_id, topic_id) or self.topic_id == topic_id


def notes(offsets: Iterable[TopicPartition], topic_ids: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, str]:
    """What is committed beside these offsets; the ids are those of the topics that they are of."""
    known = {where: topic_ids[where] for where in offsets if where in topic_ids}
    counts: dict[tuple[str, bytes], int] = {}
    for topic, topic_id in {(where.topic, topic_id) for where, topic_id in known.items()}:
        count = 0
        while known.get(TopicPartition(topic, count)) == topic_id:
            count += 1
        counts[topic, topic_id] = count
    return {where: f"{topic_id.hex()}/{counts[where.topic, topic_id]}" for where, topic_id in known.items()}


def missing(places: Mapping[TopicPartition, ReadPosition], topic: TopicMetadata) -> list[TopicPartition]:
    """Partitions of a topic without an offset, though there was one once; all of them where nothing is known of the topic."""
    partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    known = {where: places[where] for where in partitions if where in places and places[where].is_of(topic.id)}
    count = max((each.partitions for each in known.values()), default=len(partitions))
    return [where for where in partitions if where not in known and where.partition < count]


UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
LATE_S: Final = 2.0
"""So long after it was made may a topic be unknown to the broker that is asked."""
_LOOK_S: Final = 0.1


def deleted(
    cluster: Cluster, among: Collection[TopicPartition], ids: Mapping[TopicPartition, bytes], stopping: Callable[[], bool]
) -> set[TopicPartition]:
    """Those partitions that were deleted for certain, by their topics' names and the `ids` that these had.

    Topics that no broker knows are given a little time, all of them the same. One that exists and cannot be read is waited for, but not
    by who is `stopping`: it was not deleted. RequestFailedError by then.
    """
    gone: set[TopicPartition] = set()
    unsure = set(among)
    retry, deadline = cluster.retry(), time.monotonic() + LATE_S
    while unsure:
        late = time.monotonic() >= deadline
        topics = cluster.metadata(sorted({where.topic for where in unsure})).topics
        unreadable: set[TopicPartition] = set()
        for where in sorted(unsure):
            found = topics.get(where.topic)
            if found is None or found.error in UNKNOWN:
                if late:
                    gone.add(where)
            elif found.error:
                unreadable.add(where)
            else:
                unsure.remove(where)
                if _is_of_another(where, ids.get(where, NO_TOPIC_ID), found):
                    gone.add(where)
        unsure -= gone
        if unreadable and not stopping():
            retry.pause(failure(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {min(unreadable).topic}"))
            continue
        unsure -= unreadable
        if unsure:
            time.sleep(_LOOK_S)  # not the cluster's pause, which ends who is to stop: the counts would be lost with it
    return gone


def _is_of_another(where: TopicPartition, topic_id: bytes, topic: TopicMetadata) -> bool:
    """Whether this is not the topic that the partition was of: it has another id, or not so many partitions."""
    is_another = NO_TOPIC_ID not in (topic_id, topic.id) and topic_id != topic.id
    return is_another or where.partition >= len(topic.partitions)


FETCH_WAIT_MS: Final = 500
_LIMITS: Final = FetchLimits(
    max_wait_ms=FETCH_WAIT_MS, max_bytes=32 << 20, partition_max_bytes=4 << 20, isolation_level=READ_COMMITTED
)  # fmt: skip
_AT_ONCE: Final = FetchLimits(max_wait_ms=0, max_bytes=32 << 20, partition_max_bytes=4 << 20, isolation_level=READ_COMMITTED)


class TopicReader:
    """Positions in all partitions of the topics that `pattern` matches whole; None: all, but for those that begin with an underscore.

    `places` is where the last auditor of the tier was.
    """

    def __init__(self, cluster: Cluster, pattern: re.Pattern[str] | None, places: Mapping[TopicPartition, ReadPosition]) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        """Where readers of committed records are at the end, by the last fetch."""
        self.unreadable: dict[str, ErrorCode] = {}
        """Topics and partitions that exist and cannot be read now, and why: mostly a missing leader."""
        self.gaps: list[tuple[str, Gap]] = []
        """By topic: what could not be counted, and what was counted and is lost, since the caller last removed entries."""
        self._cluster = cluster
        self._pattern = pattern
        self._places = dict(places)
        self._ids: dict[TopicPartition, bytes] = {}
        """The topic's id when a partition was taken in."""
        self._left: dict[TopicPartition, tuple[bytes, int]] = {}
        """Of partitions that are no longer known: the topic's id, and our position. A broker may not know them for a moment only."""
        self._leaderless: set[TopicPartition] = set()
        self._known_ms: int | None = None
        """When all partitions that there were were known."""
        self._turn = 0

    def wants(self, topic: str) -> bool:
        """Whether a topic is counted."""
        return is_counted(topic, self._pattern)

    @property
    def topic_ids(self) -> dict[TopicPartition, bytes]:
        """The topic's id of each partition that is no longer known, and then of each that is read."""
        return {where: topic_id for where, (topic_id, _) in self._left.items()} | self._ids

    def discover(self) -> None:
        """Take in topics and partitions that are new, from where the tier is or from their beginning; drop those that were deleted."""
        asked_ms = now_ms()
        there = self._list_partitions()
        for where in list(self.positions):
            if where not in there:
                self._forget(where)
            elif NO_TOPIC_ID not in (there[where], self._ids[where]) and there[where] != self._ids[where]:
                self._cluster.forget_topic(where.topic)
                self._forget(where)
        new = sorted(there.keys() - self.positions.keys() - self._leaderless)
        known = {where: position for where in new if (position := self._known_position(where, there[where])) is not None}
        beginnings = self._cluster.list_offsets(dict.fromkeys((each for each in new if each not in known), EARLIEST))
        for where in new:
            self.positions[where] = known[where] if where in known else beginnings[where].offset
            self._ids[where] = there[where]
            self._left.pop(where, None)
            self._places.pop(where, None)
        self._known_ms = None if self.unreadable else asked_ms
        if new:
            topics = sorted({where.topic for where in new})
            log.info("topics found: count=%d partitions=%d names=%s", len(topics), len(new), ",".join(topics[:20]))

    def _list_partitions(self) -> dict[TopicPartition, bytes]:
        """All partitions that are to be counted, with their topics' ids; notes those that cannot be read."""
        there: dict[TopicPartition, bytes] = {}
        unreadable: dict[str, ErrorCode] = {}
        self._leaderless.clear()
        for topic in self._cluster.topics(internal=True):
            if not self.wants(topic.name):
                continue
            if topic.error:
                unreadable[f"topic {topic.name}"] = topic.error
                continue
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition)
                there[where] = topic.id
                if each.leader < 0:
                    self._leaderless.add(where)
                    unreadable[f"partition {where}"] = each.error or ErrorCode.LEADER_NOT_AVAILABLE
        for name in unreadable.keys() - self.unreadable.keys():
            log.warning("not readable, retrying: %s: %s", name, unreadable[name].name)
        self.unreadable = unreadable
        return there

    def _known_position(self, where: TopicPartition, topic_id: bytes) -> int | None:
        """Where we were, or the auditor before us; None for a partition that was not counted yet."""
        left_id, position = self._left.get(where, (NO_TOPIC_ID, 0))
        if left_id == topic_id != NO_TOPIC_ID:
            log.warning("partition known again, counting continues: partition=%s position=%d", where, position)
            return position
        place = self._places.get(where)
        if place is None:
            return None
        if not place.is_of(topic_id):
            log.warning("topic recreated, counted from its beginning: partition=%s offset=%d was of the former one", where, place.offset)
            return None
        return place.offset

    def wait_until_readable(self) -> None:
        """For a single pass: wait until all topics can be read, and if they are named, until some exist or time is up.

        RequestFailedError for one that cannot be read within the cluster's time.
        """
        retry, deadline = self._cluster.retry(), time.monotonic() + LATE_S
        while True:
            self.discover()
            for name, code in self.unreadable.items():
                retry.pause(failure(code, name))
                break
            else:
                if self.positions or self._pattern is None or time.monotonic() >= deadline:
                    return
                retry.pause(failure(ErrorCode.LEADER_NOT_AVAILABLE, "topics"))

    def fetch(self, *, wait: bool, without: Collection[TopicPartition] = ()) -> dict[TopicPartition, FetchedBatches]:
        """What follows the positions, of each partition in turn. Deleted and truncated partitions are handled, and logged."""
        order = sorted(self.positions.keys() - self._leaderless - set(without))
        if not order:
            return {}
        self._turn = (self._turn + 1) % len(order)
        wanted = {where: self.positions[where] for where in [*order[self._turn :], *order[: self._turn]]}
        try:
            answers = self._cluster.fetch_many(wanted, _LIMITS if wait else _AT_ONCE)
        except PeerError as error:
            self.ends.clear()
            self._handle_failure(error)
            return {}
        self.ends = {where: fetched.last_stable_offset for where, fetched in answers.items()}
        return answers

    def latest(self, among: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Where the partitions end now, for readers of committed records; None: all that are read."""
        wanted = dict.fromkeys(self.positions if among is None else among, LATEST)
        found = self._cluster.list_offsets(wanted, isolation_level=READ_COMMITTED)
        return {where: listed.offset for where, listed in found.items()}

    def caught_up_at(self, asked_ms: int) -> int | None:
        """Up to when everything is counted, where the last fetch, of `asked_ms`, has shown the end of every partition; None where not.

        Not later than partitions were looked for: one that was not found yet may have events.
        """
        if self._known_ms is None or self.ends.keys() != self.positions.keys():
            return None
        return min(asked_ms, self._known_ms) if all(self.positions[where] >= end for where, end in self.ends.items()) else None

    def gone(self, among: Collection[TopicPartition], stopping: Callable[[], bool] = lambda: False) -> set[TopicPartition]:
        """Those that were deleted for certain, and not only unknown to a broker for a moment; see `deleted`. RequestFailedError."""
        return deleted(self._cluster, among, self.topic_ids, stopping)

    def left(self) -> dict[TopicPartition, int]:
        """Our positions in partitions that were deleted, or are not known for a moment."""
        return {where: position for where, (_, position) in self._left.items()}

    def _handle_failure(self, error: PeerError) -> None:
        subject = getattr(error, "subject", None)
        if error.code in UNKNOWN:
            gone = [where for where in self.positions if subject in (where, f"topic {where.topic}")]
            if not gone:
                raise error
            for topic in {where.topic for where in gone}:
                self._cluster.forget_topic(topic)
            for where in gone:
                self._forget(where)
            self._known_ms = None
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE and isinstance(subject, TopicPartition):
            self._skip_gap(subject, error)
        elif error.code.retriable and isinstance(subject, TopicPartition) and subject in self.positions:
            log.warning("not readable, retrying: partition %s: %s", subject, error)
            self._leaderless.add(subject)
            self.unreadable[f"partition {subject}"] = error.code
            self._known_ms = None
        else:
            raise error

    def _skip_gap(self, where: TopicPartition, error: PeerError) -> None:
        """The log begins after our position, or ends before it: nothing is counted again, and the gap is reported."""
        position = self.positions[where]
        first = self._cluster.list_offsets({where: EARLIEST})[where].offset
        last = self._cluster.list_offsets({where: LATEST})[where].offset
        if isinstance(error, TruncationError):
            last = Offset(max(error.end_offset, first))
        elif first <= position <= last:
            raise error
        gap = Gap(where.partition, position, first, "gone") if position < first else Gap(where.partition, last, position, "cut")
        what = "records deleted before they were counted" if gap.cause == "gone" else "records counted that the log has lost"
        log.error("%s: partition=%s position=%d log=[%d, %d)", what, where, position, first, last)
        self.gaps.append((where.topic, gap))
        self.positions[where] = gap.end_offset if gap.cause == "gone" else gap.start_offset

    def _forget(self, where: TopicPartition) -> None:
        position = self.positions.pop(where)
        log.warning("partition no longer known, not counted: partition=%s position=%d", where, position)
        self._left[where] = (self._ids.pop(where), position)
        self.ends.pop(where, None)
