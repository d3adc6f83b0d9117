"""How a table fits into a terminal: which columns are shown, how wide each one is, and which text is folded.

What is tried until it fits: headings are folded at their spaces, texts at theirs, columns are left out in the order in which the caller
gives them up, and last long words are broken. A number or a time is never broken: columns of numbers keep their width, and so does
every word that looks like one. A table that does not fit even then is wider than the terminal.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

GAP = "  "
FOLDED_WIDTH_MIN, BROKEN_WIDTH_MIN = 20, 12
"""Texts are folded at their spaces into columns of the first width or more, and long words are broken into those of the second."""
_RIGID = re.compile(r"[-+@(]?\d[\d.,:+TZ-]*\S{0,4}|[0-9a-f]{16}")
"""Words that are numbers, times, sizes and checksums."""
_MARKS = re.compile(r"[.,/_-]")
"""Where a long word is broken rather than anywhere else: after one of these."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that are shown, by number and with their widths, and those that are not."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    dropped: tuple[int, ...]


def cell_width(text: str) -> int:
    """Columns of a terminal that the text takes: characters of East Asian scripts take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def lay_out(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int, *, numeric: Sequence[str], drop: Sequence[str]) -> Layout:
    """The widest layout that fits into `width`. Columns in `drop` may be left out, the first of them first."""
    texts = [[row[number] for row in cells] for number in range(len(columns))]
    whole = [max([cell_width(name), *map(cell_width, column)]) for name, column in zip(columns, texts, strict=True)]
    soft = [_soft(name, column, name in numeric) for name, column in zip(columns, texts, strict=True)]
    hard = [min(least, _hard(name, column, name in numeric)) for name, column, least in zip(columns, texts, soft, strict=True)]
    shown = list(range(len(columns)))
    dropped: list[int] = []
    for name in (*drop, None):
        if _total(shown, soft) <= width:
            return Layout(tuple(shown), _widened(shown, soft, whole, width), tuple(sorted(dropped)))
        if name is not None and name in columns:
            shown.remove(columns.index(name))
            dropped.append(columns.index(name))
    for number in shown:  # what stands first names the row: it is broken last
        room = width - _total(shown, hard)
        hard[number] += max(0, min(room, soft[number] - hard[number]))
    return Layout(tuple(shown), _widened(shown, hard, whole, width), tuple(sorted(dropped)))


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
