"""Taking back what a tier has counted of topics: for a table that was deleted, or counts that two jobs have published under one name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord
from moldau.tracking.clock import now_ms

if TYPE_CHECKING:
    from moldau.audit.tiers import TierCounts


def counted_topics(found: "TierCounts", tier: str) -> list[str]:
    """The topics that a tier has counted, owns, or had counted when its counts were taken back."""
    topics = {key.topic for key in found.counts.get(tier, ())}
    topics |= {topic for each, topic in [*found.owners, *found.untracked, *found.counted_ms, *found.epochs] if each == tier}
    return sorted(topics)


def take_back(bootstrap: str, tier: str, topics: Sequence[str]) -> None:
    """Publish that the tier's counts of these topics count no more; twice is as once. What it publishes later counts. SendError."""
    from moldau.client.producer import Producer

    with Producer(bootstrap, client_id="moldau-audit-forget") as producer:
        records = [AuditRecord.of_tier(tier, topic, time_ms=now_ms(), forgets=True) for topic in topics]
        for sent in [producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key) for record in records]:
            sent.result()
