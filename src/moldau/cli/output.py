"""Tables and JSON on standard output.

A table is as wide as its terminal at most, and plain columns everywhere else, so that scripts see neither rules nor folded texts.
Names come from other people: in tables and lines their control characters are written as ``\\x1b``, so that none steers the terminal.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from moldau.cli.terminal import GAP, takes_colour
from moldau.model.errors import PeerError

T = TypeVar("T")

_STDOUT = 1
_FULL_OR_BROKEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def visible(text: str) -> str:
    """The text with an escape for every character that is not to be seen: controls, line ends, halves of surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(text: str, *, err: bool = False) -> None:
    """One line, whatever the names in it contain."""
    click.echo(visible(text), err=err)


def print_json(value: Any) -> None:
    """One JSON document: indented and with escapes for what is not to be seen at a terminal, one line elsewhere."""
    if not sys.stdout.isatty():
        click.echo(json.dumps(value, ensure_ascii=False))
        return
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def print_each(names: Iterable[str], describe: Callable[[str], T], show: Callable[[T], object], *, as_json: bool) -> None:
    """Describe what is there: one JSON document, or one after the other with an empty line between.

    Then what could not be described is reported, and the last such PeerError raised. If nothing was described only the error is printed.
    """
    described: list[T] = []
    refused: list[PeerError] = []
    for name in dict.fromkeys(names):
        try:
            described.append(describe(name))
        except PeerError as error:
            refused.append(error)
    if as_json and described:
        print_json(described)
    for number, each in enumerate([] if as_json else described):
        if number:
            click.echo()
        show(each)
    for each_refused in refused[:-1]:
        say(f"Error: {each_refused.code.name}: {each_refused.message}", err=True)
    if refused:
        raise refused[-1]


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numeric: Sequence[str] = (),
    drop: Sequence[str] | None = None,
    under: str | None = None,
) -> None:
    """Rows under headings; the columns in `numeric` are aligned to the right, those of verdicts coloured.

    Columns that do not fit at a terminal are left out in the order of `drop` (without it from the last one on, but for the first), with
    lines that name them; that of `under` goes under its rows. Every command with a table has --json.
    """
    for line in table_lines(columns, rows, numeric=numeric, drop=drop, under=under, width=_terminal_width()):
        click.echo(line, color=takes_colour(sys.stdout))


def _terminal_width() -> int | None:
    """Of standard output; None where that is no terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil  # 3 ms, with the archive formats that it reads

    return shutil.get_terminal_size().columns


def table_lines(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numeric: Sequence[str] = (),
    drop: Sequence[str] | None = None,
    under: str | None = None,
    width: int | None,
) -> Iterator[str]:
    """The lines of `print_table` for a terminal so wide; None: plain columns, however wide they are."""
    cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    if width is None:
        right = [name in numeric for name in columns]
        widths = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
        for row in ([name.upper() for name in columns], *cells):
            aligned = (text.rjust(size) if r else text.ljust(size) for text, size, r in zip(row, widths, right, strict=True))
            yield GAP.join(aligned).rstrip()
        return
    from moldau.cli.terminal_table import fitted_lines

    yield from fitted_lines(columns, cells, width, numeric=numeric, drop=columns[:0:-1] if drop is None else drop, under=under)


def human_bytes(count: int | None) -> str:
    """``1.5 MiB``; a dash where it is not known."""
    if count is None:
        return "-"
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def is_output_error(error: OSError) -> bool:
    """Whether this is a write to standard output that failed: our own files and sockets fail with errors of their own families."""
    return error.errno in _FULL_OR_BROKEN and error.filename is None


def sleep_while_read(seconds: float) -> None:
    """Sleep, and raise BrokenPipeError once the reader of standard output has closed it: without this only the next write would."""
    import select

    output = select.poll()
    output.register(_STDOUT, 0)  # errors and hang-ups are reported in any case
    if output.poll(seconds * 1000):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def abandon_stdout() -> None:
    """What is still to be written has no reader: discard it, so that the interpreter does not complain when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
