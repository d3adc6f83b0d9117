"""A mirror counts what it has brought as a tier of its own, whichever of its processes lives (missions F3, G1)."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.events import count_each
from moldau.client import Producer
from moldau.testing import Broker
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic
from support.audit_events import NOON, Host
from support.console import ConsoleInside
from support.mirror_groups import eventually
from support.mirror_world import MirrorProgram

pytestmark = pytest.mark.system

FILE = """
name = "aggregate"
mode = "merge"
sources.ewr.bootstrap.servers = "{source}"
target.bootstrap.servers = "{target}"
topics.include = ["departures", "_audit"]
audit.tier = "aggregate"
"""
EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
EVENTS = [EWR.event(number, NOON + 1000 * number) for number in range(100)]
SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def produce(source: Broker, events: Sequence[bytes], time_ms: int) -> None:
    """More events, with the counts of their producer and of their cluster."""
    with Producer(source.bootstrap_servers) as producer:
        for event in events:
            producer.send("departures", event)
        for key, count in count_each("departures", events).counts().items():
            record = AuditRecord.of_counts("producer", key, count, time_ms=time_ms)
            producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)
    Auditor(source.bootstrap_servers, AuditorOptions("local")).run(once=True)


def test_the_tier_is_complete_also_after_its_process_was_killed(tmp_path: Path) -> None:
    with Broker(settings=SETTINGS) as source, Broker(settings=SETTINGS) as target:
        for broker in (source, target):
            ensure_audit_topic(broker.bootstrap_servers)
        source.create_topic("departures")
        file = tmp_path / "mirror.toml"
        file.write_text(FILE.format(source=source.bootstrap_servers, target=target.bootstrap_servers))
        console = ConsoleInside(target.bootstrap_servers)

        def complete(count: int) -> bool:
            """Whether all tiers have so many events, by the report."""
            done = console("audit", "report", "--tiers", "producer,local,aggregate", "--grace", "0", "--json")
            edges = done.json["topics"] if done.out else []
            return len(edges) == 2 and all((each["verdict"], each["lower"]["count"]) == ("complete", count) for each in edges)

        produce(source, EVENTS[:50], 1)
        mirrors = [MirrorProgram(file, instance, hasty=True) for instance in ("a", "b")]
        try:
            for mirror in mirrors:
                mirror.start()
            eventually(lambda: complete(50), "all tiers have counted everything")
            mirrors[0].kill()
            produce(source, EVENTS[50:], 2)
            eventually(lambda: complete(100), "the other process counts what comes, and that alone")
            assert mirrors[1].stop() == 0
        finally:
            for mirror in mirrors:
                if mirror.running:
                    mirror.kill()
