"""The report calls nothing complete that is not: a loss, a double, a loss hidden by a double, a change of content."""

from dataclasses import replace

import pytest

from moldau.lake.checksum import Tally
from moldau.lake.demo.report import GroupLag, Report, Step

ALL = Tally(10, 10, 100)
GOOD, DEAD = Tally(8, 8, 70), Tally(2, 2, 30)
COMPLETE = Report(
    input="events.jsonl",
    topic="events",
    table="lake/events",
    expected=ALL,
    log=ALL,
    lake=GOOD,
    dead_letters=DEAD,
    expected_dead=DEAD,
    sent=10,
    loaded=8,
    sent_bytes=1,
    log_bytes=1,
    lake_bytes=1,
    lake_files=1,
    table_version=1,
    steps=(Step("publish", 10, 2.0), Step("start Spark", 0, 5.0)),
    questions=(),
    bad_lines=(),
    lag=GroupLag("demo", 10, 0),
)


def test_everything_there_is_complete() -> None:
    assert (COMPLETE.missing, COMPLETE.doubled, COMPLETE.complete) == (0, 0, True)
    assert COMPLETE.as_json()["checksums"] == {"input": f"{100:016x}", "log": f"{100:016x}", "stored": f"{100:016x}"}
    assert COMPLETE.as_json()["lag"] == {"group": "demo", "before": 10, "after": 0}
    assert [step["rate"] for step in COMPLETE.as_json()["steps"]] == [5, None]


@pytest.mark.parametrize(
    ("wrong", "missing", "doubled"),
    [
        (replace(COMPLETE, lake=Tally(7, 7, 60)), 1, 0),
        (replace(COMPLETE, lake=Tally(9, 8, 80)), 0, 1),
        (replace(COMPLETE, lake=Tally(8, 7, 70)), 1, 1),
        (replace(COMPLETE, lake=Tally(8, 8, 71)), 0, 0),
        (replace(COMPLETE, log=Tally(9, 9, 90)), 1, 0),
        (replace(COMPLETE, log=Tally(11, 10, 110)), 0, 1),
        (replace(COMPLETE, dead_letters=Tally(1, 1, 10)), 1, 0),
        (replace(COMPLETE, lake=Tally(9, 9, 90), dead_letters=Tally(1, 1, 10)), 0, 0),
    ],
    ids=[
        "lost",
        "doubled",
        "a loss hidden by a double",
        "changed",
        "lost in the log",
        "doubled in the log",
        "a dead letter lost",
        "a dead letter in the table",
    ],
)
def test_whatever_is_wrong_is_told(wrong: Report, missing: int, doubled: int) -> None:
    assert (wrong.missing, wrong.doubled, wrong.complete) == (missing, doubled, False)
