"""What an auditor reads: all topics of a cluster that it is to count, as they come and go, and where it is in each partition."""

import logging
import re
import time
from collections.abc import Mapping

from moldau.audit.coverage import is_counted
from moldau.client.cluster import Cluster
from moldau.client.metadata import NO_TOPIC_ID
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, Fetched, FetchLimits
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition

log = logging.getLogger(__name__)

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
FETCH_WAIT_MS = 500
_LIMITS = FetchLimits(
    max_wait_ms=FETCH_WAIT_MS, max_bytes=32 << 20, partition_max_bytes=4 << 20, isolation_level=READ_COMMITTED
)  # fmt: skip
_AT_ONCE = FetchLimits(max_wait_ms=0, max_bytes=32 << 20, partition_max_bytes=4 << 20, isolation_level=READ_COMMITTED)


class Reading:
    """Positions in all partitions of the topics that `pattern` matches whole; None: all, but for those that begin with an underscore."""

    def __init__(self, cluster: Cluster, pattern: re.Pattern[str] | None, committed: Mapping[TopicPartition, int]) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        """Where readers of committed records are at the end, as far as the last fetch told."""
        self._cluster = cluster
        self._pattern = pattern
        self._committed = dict(committed)
        self._ids: dict[TopicPartition, bytes] = {}
        """The topic's id when a partition was taken in."""
        self._left: dict[TopicPartition, tuple[bytes, int]] = {}
        """Of partitions that are gone: the topic's id, and where we were. A broker may only not know of them for a moment."""
        self._known_ms: int | None = None
        """When all partitions that there were were known."""
        self._turn = 0

    def wants(self, topic: str) -> bool:
        """Whether a topic is counted."""
        return is_counted(topic, self._pattern)

    @property
    def topic_ids(self) -> dict[str, bytes]:
        """Of the topics that are read."""
        return {where.topic: topic_id for where, topic_id in self._ids.items()}

    def discover(self) -> None:
        """Take in topics and partitions that are new, from where the group is or from their beginning; let go of those that are gone."""
        asked_ms = int(time.time() * 1000)
        there: dict[TopicPartition, bytes] = {}
        for topic in self._cluster.topics():
            if not topic.error and self.wants(topic.name):
                there.update((TopicPartition(topic.name, each.partition), topic.id) for each in topic.partitions)
        for where in self.positions.keys() - there.keys():
            self._forget(where)
        new = sorted(there.keys() - self.positions.keys())
        known: dict[TopicPartition, int] = {}
        for where in new:
            topic_id, position = self._left.pop(where, (NO_TOPIC_ID, 0))
            if where in self._committed:
                known[where] = self._committed.pop(where)
            elif topic_id == there[where] != NO_TOPIC_ID:
                log.warning("partition back: partition=%s position=%d", where, position)
                known[where] = position
        beginnings = self._cluster.list_offsets(dict.fromkeys((each for each in new if each not in known), EARLIEST))
        for where in new:
            self.positions[where] = known[where] if where in known else beginnings[where].offset
            self._ids[where] = there[where]
        self._known_ms = asked_ms
        if new:
            topics = sorted({where.topic for where in new})
            log.info("topics found: count=%d partitions=%d names=%s", len(topics), len(new), ",".join(topics[:20]))

    def fetch(self, *, wait: bool) -> dict[TopicPartition, Fetched]:
        """What there is behind the positions, of each partition in turn. A partition that is gone or was cut is seen to, and told of."""
        if not self.positions:
            return {}
        order = sorted(self.positions)
        self._turn = (self._turn + 1) % len(order)
        wanted = {where: self.positions[where] for where in [*order[self._turn :], *order[: self._turn]]}
        try:
            answers = self._cluster.fetch_many(wanted, _LIMITS if wait else _AT_ONCE)
        except PeerError as error:
            self._see_to(error)
            return {}
        self.ends = {where: fetched.last_stable_offset for where, fetched in answers.items()}
        return answers

    def latest(self) -> dict[TopicPartition, int]:
        """Where the partitions end now, for readers of committed records."""
        found = self._cluster.list_offsets(dict.fromkeys(self.positions, LATEST), isolation_level=READ_COMMITTED)
        return {where: listed.offset for where, listed in found.items()}

    def caught_up_at(self, asked_ms: int) -> int | None:
        """Up to when everything is counted, where the last fetch, of `asked_ms`, has shown the end of every partition; None where not.

        Not later than partitions were looked for: one that nobody here knows of yet may have events.
        """
        if self._known_ms is None or self.ends.keys() != self.positions.keys():
            return None
        return min(asked_ms, self._known_ms) if all(self.positions[where] >= end for where, end in self.ends.items()) else None

    def _see_to(self, error: PeerError) -> None:
        subject = getattr(error, "subject", None)
        if error.code in _GONE:
            gone = [where for where in self.positions if subject in (where, f"topic {where.topic}")]
            if not gone:
                raise error
            for topic in {where.topic for where in gone}:
                self._cluster.forget_topic(topic)
            for where in gone:
                self._forget(where)
            self._known_ms = None
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE and isinstance(subject, TopicPartition):
            first = self._cluster.list_offsets({subject: EARLIEST})[subject].offset
            last = self._cluster.list_offsets({subject: LATEST})[subject].offset
            position = self.positions[subject]
            log.error("records gone before they were counted: partition=%s position=%d log=[%d, %d)", subject, position, first, last)
            self.positions[subject] = first
        else:
            raise error

    def _forget(self, where: TopicPartition) -> None:
        position = self.positions.pop(where)
        log.warning("partition gone: partition=%s position=%d", where, position)
        self._left[where] = (self._ids.pop(where), position)
        self.ends.pop(where, None)
