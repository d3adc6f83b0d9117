"""An auditor's numbers for a monitoring system: on a page of its own, or on that of the broker in whose process it is."""

from typing import Final

from moldau.audit.auditor import Auditor
from moldau.broker.metrics.families import Family, counter, gauge
from moldau.tracking.latencies import QUANTILES

_COUNTERS: Final = {
    "records": "Records that the auditor has counted; after a failure some are counted again.",
    "published": "Records whose counts are published.",
    "transactions": "Transactions of counts and offsets that were committed.",
    "restarts": "Times that the auditor began again after a failure.",
}


def auditor_families(auditor: Auditor, *, running: bool) -> list[Family]:
    """All of them; `running` is whether it is at work, or has ended."""
    tier, totals = auditor.options.tier, auditor.statistics()
    up = gauge("moldau_audit_running", "1 while the auditor of the tier runs, 0 once it has ended.", "tier")
    up.add(int(running), tier)
    interrupted = gauge("moldau_audit_interrupted", "1 while the auditor cannot count or publish, and tries again.", "tier")
    interrupted.add(int(auditor.interrupted), tier)
    partitions = gauge("moldau_audit_partitions", "Partitions that the auditor reads.", "tier")
    partitions.add(totals["partitions"], tier)
    latency = gauge(
        "moldau_audit_latency_seconds",
        "Seconds from an event's time to when the auditor saw it, of the last minutes.",
        "tier",
        "topic",
        "quantile",
    )
    for topic, found in auditor.recent.by_topic().items():
        for share in QUANTILES:
            latency.add(found.quantile(share) / 1000, tier, topic, str(share))
    found_counters = []
    for name, text in _COUNTERS.items():
        family = counter(f"moldau_audit_{name}", text, "tier")
        family.add(totals[name], tier)
        found_counters.append(family)
    return [up, interrupted, partitions, *found_counters, latency]
