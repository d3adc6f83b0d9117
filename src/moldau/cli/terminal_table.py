"""The lines of a table at a terminal: folded and coloured, with a rule under the headings and a word about what is left out."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

import click

from moldau.cli.output import GAP, takes_colour, verdict
from moldau.cli.table_layout import cell_width, fold, lay_out


def fitted_lines(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    width: int,
    *,
    numeric: Sequence[str],
    drop: Sequence[str],
    under: str | None,
) -> Iterator[str]:
    """The lines of `moldau.cli.output.print_table` for a terminal so wide; `cells` have no control characters."""
    layout = lay_out(columns, cells, width, numeric=numeric, drop=drop, under=under)
    right = [name in numeric for name in columns]
    coloured = takes_colour(sys.stdout)
    shown = list(zip(layout.shown, layout.widths, strict=True))

    def drawn(row: Sequence[str], style: Callable[[int, str], str]) -> Iterator[str]:
        for texts in zip_longest(*(fold(row[number], size) for number, size in shown), fillvalue=""):
            parts = []
            for text, (number, size) in zip(texts, shown, strict=True):
                space = " " * (size - cell_width(text))
                parts.append(space + style(number, text) if right[number] else style(number, text) + space)
            yield GAP.join(parts).rstrip()

    yield from drawn([name.upper() for name in columns], lambda _, text: click.style(text, bold=True) if coloured and text else text)
    yield GAP.join("─" * size for _, size in shown)
    for row in cells:
        yield from drawn(row, partial(_styled, columns, row))
        if layout.under is not None and row[layout.under]:
            yield from (f"{GAP}{text}" for text in fold(row[layout.under], max(1, width - len(GAP))))
    if layout.same:
        said = ", ".join(f"{columns[number]} {cells[0][number]}" for number in layout.same)
        yield from fold(f"{'in every row' if len(cells) > 1 else 'besides'}: {said}", width)
    if layout.dropped:
        names = ", ".join(columns[number] for number in layout.dropped)
        yield from fold(f"not shown in {width} columns: {names}; --json has all", width)


def _styled(columns: Sequence[str], row: Sequence[str], number: int, text: str) -> str:
    return verdict(text, sys.stdout, row[number]) if columns[number] == "verdict" else text
