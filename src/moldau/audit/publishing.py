"""An auditor's counts and the offsets that they reach up to, in one transaction (mission H2).

The transactional id and the group belong to the tier: ``moldau-audit-TIER`` and ``audit-TIER``. Whoever takes the id over fences the
auditor that had it, and what that one left open is aborted; so the group's offsets are exactly those of the counts that can be read.
"""

import logging
import time
from collections.abc import Mapping

from moldau.audit.points import reached
from moldau.audit.tiers import read_audit
from moldau.client.cluster import Cluster
from moldau.client.consumer import Consumer
from moldau.client.failures import ClientError
from moldau.client.groups import Groups
from moldau.client.producer import Producer
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic, new_guid
from moldau.tracking.counts import Count, CountKey

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 60_000


def group_of(tier: str) -> str:
    """The group that a tier's auditor keeps its offsets in."""
    return f"audit-{tier}"


class LostOffsetsError(MoldauError):
    """The tier has counts, but its group has no offsets any more: to count from the beginning would count twice."""


class Publisher:
    """Publishes for one tier. ImportError without confluent-kafka. `take_over` comes first."""

    def __init__(self, bootstrap: str, tier: str, *, transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> None:
        self.tier = tier
        self._bootstrap = bootstrap
        client_id = f"moldau-audit-{tier}"
        self._producer = Producer(
            bootstrap, client_id=client_id, transactional_id=client_id, transaction_timeout_ms=transaction_timeout_ms
        )  # fmt: skip
        self._member = Consumer(bootstrap, client_id=client_id, group_id=group_of(tier), auto_commit=False)

    def take_over(self, cluster: Cluster) -> dict[TopicPartition, int]:
        """Fence whoever was this tier's auditor; where it had got to. TransactionError, WorldError, LostOffsetsError.

        Brokers forget the offsets of a group that nobody uses, after a week by default.
        """
        ensure_audit_topic(self._bootstrap)
        self._producer.init_transactions(TRANSACTION_TIMEOUT_MS / 1000)
        reached("id taken over")
        committed = Groups(cluster).committed(group_of(self.tier))
        if not committed and read_audit(cluster).has_counts_of(self.tier):
            group = group_of(self.tier)
            raise LostOffsetsError(
                f"tier {self.tier} has counts in {AUDIT_TOPIC}, but group {group} has no offsets: what is counted already would be counted "
                f"again; take another name for the tier, or set where it goes on by `moldau group reset {group}`"
            )
        return {where: each.offset for where, each in committed.items()}

    def publish(self, counts: Mapping[CountKey, Count], offsets: Mapping[TopicPartition, int], caught_up_ms: int | None) -> None:
        """Counts, offsets, and if there is a time, the mark that everything before it is counted: all or nothing.

        TransactionAbortedError: nothing of it; it may be published again. FencedError: another auditor has this tier. TransactionError:
        nobody knows; the next one to take over finds out.
        """
        now_ms = int(time.time() * 1000)
        with self._producer.transaction() as transaction:
            reached("transaction begun")
            for key, count in counts.items():
                self._send(AuditRecord.of_counts(self.tier, key, count, time_ms=now_ms))
            if caught_up_ms is not None:
                everything = CountKey("", 0, "", "", "", self.tier)
                self._send(AuditRecord("open", new_guid(), caught_up_ms, self.tier, everything))
            reached("counts sent")
            transaction.commit_offsets(self._member, offsets)
            reached("offsets added")
        reached("committed")

    def _send(self, record: AuditRecord) -> None:
        self._producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)

    def close(self) -> None:
        """Let go of the connections. Nothing is lost: what was not committed is counted again."""
        for each in (self._producer, self._member):
            try:
                each.close()
            except ClientError as error:
                log.warning("audit: while closing: %s", error)
