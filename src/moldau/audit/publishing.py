"""An auditor's counts and the offsets that they reach up to, in one transaction.

The transactional id and the group belong to the tier: ``moldau-audit-TIER`` and ``audit-TIER``. Taking over the id fences the present
auditor and aborts its open transaction; so the group's offsets are exactly those of the counts that can be read.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moldau.audit.follow import read_audit
from moldau.audit.points import reached
from moldau.audit.reading import ReadPosition, missing, notes
from moldau.audit.rules import is_counted
from moldau.client.cluster import Cluster
from moldau.client.consumer import Consumer
from moldau.client.failures import ClientError, FencedError
from moldau.client.groups import Groups
from moldau.client.metadata import NO_TOPIC_ID
from moldau.client.producer import Producer
from moldau.model.errors import MoldauError, WorldError
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, Gap, ensure_audit_topic, new_guid
from moldau.tracking.clock import now_ms, since_boot_s
from moldau.tracking.counts import Count, CountKey
from moldau.tracking.latencies import Latencies

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 60_000
_PUBLISH_AGAIN_MS = 24 * 3_600_000
"""A topic's id is published again so often: the audit topic must hold it for as long as it holds counts of the topic."""


def group_of(tier: str) -> str:
    """The group that a tier's auditor keeps its offsets in."""
    return f"audit-{tier}"


class Counted(NamedTuple):
    """What is published of a stretch of the logs."""

    counts: Mapping[CountKey, Count]
    latencies: Mapping[tuple[str, int], Latencies]
    """By topic and start of the window."""


class LostOffsetsError(MoldauError):
    """The tier has counts of partitions of which its group no longer has offsets: to count from the beginning would count twice."""


class TierTakenError(MoldauError):
    """The tier counts for a load."""


class OverdueError(WorldError):
    """A transaction was open for longer than brokers allow: while this process was stopped, or they did not answer. They abort it and fence
    its producer, as if another auditor had the tier; perhaps one has."""

    def __init__(self, tier: str, open_s: float, fenced: FencedError, known: Mapping[TopicPartition, frozenset[int]]) -> None:
        super().__init__(f"the transaction of tier {tier} was open for {open_s:.0f} s, so that brokers ended it", retriable=True)
        self.fenced = fenced
        self.known = known
        """The offsets that the group has if no other auditor commits any: those before the transaction, or those of it."""


class Publisher:
    """Publishes for one tier. ImportError without confluent-kafka. `take_over` comes first."""

    def __init__(
        self, bootstrap: str, tier: str, topics: re.Pattern[str] | None = None, *, transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> None:
        self.tier = tier
        self._topics = topics
        self._bootstrap = bootstrap
        self._timeout_s = transaction_timeout_ms / 1000
        self._committed: dict[TopicPartition, int] = {}
        self._cluster_id = ""
        self._published_ids: dict[str, tuple[bytes, int]] = {}
        """The ids that were published, and when."""
        client_id = f"moldau-audit-{tier}"
        self._producer = Producer(
            bootstrap, client_id=client_id, transactional_id=client_id, transaction_timeout_ms=transaction_timeout_ms
        )  # fmt: skip
        self._member = Consumer(bootstrap, client_id=client_id, group_id=group_of(tier), auto_commit=False)

    def take_over(self, cluster: Cluster) -> dict[TopicPartition, ReadPosition]:
        """Fence the present auditor of the tier; the positions that it had reached. TransactionError, WorldError, LostOffsetsError.

        Brokers expire the offsets of a group without members, after a week by default, all or some of them; and those of topics that are
        deleted, at once. The latter is no harm: there is nothing left to be counted again.
        """
        ensure_audit_topic(self._bootstrap)
        self._cluster_id = cluster.metadata([]).cluster_id or ""
        self._producer.init_transactions(TRANSACTION_TIMEOUT_MS / 1000)
        reached("id taken over")
        committed = Groups(cluster).committed(group_of(self.tier), stable=True)
        places = {where: ReadPosition.of(each) for where, each in committed.items()}
        self._committed = {where: each.offset for where, each in committed.items()}
        if not places:
            self._check_not_a_loads(cluster)
        twice = self._counted_already(cluster, places)
        if twice:
            group, names = group_of(self.tier), ", ".join(twice[:5]) + (", ..." if len(twice) > 5 else "")
            raise LostOffsetsError(
                f"tier {self.tier} has counts in {AUDIT_TOPIC}, but group {group} has no offsets of {names}: what is counted of it "
                f"would be counted again; take another name for the tier, or set where it continues by `moldau group reset {group}`"
            )
        return places

    def _check_not_a_loads(self, cluster: Cluster) -> None:
        """A new auditor counts under a name that is no load's. TierTakenError."""
        owners = [(topic, owner) for (tier, topic), owner in sorted(read_audit(cluster).owners.items()) if tier == self.tier]
        if owners:
            topic, owner = owners[0]
            raise TierTakenError(f"tier {self.tier} counts topic {topic} for {owner}: an auditor needs another --tier")

    def check_not_replaced(self, cluster: Cluster, overdue: OverdueError) -> None:
        """Before the tier is taken over again. FencedError if another auditor has published for it meanwhile."""
        found = Groups(cluster).committed(group_of(self.tier), stable=True)
        if any(each.offset not in overdue.known.get(where, ()) for where, each in found.items()):
            raise overdue.fenced

    def _counted_already(self, cluster: Cluster, places: Mapping[TopicPartition, ReadPosition]) -> list[str]:
        """Topics and partitions that this tier has counted and that still exist, and of which it is not known up to where.

        For a topic without any offset the audit topic shows whether it was counted, unless it is known to be another of the same name.
        """
        twice, found = [], None
        for topic in cluster.topics(internal=True):
            lost = missing(places, topic) if is_counted(topic.name, self._topics) else []
            if len(lost) < len(topic.partitions):
                twice += [str(where) for where in lost]
            elif lost:
                found = found or read_audit(cluster)
                known = found.topic_ids.get((self.tier, topic.name))
                another = known is not None and topic.id != NO_TOPIC_ID and known != topic.id.hex()
                if not another and found.has_counts_of(self.tier, topic.name):
                    twice.append(topic.name)
        return sorted(twice)

    def publish(
        self,
        counted: Counted,
        offsets: Mapping[TopicPartition, int],
        caught_up_ms: int | None,
        topic_ids: Mapping[TopicPartition, bytes],
        gaps: Sequence[tuple[str, Gap]] = (),
    ) -> None:
        """Counts, offsets, if there is a time, the mark that everything before it is counted, gaps, ids that are news: all or nothing.

        TransactionAbortedError: nothing of it; it may be published again. FencedError: another auditor has this tier. TransactionError:
        the outcome is unknown; the next take-over shows it. OverdueError: the same, and perhaps another auditor has this tier.
        """
        begun = since_boot_s()
        try:
            self._publish(counted, offsets, caught_up_ms, topic_ids, gaps)
        except FencedError as error:
            open_s = since_boot_s() - begun
            if open_s < self._timeout_s:
                raise
            wheres = self._committed.keys() | offsets.keys()
            known = {where: frozenset(each[where] for each in (self._committed, offsets) if where in each) for where in wheres}
            raise OverdueError(self.tier, open_s, error, known) from error
        self._committed |= offsets
        reached("committed")

    def _publish(
        self,
        counted: Counted,
        offsets: Mapping[TopicPartition, int],
        caught_up_ms: int | None,
        topic_ids: Mapping[TopicPartition, bytes],
        gaps: Sequence[tuple[str, Gap]],
    ) -> None:
        time_ms = now_ms()
        pattern = "" if self._topics is None else self._topics.pattern
        read = {where.topic: topic_id for where, topic_id in topic_ids.items() if where in offsets}
        news = {topic: topic_id for topic, topic_id in read.items() if self._is_news(topic, topic_id, time_ms)}
        with self._producer.transaction() as transaction:
            reached("transaction begun")
            for key, count in counted.counts.items():
                self._send(AuditRecord.of_counts(self.tier, key, count, time_ms=time_ms))
            for (topic, start_ms), latencies in counted.latencies.items():
                self._send(AuditRecord.of_latencies(self.tier, topic, start_ms, latencies, time_ms=time_ms))
            if caught_up_ms is not None:
                everything = CountKey("", 0, "", pattern, "", self.tier)
                self._send(AuditRecord("open", new_guid(), caught_up_ms, self.tier, everything, cluster=self._cluster_id))
            for topic, topic_id in news.items():
                self._send(AuditRecord("open", new_guid(), time_ms, self.tier, CountKey(topic, 0, "", pattern, "", topic_id.hex())))
            for topic, gap in gaps:
                self._send(AuditRecord("gap", new_guid(), time_ms, self.tier, CountKey(topic, 0, "", "", "", self.tier), gap=gap))
            reached("counts sent")
            transaction.commit_offsets(self._member, offsets, notes(offsets, topic_ids))
            reached("offsets added")
        self._published_ids |= {topic: (topic_id, time_ms) for topic, topic_id in news.items()}

    def _is_news(self, topic: str, topic_id: bytes, time_ms: int) -> bool:
        published, published_ms = self._published_ids.get(topic, (NO_TOPIC_ID, 0))
        return topic_id != NO_TOPIC_ID and (topic_id != published or time_ms >= published_ms + _PUBLISH_AGAIN_MS)

    def _send(self, record: AuditRecord) -> None:
        self._producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)

    def abandon(self) -> None:
        """The process ends while brokers do not answer: stop waiting for them."""
        self._producer.abandon()

    def close(self) -> None:
        """Close the connections. Nothing is lost: what was not committed is counted again."""
        for each in (self._producer, self._member):
            try:
                each.close()
            except ClientError as error:
                log.warning("audit: while closing: %s", error)
