"""A report of the audit as a picture: the tree of tiers, with what each has counted, verdicts, lags and latencies. SVG, as text. Pure.

Tiers stand in columns, from the producers to the right, each after the last one that it takes from.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from moldau.audit.edges import TierEdge, edges_of, events_of, latencies_of
from moldau.audit.svg import document, shortened
from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Report, Verdict, overall
from moldau.tracking.clock import moment
from moldau.tracking.latencies import QUANTILES, Latencies

_BOX_WIDTH, _BOX_HEIGHT = 216, 104
_GAP_X, _GAP_Y = 150, 34
_MARGIN, _TOP = 24, 84
_LINE = 18
_NAME_MAX, _TITLE_MAX = 24, 60
_LEGEND = "in boxes: events, verdict, time from track() to the tier; on lines: events that the tier to the right still lacks"
_LABEL_CHARACTER = 7
"""The width of a character, for the ground of text on a line."""
_GOOD, _BAD, _OPEN, _NONE = "#2e7d32", "#c62828", "#b26a00", "#757575"


@dataclass(frozen=True, slots=True)
class _Place:
    """The upper left corner of a box."""

    x: float
    y: float

    @property
    def middle(self) -> float:
        return self.y + _BOX_HEIGHT / 2


def tree_picture(report: Report, tree: TierTree) -> str:
    """The whole file. Without a tree the tiers are a chain."""
    tree = tree or TierTree.chain(report.tiers)
    edges = edges_of(report, tree)
    columns = _columns(tree)
    places, width, height = _places(columns)
    parts = [
        f'<text x="{_MARGIN}" y="30" font-size="17">{_title(report)}</text>',
        f'<text x="{_MARGIN}" y="52" fill="#555">{_LEGEND}</text>',
        *(part for edge in edges for part in _edge(edge, places)),
        *_boxes(report, tree, edges, places),
    ]
    return document(width, height, parts)


def _title(report: Report) -> str:
    topics = sorted({pair.topic for pair in report.pairs} | {each.topic for each in report.settled})
    what = f"topic {topics[0]}" if len(topics) == 1 else f"{len(topics)} topics"
    return escape(f"{shortened(what, _TITLE_MAX)}: {overall(report)}")


def _columns(tree: TierTree) -> list[list[str]]:
    depth: dict[str, int] = {}
    for tier in tree.tiers:  # each after its sources
        depth[tier.name] = max((depth[source] + 1 for source in tier.sources), default=0)
    return [[name for name in tree.names if depth[name] == column] for column in range(max(depth.values(), default=-1) + 1)]


def _places(columns: list[list[str]]) -> tuple[dict[str, _Place], int, int]:
    rows = max(map(len, columns), default=1)
    tall = rows * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y
    found = {}
    for number, names in enumerate(columns):
        top = _TOP + (tall - len(names) * (_BOX_HEIGHT + _GAP_Y) + _GAP_Y) / 2
        for row, name in enumerate(names):
            found[name] = _Place(_MARGIN + number * (_BOX_WIDTH + _GAP_X), top + row * (_BOX_HEIGHT + _GAP_Y))
    width = 2 * _MARGIN + max(1, len(columns)) * (_BOX_WIDTH + _GAP_X) - _GAP_X
    return found, max(width, 2 * _MARGIN + 560), _TOP + tall + _MARGIN


def _edge(edge: TierEdge, places: Mapping[str, _Place]) -> Iterator[str]:
    start, end = places[edge.upper], places[edge.lower]
    x1, x2 = start.x + _BOX_WIDTH, end.x
    bend = (x1 + x2) / 2
    colour = _colour(edge.verdict)
    dashes = "" if edge.verdict is not None else ' stroke-dasharray="4 4"'
    name = quoteattr(f"{edge.upper} > {edge.lower}")
    yield f"<g aria-label={name}>"
    yield (
        f'<path d="M{x1:g},{start.middle:g} C{bend:g},{start.middle:g} {bend:g},{end.middle:g} {x2:g},{end.middle:g}" '
        f'fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
    )
    y = (start.middle + end.middle) / 2 - 6
    for number, text in enumerate(_edge_lines(edge)):
        at, width = y + number * 24, _LABEL_CHARACTER * len(text)
        yield f'<rect x="{bend - width / 2:g}" y="{at - 11:g}" width="{width:g}" height="15" fill="white"/>'
        yield f'<text x="{bend:g}" y="{at:g}" text-anchor="middle" fill="{colour}">{escape(text)}</text>'
    yield "</g>"


def _edge_lines(edge: TierEdge) -> list[str]:
    if edge.verdict is None:
        return ["not compared"]
    lines = [f"lag {edge.lag:,}"] if edge.lag or not edge.more else []
    return [*lines, f"{edge.more:,} more"] if edge.more else lines


def _boxes(report: Report, tree: TierTree, edges: Iterable[TierEdge], places: Mapping[str, _Place]) -> Iterator[str]:
    events, latencies = events_of(report, tree), latencies_of(report)
    order = list(Verdict)
    for tier in tree.tiers:
        place = places[tier.name]
        verdicts = [edge.verdict for edge in edges if edge.lower == tier.name and edge.verdict is not None]
        verdict = min(verdicts, key=order.index, default=None)
        yield f"<g aria-label={quoteattr(tier.name)}>"
        yield f"<title>{escape(tier.name)}</title>"
        yield (
            f'<rect x="{place.x:g}" y="{place.y:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" fill="white" '
            f'stroke="{_colour(verdict) if tier.sources else "#333"}" stroke-width="2"/>'
        )
        count = f"{events[tier.name]:,} events" if tier.name in events else "no counts"
        lines = [(shortened(tier.name, _NAME_MAX), "#000", ' font-weight="bold" font-size="14"'), (count, "#000", "")]
        if tier.sources:
            lines.append((verdict.value if verdict is not None else "not compared", _colour(verdict), ""))
            lines.append((_latency(latencies.get(tier.name)), "#555", ' font-size="10"'))
            lines.append((_complete(report, tier.name), "#555", ' font-size="10"'))
        for number, (text, colour, more) in enumerate(lines):
            yield (f'<text x="{place.x + 10:g}" y="{place.y + 22 + number * _LINE:g}" fill="{colour}"{more}>{escape(text)}</text>')
        yield "</g>"


def _latency(found: Latencies | None) -> str:
    if not found:
        return ""
    return ", ".join(f"p{round(100 * share)} {span_text(found.quantile(share))}" for share in QUANTILES)


def span_text(time_ms: int) -> str:
    """In the largest unit of which there are at least two."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if time_ms >= 2 * unit_ms:
            return f"{time_ms // unit_ms:,} {unit}"
    return f"{time_ms / 1000:.3g} s"


def _complete(report: Report, tier: str) -> str:
    marks = [mark for (_, name), mark in report.watermarks.items() if name == tier]
    known = [mark for mark in marks if mark is not None]
    return f"complete up to {moment(min(known))}" if marks and len(known) == len(marks) else ""


def _colour(verdict: Verdict | None) -> str:
    if verdict is None:
        return _NONE
    return _BAD if verdict.alarming else _GOOD if verdict is Verdict.COMPLETE else _OPEN
