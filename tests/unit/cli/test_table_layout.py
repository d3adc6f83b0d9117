"""A table fits into its terminal without a broken number or time: headings and texts are folded, then columns left out, by name."""

import io
import re
import sys
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moldau.cli.audit_view import FAULTS, FAULTS_DROPPED, FAULTS_UNDER, NUMERIC, SUMMARY, SUMMARY_DROPPED
from moldau.cli.output import print_table, table_lines
from moldau.cli.terminal_table import cell_width, fold

AUDIT = [("flights", "producer > local", "52,560", "336,776", "336,776", "c0ffee0123456789", "complete", "2014-01-01T04:50:00Z")]
OTHER = ("delays", "producer > local", "52,559", "336,775", "336,775", "0123456789c0ffee", "complete", "2014-01-01T04:40:00Z")
ANSI = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_columns_go_in_their_order_and_a_line_says_which() -> None:
    """Claim: at 80 columns the audit's summary has whole numbers and times in one line each, and names what it leaves out."""
    heading, _, row, *_, last = table_lines(SUMMARY, [*AUDIT, OTHER], numeric=NUMERIC, drop=SUMMARY_DROPPED, width=80)
    assert heading.split() == ["TOPIC", "TIERS", "ABOVE", "BELOW", "VERDICT", "COMPLETE", "UP", "TO"]
    assert row.split() == ["flights", "producer", ">", "local", "336,776", "336,776", "complete", "2014-01-01T04:50:00Z"]
    assert last == "not shown in 80 columns: windows, checksum; --json has all"
    *_, last = table_lines(SUMMARY, AUDIT, numeric=NUMERIC, drop=SUMMARY_DROPPED, width=80)
    assert last == "besides: windows 52,560, checksum c0ffee0123456789"


def test_no_two_rows_look_alike_because_of_a_column_that_is_left_out() -> None:
    """Claim: two instances of a host can be distinguished at 80 columns; what is the same in every row, or empty, goes first."""
    rows = [
        (
            "orders",
            "2026-11-23T00:50:00Z",
            "producer > local",
            "not due until 2026-11-23T01:00:00Z",
            "local",
            "shop",
            "vm",
            instance,
            "10",
            "10",
            "",
        )
        for instance in ("f9f03b834ba6aa7f", "ffa7973a6167a640")
    ]
    _, _, *lines = fault_lines(rows)
    assert lines == [
        "orders  not due until 2026-11-23T01:00:00Z  vm    f9f03b834ba6aa7f     10     10",
        "orders  not due until 2026-11-23T01:00:00Z  vm    ffa7973a6167a640     10     10",
        "in every row: window 2026-11-23T00:50:00Z, tiers producer > local, datacenter",
        "local, service shop",
    ]


def test_a_note_that_has_no_room_stands_under_its_row() -> None:
    hosts = [f"departures-web-frontend-production-eu-central-1a-{number}" for number in (1, 2)]
    rows = [
        (
            "departures",
            "2026-11-23T00:50:00Z",
            "producer > local",
            "loss",
            "eu",
            service,
            host,
            "f9f03b834ba6aa7f",
            "1,000",
            "900",
            f"100 of 1,000 of {service} missing",
        )
        for host, service in zip(hosts, ("shop", "tills"), strict=True)
    ]
    lines = fault_lines(rows)
    assert [line for line in lines if "missing" in line] == ["  100 of 1,000 of shop missing", "  100 of 1,000 of tills missing"]
    at = lines[0].index("HOST")
    rows_end = next(number for number, line in enumerate(lines) if line.startswith("in every row"))
    names = "".join(line[at:].split("  ")[0] for line in lines[2:rows_end] if not line.startswith("  100"))
    assert names == "".join(hosts)
    assert lines[-1] == "not shown in 80 columns: service; --json has all"
    assert " ".join(lines[rows_end:-1]).endswith("datacenter eu, instance f9f03b834ba6aa7f")


def fault_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    return list(table_lines(FAULTS, rows, numeric=NUMERIC, drop=FAULTS_DROPPED, under=FAULTS_UNDER, width=80))


BELOW = ("flights", "local > lake", "52,560", "336,776", "300,000", "c0ffee0123456789", "loss (7 of 52,560 windows)", "-")
DUE = ("flights", "edge > lake", "1", "336,776", "0", "0123456789c0ffee", "not due until 2014-01-01T05:00:00Z", "2014-01-01T04:50:00Z")
HOSTS = [
    (
        "departures",
        f"2013-07-01T1{n}:00:00Z",
        "producer > local",
        "loss",
        "ewr",
        "shop",
        f"ewr-{n}",
        f"{n}" * 16,
        "1,000",
        "997",
        "3 missing",
    )
    for n in range(3)
]


@pytest.mark.parametrize("width", range(34, 121))
@pytest.mark.parametrize("rows", [[*AUDIT, BELOW, DUE], [*AUDIT], HOSTS], ids=["tiers", "one row", "hosts"])
def test_a_report_is_no_wider_than_a_narrow_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    """Claim: what has no room is left out by name, numbers and times stay whole, and each row keeps its topic and its verdict."""
    columns, drop, under = (FAULTS, FAULTS_DROPPED, FAULTS_UNDER) if rows is HOSTS else (SUMMARY, SUMMARY_DROPPED, None)
    lines = list(table_lines(columns, rows, numeric=NUMERIC, drop=drop, under=under, width=width))
    assert [line for line in lines if cell_width(line) > width] == []
    words = {word.strip(",;") for line in lines for word in line.split()}
    whole = {word for row in rows for text in row for word in text.split()}
    assert {word for word in words if re.fullmatch(r"\d[\d:,TZ-]*", word)} <= whole | {str(width)}
    assert sum(line.startswith(rows[0][0]) for line in lines) == len(rows)


@given(
    notes=st.lists(st.text("3 of missing-日本\u0301", max_size=30), min_size=1, max_size=3),
    width=st.integers(1, 200),
)
@example(notes=["3 missing"], width=1)
@example(notes=["日本", ""], width=2)
def test_a_table_with_notes_is_drawn_at_every_width(notes: list[str], width: int) -> None:
    """Claim: of every width each row stays, and each note that is not blank, broken where it has to be. It was an error for one column."""
    rows = [(f"row{number}", "loss", note) for number, note in enumerate(notes)]
    lines = list(table_lines(("topic", "verdict", "note"), rows, under="note", width=width))
    drawn = "".join("".join(lines).split())
    for note in notes:
        assert "".join(note.split()) in drawn
    assert all(any(line.startswith(name) for line in lines) for name, *_ in rows)


def test_in_40_columns_the_leftmost_columns_stay_for_which_there_is_room() -> None:
    lines = list(table_lines(SUMMARY, [*AUDIT, BELOW], numeric=NUMERIC, drop=SUMMARY_DROPPED, width=40))
    assert lines[0].split() == ["TOPIC", "TIERS", "VERDICT"]
    assert " ".join(lines[-2:]) == "not shown in 40 columns: above, below, complete up to; --json has all"
    lines = list(table_lines(FAULTS, HOSTS, numeric=NUMERIC, drop=FAULTS_DROPPED, under=FAULTS_UNDER, width=40))
    assert lines[0].split() == ["TOPIC", "VERDICT", "HOST", "ABOVE", "BELOW"]


def test_a_wide_terminal_shows_all() -> None:
    lines = list(table_lines(SUMMARY, AUDIT, numeric=NUMERIC, drop=SUMMARY_DROPPED, width=120))
    assert len(lines) == 3
    assert all(text in lines[2] for text in AUDIT[0])


def test_headings_are_folded_before_anything_else() -> None:
    lines = list(table_lines(("topic", "dead letters"), [("flights", "12")], numeric=("dead letters",), width=16))
    assert lines == ["TOPIC       DEAD", "         LETTERS", "───────  ───────", "flights       12"]


def test_texts_are_folded_at_their_spaces_and_long_words_last() -> None:
    note = "3 events of host a were counted by the producer and never reached the log"
    lines = list(table_lines(("window", "note"), [("2013-07-01T10:00:00Z", note)], drop=(), width=50))
    assert all(cell_width(line) <= 50 for line in lines)
    assert " ".join(line[20:].strip() for line in lines[2:]) == note
    assert fold("ab abcdefgh", 4) == ["ab", "abcd", "efgh"]
    assert fold("größe 日本語", 5) == ["größe", "日本", "語"]


@given(
    rows=st.lists(
        st.tuples(st.text("abc -", max_size=40), st.integers(0, 10**12).map("{:,}".format), st.text("xyz ", max_size=90)), max_size=4
    ),
    width=st.integers(40, 120),
)
def test_no_number_and_no_time_is_ever_broken(rows: list[tuple[str, str, str]], width: int) -> None:
    """Claim: whatever the texts and the width, each number and each time stands whole in a line, and no line is wider than the terminal."""
    table = [(name, number, f"2013-07-01T10:0{minute}:00Z", text) for minute, (name, number, text) in enumerate(rows)]
    lines = list(table_lines(("name", "number", "time", "text"), table, numeric=("number",), drop=("text", "name"), width=width))
    for _, number, time, _ in table:
        assert any(number in line.split() for line in lines)
        assert any(time in line.replace(",", " ").split() for line in lines)
    assert all(cell_width(line) <= width for line in lines)


def shown(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    print_table(("topic", "verdict"), [("complete", "complete"), ("b", "loss (2 of 7 windows)"), ("c", "not counted yet")])
    return terminal.getvalue()


def test_verdicts_are_coloured_in_their_column_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: green is good, red is a loss, yellow is not decided, at a terminal."""
    _, _, good, bad, open_ = shown(monkeypatch).splitlines()
    assert good == "complete  \x1b[32mcomplete\x1b[0m"
    assert bad.endswith("\x1b[31m\x1b[1mloss (2 of 7 windows)\x1b[0m")
    assert open_.endswith("\x1b[33mnot counted yet\x1b[0m")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_it_is_not_wanted(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ANSI.search(shown(monkeypatch, **variables))


def test_no_colour_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("verdict",), [("loss",)])
    assert capsys.readouterr().out == "VERDICT\nloss\n"
