"""The lines of a table at a terminal: folded and coloured, with a rule under the headings and a word about what is left out.

What is tried until it fits: headings are folded at their spaces, and texts at theirs. Of the columns that the caller gives up, in its
order, empty ones are left out, then those that have the same in every row, which is then printed once, then those without which no two rows
look alike; a column of notes is written under its rows. Then other columns that have the same in every row are left out, long words are
broken, and columns that the caller gives up are left out though they distinguish rows. Last, of all columns but the first and the verdict
only those stay for which there is room, the leftmost first. A number or a time is never broken: columns of numbers keep their width, and so
does every word that looks like one. A table whose first column and verdict do not fit is wider than the terminal.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest

import click

from moldau.cli.terminal import GAP, takes_colour, verdict

FOLDED_WIDTH_MIN, BROKEN_WIDTH_MIN = 20, 12
"""Texts are folded at their spaces into columns of the first width or more, and long words are broken into those of the second."""
_RIGID = re.compile(r"[-+@(]?\d[\d.,:+TZ-]*\S{0,4}")
"""Words that are numbers, times and sizes."""
_MARKS = re.compile(r"[.,/_-]")
"""Where a long word is broken rather than anywhere else: after one of these."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns that are shown, by number and with their widths, and what becomes of the others that are not empty."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    under: int | None = None
    """Written under each row."""
    same: tuple[int, ...] = ()
    """Left out; they have the same in every row."""
    dropped: tuple[int, ...] = ()
    """Left out."""


def cell_width(text: str) -> int:
    """Columns of a terminal that the text takes: characters of East Asian scripts take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def lay_out(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    width: int,
    *,
    numeric: Sequence[str],
    drop: Sequence[str],
    under: str | None = None,
) -> TableLayout:
    """The widest layout that fits into `width`: columns in `drop` are left out before others, the first of them first; `under` goes under
    its rows.
    """
    texts = [[row[number] for row in cells] for number in range(len(columns))]
    whole = [max([cell_width(name), *map(cell_width, column)]) for name, column in zip(columns, texts, strict=True)]
    soft = [_soft(name, column, name in numeric) for name, column in zip(columns, texts, strict=True)]
    hard = [min(least, _hard(name, column, name in numeric)) for name, column, least in zip(columns, texts, soft, strict=True)]
    given_up = [columns.index(name) for name in drop if name in columns]
    notes = None if under is None else columns.index(under)
    others = [n for n, name in enumerate(columns) if n and n != notes and n not in given_up and name not in (*numeric, "verdict")]
    choice = _Choice(texts, width, list(range(len(columns))))
    choice.leave_out_empty(soft, [*given_up, *([] if notes is None else [notes])])
    if notes is not None:
        choice.write_under(soft, notes)
    choice.say_once(soft, given_up)
    choice.leave_out(soft, given_up, alike=False)
    choice.say_once(soft, others)
    least = soft if choice.fits(soft) else hard
    choice.leave_out(least, given_up, alike=True)
    choice.keep_what_fits(least, [n for n in choice.shown if n and columns[n] != "verdict"])
    shown = choice.shown
    if least is hard:
        for number in shown:  # the first column names the row: it is broken last
            room = width - _total(shown, hard)
            hard[number] += max(0, min(room, soft[number] - hard[number]))
    widths = _widened(shown, least, whole, width)
    return TableLayout(tuple(shown), widths, choice.under, tuple(sorted(choice.same)), tuple(sorted(choice.dropped)))


@dataclass(slots=True)
class _Choice:
    """The columns that are still shown; each step does nothing more once these fit with their widths `least`."""

    texts: Sequence[Sequence[str]]
    width: int
    shown: list[int]
    under: int | None = None
    same: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)

    def fits(self, least: Sequence[int]) -> bool:
        return _total(self.shown, least) <= self.width

    def leave_out_empty(self, least: Sequence[int], numbers: Sequence[int]) -> None:
        for number in numbers:
            if not self.fits(least) and number in self.shown and self.texts[number] and not any(self.texts[number]):
                self.shown.remove(number)

    def write_under(self, least: Sequence[int], number: int) -> None:
        if not self.fits(least) and number in self.shown:
            self.shown.remove(number)
            self.under = number

    def say_once(self, least: Sequence[int], numbers: Sequence[int]) -> None:
        for number in numbers:
            if not self.fits(least) and number in self.shown and len(set(self.texts[number])) == 1:
                self.shown.remove(number)
                self.same.append(number)

    def leave_out(self, least: Sequence[int], numbers: Sequence[int], *, alike: bool) -> None:
        """Columns without which no more rows look alike; with `alike` others too."""
        for number in numbers:
            left = [each for each in self.shown if each != number]
            if not self.fits(least) and number in self.shown and (alike or self._different(left) == self._different(self.shown)):
                self.shown = left
                self.dropped.append(number)

    def keep_what_fits(self, least: Sequence[int], numbers: Sequence[int]) -> None:
        """Leave these columns out, but for those that there is room for, the first of them first."""
        if self.fits(least):
            return
        kept = [each for each in self.shown if each not in numbers]
        for number in numbers:
            if _total([*kept, number], least) <= self.width:
                kept.append(number)
        self.dropped += [each for each in self.shown if each not in kept]
        self.shown = sorted(kept)

    def _different(self, shown: Sequence[int]) -> int:
        return len(set(zip(*(self.texts[number] for number in shown), strict=True)))


def fold(text: str, width: int) -> list[str]:
    """Lines of at most `width`, broken at spaces, and within words only where they are longer."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_width(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        while cell_width(word) > width:
            cut = next(n for n in range(len(word), 0, -1) if n == 1 or cell_width(word[:n]) <= width)
            marks = [found.end() for found in _MARKS.finditer(word, 0, cut) if found.end() > cut // 2]
            cut = marks[-1] if marks else cut
            lines.append(word[:cut])
            word = word[cut:]
        line = word
    return [*lines, line]


def _soft(name: str, texts: Sequence[str], numeric: bool) -> int:
    """The least width in which no word is broken."""
    words = [word for text in texts for word in ([text] if numeric else text.split(" "))]
    needed = max(map(cell_width, [*name.split(" "), *words]))
    return needed if numeric else max(needed, min(FOLDED_WIDTH_MIN, max(map(cell_width, texts), default=0)))


def _hard(name: str, texts: Sequence[str], numeric: bool) -> int:
    """The least width in which no number and no time is broken."""
    words = [word for text in texts for word in ([text] if numeric else text.split(" ")) if numeric or _RIGID.fullmatch(word)]
    return max(map(cell_width, [*name.split(" "), *words]) if numeric else [BROKEN_WIDTH_MIN, *map(cell_width, words)])


def _total(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[number] for number in shown) + len(GAP) * (len(shown) - 1)


def _widened(shown: Sequence[int], least: Sequence[int], most: Sequence[int], width: int) -> tuple[int, ...]:
    """Widths from `least` up to `most` with the room that is left, the narrowest column first."""
    widths = [least[number] for number in shown]
    room = width - _total(shown, least)
    while room > 0:
        growing = [at for at, number in enumerate(shown) if widths[at] < most[number]]
        if not growing:
            break
        at = min(growing, key=lambda each: widths[each])
        widths[at] += 1
        room -= 1
    return tuple(widths)


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
        shared = ", ".join(f"{columns[number]} {cells[0][number]}" for number in layout.same)
        yield from fold(f"{'in every row' if len(cells) > 1 else 'besides'}: {shared}", width)
    if layout.dropped:
        names = ", ".join(columns[number] for number in layout.dropped)
        yield from fold(f"not shown in {width} columns: {names}; --json has all", width)


def _styled(columns: Sequence[str], row: Sequence[str], number: int, text: str) -> str:
    return verdict(text, sys.stdout, row[number]) if columns[number] == "verdict" else text
