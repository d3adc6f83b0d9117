"""A job's report has the rows that are in the state of a join, and of rows without repetitions, as a reader of the state finds them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moldau.streams import StreamJob, progress, windows
from moldau.streams.reports import JobReport, QueryReport, encode_report, process_key
from moldau.streams.state_rows import Counting, rows_after
from moldau.streams.state_topic import StateTopic
from moldau.testing.broker import Broker
from support.spark import spark_session
from support.stream_jobs import SCHEMA, event, events, send

pytestmark = [pytest.mark.system, pytest.mark.spark]


@pytest.mark.parametrize(
    ("kind", "report_lost"),
    [
        ("inner", False),
        pytest.param("inner", True, marks=pytest.mark.long),
        pytest.param("left_outer", False, marks=pytest.mark.long),
        ("distinct", False),
    ],
    ids=str,
)
def test_rows_in_state(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, report_lost: bool) -> None:
    """Over two runs, in the second of which rows leave the state. Where the report before lacks a batch, Spark counts."""
    spark: Any = spark_session()
    clicks, buys, pairs = (broker.create_topic(broker.unique_topic(name), 2) for name in ("clicks", "buys", "pairs"))
    name, state = broker.unique_topic("rows"), StateTopic(broker.bootstrap_servers)
    by_spark: list[int] = []

    def rows(before: int, operators: Sequence[Mapping[str, Any]], counting: Counting) -> int:
        by_spark.extend(each["numRowsTotal"] for each in operators)
        return rows_after(before, operators, counting)

    def run() -> QueryReport:
        job = StreamJob(name, brokers=broker.bootstrap_servers, directory=str(tmp_path), spark=spark)
        left, right = (
            job.topic(each, format="json", schema=SCHEMA, time="at", delay="5 minutes", records_max=100) for each in (clicks, buys)
        )
        if kind == "distinct":
            frame = windows.distinct(left, "10 minutes", "number")
        else:
            frame = windows.join(left, right, "number", before="1 minute", after="10 minutes", how=kind)
        job.to_topic(frame.select("number"), pairs, key="number")
        job.run(once=True)
        return reported().queries[0]

    def reported() -> JobReport:
        process = state.read().process_of(name)
        assert process is not None
        return process

    def in_state() -> int:
        (checkpoint,) = {str(each.parent) for each in tmp_path.rglob("commits")}
        sides = ("none",) if kind == "distinct" else ("left", "right")
        return sum(int(spark.read.format("statestore").option("joinSide", side).load(checkpoint).count()) for side in sides)

    monkeypatch.setattr(progress, "rows_after", rows)
    send(broker.bootstrap_servers, clicks, events(0, 300))
    send(broker.bootstrap_servers, buys, events(100, 300))
    first = run()
    assert first.state_rows == in_state() > 0
    if report_lost:
        assert first.batch is not None
        before = replace(reported(), queries=(replace(first, batch=first.batch - 1, state_rows=1),))
        state.write({process_key(name, before.instance): encode_report(before)})
    for topic in (clicks, buys):
        send(broker.bootstrap_servers, topic, [*events(300, 400), event(2000)])
    second = run()
    assert second.state_rows == in_state()
    assert second.state_rows < first.state_rows
    assert any(by_spark) is report_lost, "Spark counts in no other case"
    state.close()
