"""The status of a mirror has no number that is not known, and its totals are those of its rows."""

from typing import Any

from moldau.cli.mirror_status_document import status_document
from moldau.mirror.patterns import NamePatterns, parse_pattern
from moldau.mirror.selection import Action, Change, TopicSelection
from moldau.mirror.state.board import Board, process_key
from moldau.mirror.state.orders import change_record
from moldau.mirror.state.reports import WHOLE_TOPIC, Process, Row, State, chunks_of, process_value
from moldau.mirror.state.view import RETRYING_MS, SILENT_MS
from moldau.protocol.records.record import Record

NOW_MS = 10_000_000
SELECTION = TopicSelection(NamePatterns((parse_pattern("orders|clicks"),)))
ROW = Row("east", "orders", bytes(16), 0, State.MIRRORING, position=5, end=7, lag_bytes=20, newest_ms=NOW_MS - 3_000)


def take(board: Board, key: bytes, value: bytes | None) -> None:
    board.take(Record(offset=0, timestamp=0, timestamp_type=0, key=key, value=value, headers=[]))


def reported(*rows: Row, ago_ms: int = 0, reason: str = "", reason_since_ms: int = 0, changes: tuple[Change, ...] = ()) -> dict[str, Any]:
    """The document after one process has reported these."""
    board = Board("m")
    chunks = chunks_of(rows)
    for number, chunk in enumerate(chunks):
        take(board, process_key("m", "1", number), chunk)
    process = Process("1", NOW_MS - ago_ms, 0, "host", 7, len(chunks), 1, 0, 0, reason, reason_since_ms=reason_since_ms)
    take(board, process_key("m", "1"), process_value(process))
    for change in changes:
        take(board, *change_record("m", change, "me", 1))
    return status_document(board, board.selection(SELECTION), NOW_MS, None)


def lag(document: dict[str, Any]) -> tuple[Any, ...]:
    totals = document["totals"]
    return tuple(totals[name] for name in ("lag_records", "lag_bytes", "lag_s"))


def at_least(document: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(document["totals"]["at_least"].values())


def test_where_all_is_known_the_totals_are_those_of_the_rows() -> None:
    document = reported(ROW, ROW._replace(number=1, position=1, lag_bytes=60), ROW._replace(number=2, position=7, lag_bytes=0))
    assert lag(document) == at_least(document) == (8, 80, 3.0)
    assert document["totals"]["lag_unknown"] == 0


def test_a_lag_that_is_not_known_makes_the_totals_a_lower_bound() -> None:
    away = ROW._replace(number=1, state=State.RETRYING, end=None, lag_bytes=None)
    for other in (away, away._replace(state=State.STARTING, position=None), away._replace(number=WHOLE_TOPIC, topic="clicks")):
        document = reported(ROW, other)
        assert (lag(document), at_least(document), document["totals"]["lag_unknown"]) == ((None, None, None), (2, 20, 3.0), 1)
        assert {None} == {
            each[name] for each in document["partitions"] if each["state"] != "mirroring" for name in ("lag_records", "lag_s")
        }
    assert at_least(reported(away)) == (0, 0, None)


def test_a_measure_of_the_lag_that_is_not_known_is_none_alone() -> None:
    assert lag(reported(ROW, ROW._replace(number=1, lag_bytes=None))) == (4, None, 3.0)
    assert lag(reported(ROW, ROW._replace(number=1, newest_ms=None))) == (4, 40, None)


def test_without_partitions_or_without_a_process_that_runs_the_lag_is_not_known() -> None:
    assert (lag(reported()), at_least(reported())) == ((None, None, None), (0, 0, None))
    silent = reported(ROW._replace(newest_ms=NOW_MS - SILENT_MS - 3_000), ago_ms=SILENT_MS)
    assert (lag(silent), at_least(silent)) == ((None, None, None), (2, 20, 3.0))
    assert lag(reported(ROW, reason="source west does not answer")) == (None, None, None), "of west nothing is known"


def test_what_is_deleted_or_promoted_does_not_lag() -> None:
    over = [
        ROW._replace(topic="clicks", number=number, state=state, end=None) for number, state in enumerate((State.DELETED, State.PROMOTED))
    ]
    document = reported(ROW, *over)
    assert (lag(document), document["totals"]["lag_unknown"]) == ((2, 20, 3.0), 0)


def test_what_is_tried_again_for_long_is_counted() -> None:
    def count(**more: Any) -> int:
        return int(reported(*more.pop("rows", ()), **more)["totals"]["retrying_long"])

    since_ms = NOW_MS - RETRYING_MS
    retrying = ROW._replace(state=State.RETRYING, since_ms=since_ms)
    assert count(rows=[retrying, retrying._replace(number=1, since_ms=since_ms + 1), retrying._replace(number=2, since_ms=0)]) == 1
    assert count(rows=[retrying._replace(number=WHOLE_TOPIC), retrying._replace(topic="clicks", state=State.MIRRORING)]) == 1
    assert count(reason="no coordinator", reason_since_ms=since_ms) == 1
    assert count(reason="no coordinator", reason_since_ms=since_ms + 1) == 0
    assert count(rows=[retrying], ago_ms=SILENT_MS, reason="no coordinator", reason_since_ms=1) == 0, "it does not run"


def test_counts_are_those_of_the_rows() -> None:
    """Claim: a topic is not one of the partitions, and rows of a topic that was removed are neither shown nor counted."""
    topic = Row("east", "clicks", bytes(16), WHOLE_TOPIC, State.REFUSED, "no")
    document = reported(ROW, ROW._replace(number=1, state=State.TRUNCATED), topic, topic._replace(topic="old"))
    totals = document["totals"]
    assert [each["topic"] for each in document["partitions"]] == ["clicks", "orders", "orders"]
    assert (totals["partitions"], totals["topics"], totals["halted"], document["processes"][0]["partitions"]) == (2, 1, 2, 2)


def test_an_addition_has_the_number_of_topics_that_it_matches() -> None:
    add, typo = (Change(Action.ADD, parse_pattern(text)) for text in ("ord.*", "web"))
    remove = Change(Action.REMOVE, parse_pattern("old"))
    assert [each["topics"] for each in reported(ROW, changes=(add, typo, remove))["changes"]] == [1, 0, None]
    assert [each["topics"] for each in reported(changes=(add, typo))["changes"]] == [None, None], "nothing is reported"
