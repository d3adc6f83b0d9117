"""The completion watermark, asked of the brokers: up to when a tier has everything of a topic.

``moldau.audit.reconcile`` defines it.
"""

from datetime import UTC, datetime, timedelta

from moldau.audit.follow import read_audit
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.client.cluster import Cluster
from moldau.tracking.clock import now_ms

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def completion_watermark(topic: str, tier: str, *, bootstrap_servers: str, rules: Rules | None = None) -> datetime | None:
    """Up to when the tier has everything of the topic, asked of the audit topic now; None if no window is complete.

    ConnectionLostError, RequestFailedError, and the like if the brokers cannot be asked.
    """
    with Cluster(bootstrap_servers, client_id="moldau-audit") as cluster:
        found = read_audit(cluster)
    report = reconcile(found, rules or Rules(now_ms=now_ms()))
    time_ms = report.watermarks.get((topic, tier))
    return None if time_ms is None else _EPOCH + timedelta(milliseconds=time_ms)
