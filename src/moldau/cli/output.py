"""Tables and JSON on standard output.

A table is drawn by rich at a terminal and is plain columns everywhere else, so that scripts neither see borders nor pay for rich's import.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

T = TypeVar("T")

_FULL_OR_BROKEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def print_json(value: Any) -> None:
    """One JSON document: indented at a terminal, one line elsewhere."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent))


def print_each(described: Sequence[T], show: Callable[[T], object], *, as_json: bool) -> None:
    """What was described: one JSON document, or one after the other with an empty line between."""
    if as_json:
        print_json(described)
        return
    for number, each in enumerate(described):
        if number:
            click.echo()
        show(each)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Sequence[str] = ()) -> None:
    """Rows under headings; the columns in `numeric` are aligned to the right."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
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
