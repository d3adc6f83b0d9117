"""The rows of our mirrors beside MirrorMaker 2, out of the lines of `mirror_rates` and `mirror_link`."""

from collections.abc import Iterator
from typing import NamedTuple

from row import Row, Summary, median

RIVAL, TUNED_RIVAL = "mm2", "mm2-tuned"
"""At least once, which is what MirrorMaker 2 does unless it is configured."""
EXACT_RIVAL = "mm2-eos"
EXACT_MODE = "merge"
"""Gives what `EXACT_RIVAL` does: the records and the position after them in one transaction."""
LINK_SHARE = 0.6
MODES = ("copy", "merge")


class Figure(NamedTuple):
    """A figure: its name in the lines, what it is, the targets of `copy` and `merge`."""

    name: str
    what: str
    bounds: tuple[float, float]
    least: bool = False
    absolute: bool = False


FIGURES = (
    Figure("rate", "messages/s while it flows", (8.0, 3.0), least=True),
    Figure("cpu_s_per_million", "CPU s of the mirror per million", (1 / 15, 1 / 4)),
    Figure("first_s", "its start until the first message is there, s", (1.0, 1.0), absolute=True),
    Figure("rss_mb", "memory, MB", (1 / 20, 1 / 20)),
    Figure("p50_us", "end to end at 1,000/s, p50 µs", (0.4, 0.6)),
    Figure("p99_us", "end to end at 1,000/s, p99 µs", (0.5, 0.7)),
)


def mirror_rows(lines: list[Summary]) -> Iterator[Row]:
    """Each of our modes beside the rival; then the one that writes in transactions beside the rival that does."""
    found = {line["system"]: line for line in lines if line.get("test") == "mirror"}
    for place, mode in enumerate(MODES):
        for figure in FIGURES:
            yield from _row(found, mode, mode, RIVAL, figure, figure.bounds[place])
    for figure in FIGURES:
        yield from _row(found, f"{EXACT_MODE}, both exactly once", EXACT_MODE, EXACT_RIVAL, figure, None)
    yield from _link_rows(lines)


def _row(found: dict[str, Summary], what: str, mode: str, rival: str, figure: Figure, bound: float | None) -> Iterator[Row]:
    if mode in found and rival in found:
        values = median(found[mode][figure.name]), median(found[rival][figure.name])
        yield Row(f"{what}: {figure.what}", *values, bound, figure.least, figure.absolute)


def _link_rows(lines: list[Summary]) -> Iterator[Row]:
    found = {(line["system"], line["far"], line["size"]): line for line in lines if line.get("test") == "mirror_link" and "size" in line}
    for (system, far, size), line in found.items():
        theirs = found.get((TUNED_RIVAL, far, size)) or found.get((RIVAL, far, size))
        if system in MODES and theirs is not None:
            cell = f"{system}: part of a slow link, {size} bytes, the {far} far away"
            yield Row(
                cell, median(line["share"]), median(theirs["share"]), LINK_SHARE if far == "source" else None, least=True, absolute=True
            )
