"""The rows of what has no rival: registry, tracked events, audit, the small load; each figure beside its target."""

from collections.abc import Iterator
from dataclasses import dataclass

from row import Row, Summary, median


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a test's summary: its name there, what it is, its target."""

    name: str
    cell: str
    bound: float | None
    least: bool = False


FIGURES: dict[str, tuple[Figure, ...]] = {
    "registry": (
        Figure("ready_ms", "registry of {schemas:,} schemas: from exec to the first look-up, ms", 1_000),
        Figure("server_cpu_us", "registry of {schemas:,} schemas: look-up by id, processor time of the server, µs", 1_000),
        Figure("round_trip_us", "registry of {schemas:,} schemas: look-up by id, round trip, µs", 1_000),
    ),
    "registry-register": (Figure("ms_each", "registry of {schemas:,} schemas: a new schema acknowledged, ms", None),),
    "tracking-track": (Figure("rate", "events of 10 fields tracked, acknowledged, counted, by one core: events/s", 60_000, least=True),),
    "tracking-encode": (Figure("rate", "of that, checked and encoded only: events/s", None, least=True),),
    "tracking-track dataclass": (Figure("rate", "the same, dataclasses of 9 fields of mixed types: events/s", 80_000, least=True),),
    "tracking-encode dataclass": (Figure("rate", "of that, checked and encoded only: events/s", None, least=True),),
    "tracking-track pydantic": (Figure("rate", "the same, pydantic models of 9 fields of mixed types: events/s", 80_000, least=True),),
    "tracking-encode pydantic": (Figure("rate", "of that, checked and encoded only: events/s", None, least=True),),
    "load small": (Figure("seconds", "load of {events:,} events, whole process: s", 12),),
    "tracking-read": (Figure("rate", "events of 10 fields read and decoded by one core: events/s", None, least=True),),
}
AUDIT_TARGETS = {"pure Python": 200_000.0, "numpy": 400_000.0}
"""Events a second of one core, by the walker (H2)."""


def alone_rows(lines: list[Summary]) -> Iterator[Row]:
    """The rows, in the order of the lines."""
    for line in lines:
        if line["test"] == "audit":
            cell = f"audit, {line['what']}, {line['way']}: events/s of a core"
            yield Row(cell, median(line["events_per_s"]), None, AUDIT_TARGETS.get(line["way"]), True)
        for figure in FIGURES.get(line["test"], ()):
            if figure.name in line:
                yield Row(figure.cell.format(**line), median(line[figure.name]), None, figure.bound, figure.least)
