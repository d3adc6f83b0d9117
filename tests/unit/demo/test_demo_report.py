"""The demonstration calls nothing complete that is not: what the audit finds, and what only the look into the table shows."""

from dataclasses import replace

import pytest

from moldau.audit.verdicts import Report as AuditReport
from moldau.audit.verdicts import Verdict, WindowPair
from moldau.demo.report import DemoReport, GroupLag, Proof, ReportStep, Sizes
from moldau.tracking.counts import Count

COUNT = Count(10, 500, 99, 1, 2)


def pair(lower_tier: str, verdict: Verdict = Verdict.COMPLETE, lower: Count = COUNT) -> WindowPair:
    return WindowPair("events", 0, "producer", lower_tier, COUNT, lower, verdict, True, ())


def audit(*pairs: WindowPair) -> AuditReport:
    return AuditReport(("producer", "local", "lake"), pairs, {})


COMPLETE = DemoReport(
    input="events.jsonl",
    topic="events",
    table="lake/loading/json_events",
    read=12,
    bad_lines=2,
    bad_shown=(),
    audit=audit(pair("local"), pair("lake")),
    proof=Proof(10, 10, 10, 99, 7, 10, 7),
    dead_letters=2,
    planted_lines=(),
    sent=12,
    loaded=10,
    sent_bytes=1,
    sizes=Sizes(1, 1, 1, 1),
    steps=(ReportStep("publish", 10, 2.0), ReportStep("start Spark", 0, 5.0)),
    questions=(),
    lag=GroupLag("demo", 10, 0),
    picture="tiers.svg",
)


def test_everything_there_is_complete() -> None:
    assert (COMPLETE.complete, COMPLETE.sound, COMPLETE.verdict) == (True, True, Verdict.COMPLETE)
    assert [step.rate for step in COMPLETE.steps] == [5.0, None]
    assert replace(COMPLETE, audit=audit()).verdict is Verdict.COMPLETE


@pytest.mark.parametrize(
    ("wrong", "sound"),
    [
        (replace(COMPLETE, audit=audit(pair("local", Verdict.LOSS), pair("lake"))), True),
        (replace(COMPLETE, audit=audit(pair("local"), pair("lake", lower=Count(11, 500, 98, 1, 2)))), False),
        (replace(COMPLETE, audit=audit(pair("local"), pair("lake", lower=replace(COUNT, checksum=98)))), False),
        (replace(COMPLETE, proof=replace(COMPLETE.proof, lines=9)), False),
        (replace(COMPLETE, proof=replace(COMPLETE.proof, content=8)), False),
        (replace(COMPLETE, proof=replace(COMPLETE.proof, expected_rows=11)), False),
        (replace(COMPLETE, dead_letters=1), False),
    ],
    ids=[
        "the audit's loss",
        "a row that the audit does not know",
        "another event",
        "a line twice, under two guids",
        "a field changed",
        "a line that nobody counted",
        "a dead letter lost",
    ],
)
def test_whatever_is_wrong_is_told(wrong: DemoReport, sound: bool) -> None:
    assert (wrong.complete, wrong.sound) == (False, sound)
