"""What the demonstration asks of its table, in Spark SQL. The table is called ``events`` there."""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from moldau.lake.data_files import DAY
from moldau.lake.demo.report import Question


class Asked(NamedTuple):
    """A question and its SQL."""

    title: str
    sql: str


FLIGHTS = (
    Asked(
        "Which airlines depart latest?",
        """SELECT carrier, count(*) AS flights, round(avg(dep_delay), 1) AS mean_delay_min,
       round(100.0 * count_if(dep_time IS NULL) / count(*), 1) AS cancelled_percent
FROM events GROUP BY carrier ORDER BY mean_delay_min DESC LIMIT 5""",
    ),
    Asked(
        "Which days were the worst?",
        f"""SELECT {DAY}, count(*) AS flights, round(avg(dep_delay), 1) AS mean_delay_min, count_if(dep_time IS NULL) AS cancelled
FROM events GROUP BY {DAY} ORDER BY mean_delay_min DESC LIMIT 5""",
    ),
)
ANY_EVENTS = (
    Asked(
        "Which days have most events?", f"SELECT {DAY}, count(*) AS events FROM events GROUP BY {DAY} ORDER BY events DESC, {DAY} LIMIT 5"
    ),
    Asked(
        "How are they spread over the partitions?",
        "SELECT _partition AS partition, count(*) AS events, min(_offset) AS first, max(_offset) AS last FROM events GROUP BY _partition"
        " ORDER BY _partition",
    ),
)


def ask(spark: Any, events: Any, questions: Sequence[Asked]) -> list[Question]:
    """The answers, from a DataFrame of the table."""
    events.createOrReplaceTempView("events")
    answers = []
    for asked in questions:
        answer = spark.sql(asked.sql)
        rows = [[_cell(value) for value in row] for row in answer.collect()]
        answers.append(Question(asked.title, asked.sql, answer.columns, rows))
    return answers


def _cell(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, (int, float, str)) else float(value)
