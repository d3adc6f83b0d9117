"""Each planted fault is found and named rightly, by a real auditor on a real broker; a healthy run has no alarm (missions H2, H3)."""

import pytest

from moldau.testing import Broker
from support.audit_events import MINUTE, NOON
from support.audit_faults import DAY, EWR, TIER, audit_once, events, plant, report, run, stories, table
from support.audit_faults import Story as Planted

pytestmark = pytest.mark.system


def test_every_planted_fault_is_named() -> None:
    """One of 100,000 dropped, one doubled, one swapped, late, skewed, dead: verdict, host and exit code are right for each."""
    told = {}

    def look(broker: Broker) -> None:
        told.update(report(broker, "--missing", "--topic", "dropped", "--grace", "0", "--tiers", f"producer,{TIER}")[1])

    rows = run(stories(), look)
    (lost,) = told["missing"]
    assert (lost["host"], len(lost["guids"]), lost["problem"]) == ("ewr-1", 1, "")
    print(table(rows))
    for row in rows:
        story = row.story
        assert (row.verdict, row.host, row.skewed) == (story.verdict, story.host, story.skewed), row
        assert row.code == {"complete": 0, "producer counts incomplete": 3}.get(story.verdict, 4), row
    by_topic = {row.story.topic: row for row in rows}
    assert by_topic["dropped"].note == "1 of 50,000 missing"
    assert by_topic["doubled"].note == "1 more than 5,000"
    assert by_topic["dead"].note.startswith("counted from the log, 100 more than 900")
    end = NOON + 10 * MINUTE
    marks = {topic: row.watermark_ms for topic, row in by_topic.items()}
    assert {topic: mark for topic, mark in marks.items() if mark is not None} == dict.fromkeys(
        ("healthy", "late", "ahead", "behind", "dead"), end
    )


def test_late_events_reopen_yesterday_until_they_are_counted() -> None:
    """With the grace that tiers have, they are not yet due, and the watermark waits; counted, all is complete again."""
    early = events(EWR, 100, start_ms=NOON - DAY) + events(EWR, 100, first=500)
    late = events(EWR, 10, start_ms=NOON - DAY + MINUTE, first=9_000)
    with Broker() as broker:
        plant(broker, [Planted("", "late", early, early, "complete")])
        audit_once(broker)
        assert report(broker, "--complete")[0] == 0
        plant_more(broker, late)
        code, told = report(broker, "--complete")
        (topic,) = told["topics"]
        assert (code, told["verdict"], topic["windows"]) == (3, "not yet due", {"not yet due": 1, "complete": 1})
        assert topic["completion_watermark_ms"] is None
        audit_once(broker)
        code, told = report(broker, "--grace", f"{TIER}=0", "--complete")
        assert (code, told["verdict"], told["topics"][0]["completion_watermark_ms"]) == (0, "complete", NOON + 10 * MINUTE)


def plant_more(broker: Broker, values: list[bytes]) -> None:
    """The instance goes on: it has closed no more."""
    from moldau.client import Producer
    from support.audit_faults import Instances, producer_records

    with Producer(broker.bootstrap_servers) as producer:
        producer.send("late", map(Instances("late").own, values))
        for record in producer_records(Planted("", "late", values, values, "complete", closed=())):
            producer.send("_audit", record.to_bytes(), key=record.record_key)
