"""Faults planted on purpose, on a real broker with a real auditor, and what the report says of each.

    PYTHONPATH=tests python -m support.audit_faults

prints the table. Each story has a topic of its own; an auditor counts them all, and the reports come from the command line.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from hashlib import blake2b
from io import StringIO
from typing import Any, NamedTuple

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.events import count_each
from moldau.testing import Broker
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic, new_guid
from moldau.tracking.counts import Count, CountKey
from support.audit_events import MINUTE, NOON, Host

TIER = "local"
EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
JFK = Host("jfk-1", "jfk", instance=b"inst-jfk")
LGA = Host("lga-1", "lga", instance=b"inst-lga")
NEVER_S, AT_ONCE_S = 3600, 0.1
DAY = 1440 * MINUTE


class Story(NamedTuple):
    """What the producers counted, what the log got, and what the report is to say. `closed` are the hosts that ended in order."""

    name: str
    topic: str
    counted: Sequence[bytes]
    logged: Sequence[bytes]
    verdict: str
    host: str | None = None
    closed: tuple[str, ...] = ("ewr-1", "jfk-1", "lga-1")
    producer_timeout_s: float = NEVER_S
    skewed: str | None = None


class Row(NamedTuple):
    """One line of the table: what was planted, and what the report says."""

    story: Story
    verdict: str
    host: str | None
    counts: str
    note: str
    code: int
    skewed: str | None
    watermark_ms: int | None


def events(host: Host, count: int, *, start_ms: int = NOON, first: int = 0) -> list[bytes]:
    """So many events, a millisecond apart."""
    return [host.event(first + number, start_ms + number, body=b"x" * 40) for number in range(count)]


def stories(size: int = 100_000) -> list[Story]:
    """All of them; the first two have `size` events each."""

    def mixed(count: int) -> list[bytes]:
        return events(EWR, count // 2) + events(JFK, count - count // 2)

    many, some = mixed(size), mixed(10_000)
    dead = LGA._replace(name="lga-2")
    dead_events = events(dead, 1_000)
    ahead, behind = events(LGA, 50, start_ms=int(time.time() * 1000) + 30 * DAY), events(LGA, 50, start_ms=NOON - 3650 * DAY)
    late = events(EWR, 500, start_ms=NOON - DAY) + events(EWR, 500, first=500) + events(EWR, 50, start_ms=NOON - DAY + MINUTE, first=9_000)
    doubled, lost = some[:5_000] + some[:1], some[5_001:]
    return [
        Story("a healthy run", "healthy", many, many, "complete"),
        Story(f"1 of {size:,} dropped", "dropped", many, many[:777] + many[778:], "loss", "ewr-1"),
        Story("1 of 10,000 doubled", "doubled", some, [*some, some[-1]], "duplication", "jfk-1"),
        Story("1 event for another of its host", "swapped", some, [*some[:-1], some[-2]], "loss hidden by duplication", "jfk-1"),
        Story("one host loses, the other doubles", "crossed", some, doubled + lost, "loss hidden by duplication", "jfk-1"),
        Story("late events of yesterday", "late", late, late, "complete"),
        Story("late events of yesterday, one lost", "late-lost", late, late[:-1], "loss", "ewr-1"),
        Story("a clock 30 days ahead", "ahead", some + ahead, some + ahead, "complete", skewed="lga-1"),
        Story("a clock 10 years behind", "behind", some + behind, some + behind, "complete", skewed="lga-1"),
        Story("a producer that died: at first", "dying", dead_events[:900], dead_events, "producer counts incomplete", "lga-2", ()),
        Story("a producer that died: in the end", "dead", dead_events[:900], dead_events, "complete", "lga-2", (), AT_ONCE_S),
        Story("a producer that died, and an event lost", "dead-lost", dead_events[:900], dead_events[:899], "loss", "lga-2", ()),
    ]


def plant(broker: Broker, told: Iterable[Story]) -> None:
    """Let the producers send and count, each story in its topic; instances are the story's own."""
    from confluent_kafka import Producer

    ensure_audit_topic(broker.bootstrap_servers)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1_000_000, "linger.ms": 5})
    for story in told:
        broker.create_topic(story.topic, partitions=2)
        instances = Instances(story.topic)
        for number, value in enumerate(story.logged):
            producer.produce(story.topic, instances.own(value), partition=number % 2)
        producer.poll(0)
        for record in producer_records(story):
            producer.produce(AUDIT_TOPIC, record.to_bytes(), record.record_key)
    assert producer.flush(60) == 0


def producer_records(story: Story) -> list[AuditRecord]:
    """What the story's producers publish."""
    now = int(time.time() * 1000)
    counts = count_each(story.topic, map(Instances(story.topic).own, story.counted)).counts()
    totals: dict[CountKey, Count] = {}
    for key, count in counts.items():
        whole = key._replace(topic="", window_start_ms=0)
        totals[whole] = totals.get(whole, Count()) + count
    records = [AuditRecord("open", new_guid(), now, "producer", key) for key in totals]
    records += [AuditRecord.of_counts("producer", key, count, time_ms=now) for key, count in counts.items()]
    closed = [(key, total) for key, total in totals.items() if key.host in story.closed]
    return records + [AuditRecord("close", new_guid(), now, "producer", key, total) for key, total in closed]


class Instances:
    """Every topic has producer instances of its own, though the stories share their events."""

    def __init__(self, topic: str) -> None:
        self._own = {host.instance: blake2b(host.instance + topic.encode(), digest_size=8).digest() for host in (EWR, JFK, LGA)}

    def own(self, event: bytes) -> bytes:
        """The same event of this topic's instance."""
        for instance, own in self._own.items():
            if instance in event:
                return event.replace(instance, own)
        raise AssertionError(event)


def audit_once(broker: Broker, tier: str = TIER) -> None:
    """Count the cluster up to its end."""
    Auditor(broker.bootstrap_servers, AuditorOptions(tier)).run(once=True)


def report(broker: Broker, *arguments: str) -> tuple[int, dict[str, Any]]:
    """``moldau audit report --json``: exit code and document."""
    from click.testing import CliRunner

    from moldau.cli.application import application

    done = CliRunner().invoke(application, ["audit", "report", "--json", "--bootstrap", broker.bootstrap_servers, *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.output)


def found(broker: Broker, story: Story) -> Row:
    """What the report says of a story."""
    timeout = str(story.producer_timeout_s)
    code, told = report(broker, "--topic", story.topic, "--grace", "0", "--producer-timeout", timeout, "--tiers", f"producer,{TIER}")
    (topic,) = told["topics"]
    noted = [(window, source) for window in told["windows"] for source in window["sources"]]
    source = noted[0][1] if noted else None
    counts = f"{topic['upper']['count']:,} > {topic['lower']['count']:,}"
    (skewed,) = {each["host"] for each in told["skewed"]} or {None}
    mark = topic["completion_watermark_ms"]
    return Row(story, topic["verdict"], source and source["host"], counts, source["note"] if source else "", code, skewed, mark)


def table(rows: Iterable[Row]) -> str:
    """As Markdown."""
    lines = [
        "| planted | events counted by producers > by the auditor | verdict | host named | numbers | exit code |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        host = row.host or (f"{row.skewed} (clock)" if row.skewed else "")
        note = row.note.split("; instance")[0]
        lines.append(f"| {row.story.name} | {row.counts} | {row.verdict} | {host} | {note} | {row.code} |")
    return "\n".join(lines)


def run(told: Sequence[Story], look: Callable[[Broker], object] = lambda _: None) -> list[Row]:
    """Plant, count, report."""
    with Broker() as broker:
        plant(broker, told)
        audit_once(broker)
        rows = [found(broker, story) for story in told]
        look(broker)
    return rows


if __name__ == "__main__":
    with redirect_stdout(StringIO()):
        printed = table(run(stories()))
    print(printed)
