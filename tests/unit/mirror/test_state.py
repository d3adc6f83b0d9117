"""What `_mirror_state` has of a mirror: orders and reports are what was written, and the last one of a key counts."""

import json
import re

from moldau.mirror.partitions import SourcePartition
from moldau.mirror.patterns import NamePatterns, parse_pattern
from moldau.mirror.selection import Action, Change, TopicSelection
from moldau.mirror.state.board import Board, process_key
from moldau.mirror.state.orders import Accepted, Pause, Scope, accepted_record, change_record, pause_record, withdrawn_record
from moldau.mirror.state.reports import CHUNK_BYTES, WHOLE_TOPIC, Process, Row, State, chunks_of, process_value, rows_in
from moldau.mirror.state.view import SILENT_MS, newest_rows
from moldau.protocol.records.record import Record
from support.pages import ROOT

PAGE = ROOT / "docs" / "formats" / "mirror-state.md"
ID = bytes(range(16))
KeyValue = tuple[bytes, bytes | None]


def board(*records: KeyValue) -> Board:
    found = Board("m")
    for offset, (key, value) in enumerate(records):
        found.take(Record(offset=offset, timestamp=0, timestamp_type=0, key=key, value=value, headers=[]))
    return found


def process(instance: str, at_ms: int, chunks: int = 1, *, ended: bool = False) -> KeyValue:
    value = process_value(Process(instance, at_ms, 0, "host", 7, chunks, 1, 0, 0, "", ended))
    return process_key("m", instance), value


def rows(instance: str, chunk: int, *found: Row) -> KeyValue:
    return process_key("m", instance, chunk), chunks_of(found)[0]


def row(topic: str, number: int, state: State = State.MIRRORING) -> Row:
    return Row("east", topic, ID, number, state)


def change(action: Action, pattern: str) -> KeyValue:
    return change_record("m", Change(action, parse_pattern(pattern)), "me", 1)


# Orders


def test_changes_count_in_the_order_of_their_last_records() -> None:
    add, remove, again = change(Action.ADD, "web.*"), change(Action.REMOVE, "web.views"), change(Action.ADD, "web.*")
    before = TopicSelection(NamePatterns(()))
    assert board(add, remove).selection(before).of(["web.clicks", "web.views"]) == ("web.clicks",)
    assert board(add, remove, again).selection(before).of(["web.clicks", "web.views"]) == ("web.clicks", "web.views")


def test_what_compaction_leaves_means_the_same() -> None:
    """Claim: of two records of a key the first may be missing."""
    add, remove = change(Action.ADD, "web.*"), change(Action.REMOVE, "web.views")
    before = TopicSelection(NamePatterns(()))
    assert board(add, remove, add).selection(before) == board(remove, add).selection(before)


def test_a_change_that_is_taken_back_decides_no_more_also_after_compaction() -> None:
    add, remove = change(Action.ADD, "web.*"), change(Action.REMOVE, "orders")
    withdrawn = [withdrawn_record("m", Change(Action.ADD, parse_pattern("web.*"))), withdrawn_record("m", board(remove).changes[0])]
    before = TopicSelection(NamePatterns((parse_pattern("orders"),)))
    assert board(add, remove, withdrawn[0]).selection(before).of(["web.clicks", "orders"]) == ()
    assert board(add, remove, withdrawn[1]).selection(before).of(["web.clicks", "orders"]) == ("orders", "web.clicks")
    assert board(add, remove, *withdrawn).selection(before) == board(*withdrawn).selection(before) == before


def test_orders_of_another_mirror_do_not_count() -> None:
    assert board(pause_record("another", Scope(), Pause("me", 1))).pauses == {}


def test_a_pause_of_a_partition_a_topic_or_all() -> None:
    wide, narrow = pause_record("m", Scope(), Pause("a", 1)), pause_record("m", Scope("t", 0), Pause("b", 2))
    found = board(narrow, wide)
    assert found.pause_of("t", 0) == (Scope(), Pause("a", 1)), "the widest is what has to be ended first"
    found = board(narrow, wide, pause_record("m", Scope(), None))
    assert found.pause_of("t", 0) == (Scope("t", 0), Pause("b", 2))
    assert found.pause_of("t", 1) is None
    assert found.resumed == [Scope()]


def test_a_scope_contains_what_is_within_it() -> None:
    order = [Scope(), Scope("t"), Scope("t", 1)]
    assert [[one.contains(other) for other in order] for one in order] == [[True, True, True], [False, True, True], [False, False, True]]
    assert not Scope("t").contains(Scope("u"))
    assert [str(each) for each in (Scope(), Scope("t"), Scope("t", 1))] == ["the mirror", "topic t", "partition t-1"]


def test_what_was_accepted_is_what_was_written() -> None:
    accepted = Accepted("east", "t", 3, ID, 42, "me", 1)
    assert board(accepted_record("m", accepted)).accepted == {("east", "t", 3): accepted}


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    damaged: list[KeyValue] = [(b"", b""), (b"[]", b"1"), (b'{"mirror":"m"}', b"{}"), (b'{"mirror":"m","pause":[1,2,3]}', b"{}")]
    found = board(*damaged, pause_record("m", Scope(), Pause("a", 1)))
    assert list(found.pauses) == [Scope()]


def test_the_records_of_the_page_are_those_that_are_written() -> None:
    shown = re.findall(r"^(\{.*\})$", PAGE.read_text(), re.MULTILINE)
    written = [
        change_record("aggregate", Change(Action.ADD, parse_pattern("web.*")), "ann@ops1", 1795881600000),
        pause_record("aggregate", Scope("orders"), Pause("ann@ops1", 1795881600000)),
        accepted_record("aggregate", Accepted("east", "orders", 0, ID, 1200, "ann@ops1", 1795881600000)),
    ]
    assert [json.loads(text) for text in shown[:6]] == [json.loads(part or b"") for pair in written for part in pair]


# Reports


def test_rows_are_what_was_reported() -> None:
    found = [
        row("t", 0)._replace(position=5, end=9, lag_bytes=400, newest_ms=17, bytes_s=1.5, records_s=2.0, since_ms=3),
        row("t", 1, State.OUT_OF_RETENTION)._replace(reason="the log begins at 4 now"),
        row("u", WHOLE_TOPIC, State.DENIED),
    ]
    (chunk,) = chunks_of(found)
    assert sorted(rows_in(chunk)) == sorted(found)


def test_ten_thousand_partitions_are_several_records_of_bounded_size() -> None:
    found = [row("topic", number) for number in range(10_000)]
    chunks = chunks_of(found)
    assert 2 < len(chunks) < 20
    assert all(len(each) < 2 * CHUNK_BYTES for each in chunks)
    assert [each for chunk in chunks for each in rows_in(chunk)] == found


def test_a_report_with_fewer_records_ends_the_others() -> None:
    found = board(rows("1", 0, row("t", 0)), rows("1", 1, row("t", 1)), process("1", 5, 2), process("1", 6, 1))
    assert [each.number for each in found.rows("1")] == [0]
    assert found.chunks("1") == [0, 1], "what a process that starts has to remove"


def test_the_newest_report_of_a_partition_counts() -> None:
    first = rows("1", 0, row("t", 0)), process("1", 5)
    second = rows("2", 0, row("t", 0)._replace(position=9)), process("2", 6)
    last = board(*second, *first).last_row(SourcePartition("east", ID, "t", 0))
    assert last is not None
    assert last.position == 9


def test_what_a_silent_process_knew_is_shown_until_another_one_has_the_topic() -> None:
    now_ms = 100_000
    old = rows("1", 0, row("t", 0), row("u", 0)), process("1", now_ms - SILENT_MS)
    new = rows("2", 0, row("t", 0, State.PAUSED)), process("2", now_ms - 1)
    found = newest_rows(board(*old, *new), now_ms, ["1", "2"])
    assert [(each.row.topic, each.row.state, each.is_current) for each in found] == [
        ("t", State.PAUSED, True),
        ("u", State.MIRRORING, False),
    ]


def test_a_process_that_was_stopped_does_not_run() -> None:
    (seen,) = newest_rows(board(rows("1", 0, row("t", 0)), process("1", 100, ended=True)), 100, ["1"])
    assert not seen.is_current


def test_lag_in_time_is_the_age_of_the_newest_mirrored_record_while_there_is_a_lag() -> None:
    none, some, unknown = (
        row("t", 0)._replace(position=9, end=9, newest_ms=0),
        row("t", 0)._replace(position=5, end=9, newest_ms=1_000),
        row("t", 0),
    )
    assert (none.lag_s(5_000), some.lag_s(5_000), unknown.lag_s(5_000)) == (0.0, 4.0, None)
