"""Tables and JSON on standard output.

A table is drawn by rich at a terminal and is plain columns everywhere else, so that scripts neither see borders nor pay for rich's import.
Names come from other people: in tables and lines their control characters are written as ``\\x1b``, so that none steers the terminal.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from moldau.model.errors import PeerError

T = TypeVar("T")

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

    Then what could not be described is told, and the last such PeerError raised. Nothing is printed if that is all there is.
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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Sequence[str] = ()) -> None:
    """Rows under headings; the columns in `numeric` are aligned to the right."""
    cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells, numeric)
        return
    widths = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    right = [name in numeric for name in columns]
    for row in ([name.upper() for name in columns], *cells):
        aligned = (text.rjust(width) if r else text.ljust(width) for text, width, r in zip(row, widths, right, strict=True))
        click.echo("  ".join(aligned).rstrip())


def _print_rich(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.upper(), justify="right" if name in numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    Console().print(table)


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


def abandon_stdout() -> None:
    """Nobody takes what is still to be written: send it nowhere, so that the interpreter does not complain when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
