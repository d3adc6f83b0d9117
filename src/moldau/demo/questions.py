"""What the demonstration asks: ready reports over the table, the pace of each host, what the raw topic has, and which flights are late."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from moldau.demo.report import ReportQuestion
from moldau.lake.reports import COMPLETENESS, EVENTS_PER_HOUR, RAW_TOPIC, raw_report, run_report
from moldau.tracking.counts import Count

_ROWS_SHOWN = 6
_AIRLINES = """SELECT carrier, count(*) AS departures, round(avg(dep_delay), 1) AS mean_delay_min,
       count_if(status = 'LATE') AS late_since_july, count_if(status = 'CANCELLED') AS cancelled_since_july
FROM {events} GROUP BY carrier ORDER BY mean_delay_min DESC LIMIT 5"""
_PACE = """SELECT header.host AS host, count(*) AS events, date_trunc('second', min(_timestamp)) AS first_sent,
       date_trunc('second', max(_timestamp)) AS last_sent,
       CAST(count(*) * 1000 / greatest(1, unix_millis(max(_timestamp)) - unix_millis(min(_timestamp))) AS BIGINT) AS events_per_s
FROM {events} GROUP BY ALL ORDER BY host"""
"""Not the report of arrival latencies: that would say how old the input is, whose events happened years before they are published."""
_VERDICTS = "SELECT verdict, count(*) AS windows, sum(told) AS told, sum(events) AS arrived FROM {windows} GROUP BY ALL ORDER BY verdict"


def ask_all(spark: Any, table: str, bootstrap: str, topic: str, told: Mapping[int, Count], *, flights: bool) -> list[ReportQuestion]:
    """The answers; `told` is what the producers have counted, by window. What Spark raises."""
    from moldau.lake.table import read_table

    answers = []
    if flights:
        answers.append(_asked("Which airlines depart latest?", _AIRLINES, spark.sql(_AIRLINES, events=read_table(spark, table))))
    answers.append(_asked(EVENTS_PER_HOUR.question, EVENTS_PER_HOUR.sql, run_report(spark, table, EVENTS_PER_HOUR.name)))
    answers.append(_asked("How fast did each host publish?", _PACE, spark.sql(_PACE, events=read_table(spark, table))))
    windows = spark.sql(COMPLETENESS.sql, events=read_table(spark, table), told=_told(spark, told))
    answers.append(_asked(COMPLETENESS.question, COMPLETENESS.sql, spark.sql(_VERDICTS, windows=windows)))
    answers.append(_asked(RAW_TOPIC.question, RAW_TOPIC.sql, raw_report(spark, bootstrap, topic)))
    return answers


def _told(spark: Any, told: Mapping[int, Count]) -> Any:
    """What `run_report` would read from the audit topic once more."""
    import pyarrow as pa

    columns = {
        "window_start": pa.array(list(told), pa.timestamp("ms", tz="UTC")),
        "events": pa.array([count.count for count in told.values()], pa.int64()),
        "checksum": pa.array([str(count.checksum) for count in told.values()], pa.string()),
    }
    return spark.createDataFrame(pa.table(columns))


def _asked(title: str, sql: str, answer: Any) -> ReportQuestion:
    rows = answer.collect()
    return ReportQuestion(title, sql, answer.columns, [_cells(row) for row in rows[:_ROWS_SHOWN]], max(0, len(rows) - _ROWS_SHOWN))


def _cells(row: Sequence[Any]) -> list[Any]:
    """As JSON has it."""
    return [_cell(value) for value in row]


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").removesuffix(".000")
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, (int, float, str)) else float(value)
