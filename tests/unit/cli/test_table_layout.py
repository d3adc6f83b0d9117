"""A table fits into its terminal without a broken number or time: headings and texts are folded, then columns left out, by name."""

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.audit_view import NUMERIC, SUMMARY, SUMMARY_DROPPED
from moldau.cli.output import print_table, table_lines
from moldau.cli.table_layout import cell_width, fold

AUDIT = [("flights", "producer > local", "52,560", "336,776", "336,776", "c0ffee0123456789", "complete", "2014-01-01T04:50:00Z")]
ANSI = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_columns_go_in_their_order_and_a_line_says_which() -> None:
    """Claim: at 80 columns the audit's summary has whole numbers and times in one line each, and names what it leaves out."""
    heading, _, row, last = table_lines(SUMMARY, AUDIT, numeric=NUMERIC, drop=SUMMARY_DROPPED, width=80)
    assert heading.split() == ["TOPIC", "TIERS", "ABOVE", "BELOW", "VERDICT", "COMPLETE", "UP", "TO"]
    assert row.split() == ["flights", "producer", ">", "local", "336,776", "336,776", "complete", "2014-01-01T04:50:00Z"]
    assert last == "not shown in 80 columns: windows, checksum; --json has all"


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
        st.tuples(st.text("abc -", max_size=40), st.integers(0, 10**15).map("{:,}".format), st.text("xyz ", max_size=90)), max_size=4
    ),
    width=st.integers(40, 120),
)
def test_no_number_and_no_time_is_ever_broken(rows: list[tuple[str, str, str]], width: int) -> None:
    """Claim: whatever the texts and the width, each number and each time stands whole in a line, and no line is wider than the terminal."""
    table = [(name, number, "2013-07-01T10:00:00Z", text) for name, number, text in rows]
    lines = list(table_lines(("name", "number", "time", "text"), table, numeric=("number",), drop=("text", "name"), width=width))
    for _, number, time, _ in table:
        assert any(number in line.split() and time in line.split() for line in lines)
    assert all(cell_width(line) <= width for line in lines[:-1])


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
