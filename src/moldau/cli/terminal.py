"""How output looks: the colours of verdicts, and the space between the columns of a table.

Colours only at a terminal, and not where the variable NO_COLOR is set (https://no-color.org).
"""

import os
from typing import TextIO

import click

GAP = "  "
"""Between the columns of a table."""
_GOOD = ("complete", "ok", "compatible")
_BAD = ("loss", "duplication", "missing", "doubled", "not the same", "damaged", "not complete", "not compatible", "failed")


def takes_colour(stream: TextIO) -> bool:
    """Whether what is written there may be coloured."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def verdict(text: str, stream: TextIO, whole: str | None = None) -> str:
    """The words of a verdict, coloured if `stream` takes that: ``complete``, ``loss (2 of 7 windows)``, ``DAMAGED``.

    `whole` is the verdict that `text` is a part of, of a cell that is folded for instance.
    """
    if not takes_colour(stream) or not text:
        return text
    words = (whole or text).lower()
    if words.startswith(_BAD):
        return click.style(text, fg="red", bold=True)
    return click.style(text, fg="green" if words.startswith(_GOOD) else "yellow")
