"""The demonstration calls nothing complete that is not: what the audit finds, and what only the look into the table shows."""

from dataclasses import replace

import pytest

from moldau.audit.edges import TierEdge
from moldau.audit.verdicts import Report as AuditReport
from moldau.audit.verdicts import Verdict, WindowPair
from moldau.cli.demo_view import document, print_report
from moldau.demo.report import DemoReport, GroupLag, Proof, ReportStep, Sizes
from moldau.tracking.counts import Count
from moldau.tracking.latencies import Latencies, bucket_of

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


def test_edges_are_shown_with_the_latency_of_their_lower_end(capsys: pytest.CaptureFixture[str]) -> None:
    """In seconds for people, in ms for machines; an edge of which nothing was counted has none. Windows have theirs in `audit report`."""
    way = Latencies.of({bucket_of(16): 9_500, bucket_of(2_048): 500})
    edges = (TierEdge("producer", "local", 10_000, 10_000, Verdict.COMPLETE, latencies=way), TierEdge("local", "lake"))
    found = replace(audit(pair("local")), latencies={("events", "local", 0): way})
    report = replace(COMPLETE, audit=found, edges=edges)
    quantiles = {"p50_ms": way.quantile(0.5), "p95_ms": way.quantile(0.95), "p99_ms": way.quantile(0.99)}
    made = document(report)
    assert made["edges"] == [
        {
            "upper_tier": "producer",
            "lower_tier": "local",
            "verdict": "complete",
            "upper_count": 10_000,
            "lower_count": 10_000,
            "lag": 0,
            "more": 0,
            "latency": {"count": 10_000, **quantiles},
        },
        {
            "upper_tier": "local",
            "lower_tier": "lake",
            "verdict": None,
            "upper_count": 0,
            "lower_count": 0,
            "lag": 0,
            "more": 0,
            "latency": None,
        },
    ]
    assert [each["window_start_ms"] for each in made["audit"]["latencies"]] == [None]
    print_report(report, as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " > l" in line]
    assert ["producer", ">", "local", "10,000", "10,000", "0", "complete", "0.018", "s", "0.019", "s", "2.457", "s"] in lines
    assert ["local", ">", "lake", "0", "0", "0", "not", "compared", "-", "-", "-"] in lines


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
