"""Tables are plain columns in a pipe and drawn at a terminal; JSON is one document either way; progress never reaches a pipe."""

import io
import json
import subprocess
import sys
import time

import pytest

from moldau.cli.output import counted, human_bytes, print_each, print_json, print_table, say, visible
from moldau.cli.produce import ProgressLine
from moldau.model.errors import ErrorCode, PeerError

ROWS = [("flights", 12), ("a", None)]


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "partitions"), ROWS, numeric=("partitions",))
    assert capsys.readouterr().out == "TOPIC    PARTITIONS\nflights          12\na\n"


def test_a_table_without_rows_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "partitions"), [])
    assert capsys.readouterr().out == "TOPIC  PARTITIONS\n"


def test_a_terminal_gets_a_drawn_table_and_markup_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("topic", "value"), [("t", "[bold]x[/bold]")])
    assert "TOPIC" in terminal.getvalue()
    assert "[bold]x[/bold]" in terminal.getvalue()
    assert "─" in terminal.getvalue()


def test_json_is_one_line_in_a_pipe_and_indented_at_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    print_json({"name": "ü", "list": [1]})
    assert capsys.readouterr().out == '{"name": "ü", "list": [1]}\n'
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_json({"name": "ü", "list": [1]})
    assert len(terminal.getvalue().splitlines()) > 1
    assert json.loads(terminal.getvalue()) == {"name": "ü", "list": [1]}


READ_ONCE = """
import time
from moldau.cli.output import sleep_while_read

begun = time.monotonic()
sleep_while_read(0.2)
print(time.monotonic() - begun, flush=True)
sleep_while_read(600)
"""


def test_a_sleep_ends_when_the_reader_of_the_output_has_gone() -> None:
    """Claim: it lasts as long as it was to as long as somebody reads, and without a write it notices that nobody does."""
    with subprocess.Popen([sys.executable, "-c", READ_ONCE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert float(process.stdout.readline()) >= 0.2
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read().splitlines()[-1] == "BrokenPipeError: [Errno 32] Broken pipe"


HOSTILE = "a\x1b[2J\nb\x9b\udc80"
SEEN = r"a\x1b[2J\nb\x9b\udc80"


def test_names_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a table, not in a line; and as JSON they are still the same names."""
    print_table(("topic", "partitions"), [(HOSTILE, 1)])
    say(f"deleted {HOSTILE}")
    assert capsys.readouterr().out.splitlines()[1:] == [f"{SEEN}  1", f"deleted {SEEN}"]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("topic",), [("x\x1b[2Jy",)])
    assert r"x\x1b[2Jy" in terminal.getvalue()
    terminal.truncate(0)
    print_json([HOSTILE, "ü\U000e0001"])
    assert json.loads(terminal.getvalue().lstrip("\0")) == [HOSTILE, "ü\U000e0001"]
    assert "ü" in terminal.getvalue()
    assert not {"\x1b", "\x9b", "\udc80"} & set(terminal.getvalue())
    assert visible("größe 7") == "größe 7"


def describe(name: str) -> str:
    if name.startswith("no"):
        raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name}: gone")
    return name.upper()


def test_what_is_there_is_described_before_what_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PeerError, match="group no2: gone"):
        print_each(["a", "no1", "b", "a", "no2"], describe, print, as_json=False)
    assert capsys.readouterr() == ("A\n\nB\n", "Error: GROUP_ID_NOT_FOUND: group no1: gone\n")
    with pytest.raises(PeerError, match="no1"):
        print_each(["no1", "b"], describe, print, as_json=True)
    assert capsys.readouterr() == ('["B"]\n', "")
    with pytest.raises(PeerError, match="no1"):
        print_each(["no1"], describe, print, as_json=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_for_people(count: int | None, text: str) -> None:
    assert human_bytes(count) == text


def test_counts_for_people() -> None:
    assert [counted(n, "record") for n in (0, 1, 2, 336776)] == ["0 records", "1 record", "2 records", "336,776 records"]


def test_progress_is_a_line_that_goes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = Terminal(), [100.0]
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown = ProgressLine("sent", 1000)
    shown.update(10, 100)
    assert terminal.getvalue() == "", "not before its time"
    now[0] += 0.5
    shown.update(1000, 400)
    assert terminal.getvalue() == "\rsent 1,000  2,000/s  40 %\033[K"
    shown.clear()
    shown.clear()
    assert terminal.getvalue().endswith("\033[K\r\033[K")


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    shown = ProgressLine("sent")
    shown.update(1000)
    shown.clear()
    assert capsys.readouterr().err == ""
