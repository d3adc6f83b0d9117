"""What a tier that is one job's publishes: a claim of a topic, and counts under guids that the same counts always get.

Two jobs that count a topic under one name would be a duplication to the audit. So a job claims in the audit topic that the tier is its own
before it counts anything, and reads back who was first. All records of a topic share a partition, so there is one order of claims and of
what takes counts back (``moldau audit forget``). The *epoch* of counts is the guid of what took counts back last; it goes into the guids
of those that are published after it, so that they are other ones.
"""

import json
from collections.abc import Iterable
from hashlib import blake2b

from moldau.audit.follow import read_audit
from moldau.audit.tiers import TierCounts
from moldau.client.cluster import Cluster
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, certainly_counts, ensure_audit_topic
from moldau.tracking.clock import now_ms

_DELIVERY_TIMEOUT_MS = 30_000
_LINGER_MS = 20
"""Without it a batch holds the few counts that were made while the one before it was sent; the last ones are flushed at once."""
_TWICE_IS_ONCE = {"enable.idempotence": False}
"""Records have guids of their own, and to get a producer id takes librdkafka half a second."""


def is_owned_by(owner: str, identity: str) -> bool:
    """Whether an owner, as it is published, is the job with this identity: its last word. The others are for people."""
    return owner.rpartition(" ")[2] == identity


def read_claims(cluster: Cluster, topics: Iterable[str], into: TierCounts | None = None) -> TierCounts:
    """What tiers state about themselves and these topics, without their counts; with `into`, what is new since that was read. WorldError,
    PeerError."""
    names = {topic.encode() for topic in topics}
    return read_audit(cluster, into, wanted=lambda key, value: key in names and not certainly_counts(value))


def publish_claim(bootstrap: str, client_id: str, tier: str, topic: str, owner: str) -> None:
    """Claim a topic for an owner. WorldError, PeerError, SendError."""
    ensure_audit_topic(bootstrap)
    publish(bootstrap, client_id, [AuditRecord.of_tier(tier, topic, time_ms=now_ms(), owner=owner)])


def publish(bootstrap: str, client_id: str, records: Iterable[AuditRecord]) -> None:
    """Send records, and wait until they are acknowledged; those about a tier after all counts before them. SendError."""
    from moldau.client.producer import Producer

    settings = {"client_id": client_id, "delivery_timeout_ms": _DELIVERY_TIMEOUT_MS, "settings": _TWICE_IS_ONCE}
    with Producer(bootstrap, linger_ms=_LINGER_MS, **settings) as producer:  # type: ignore[arg-type]
        for record in records:
            if record.is_of_tier:
                producer.flush()  # no reader may see the mark before the counts
            producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)
        producer.flush()


def count_guid(tier: str, identity: str, number: int, key: tuple[str | int, ...], epoch: str) -> str:
    """The same for the same count of a version or batch, until the tier's counts are taken back: then they are other ones."""
    return blake2b(json.dumps([tier, identity, number, *key, *([epoch] if epoch else [])]).encode(), digest_size=16).hexdigest()
