"""The rows of what has no rival: registry, tracked events, audit, the small load, changelogs, merges; each figure beside its target."""

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
    "changelog-postgres-stream": (
        Figure("rate", "PostgreSQL into a replica in SQLite: changes/s", 20_000, least=True),
        Figure("publisher_cpu_us", "of that, the publisher: processor time of a change, µs", 45),
        Figure("replica_cpu_us", "of that, the replica: processor time of a change, µs", 45),
    ),
    "changelog-postgres-lag": (Figure("p99_ms", "the same at 1,000 changes/s: lag p99, ms", 200),),
    "changelog-postgres-rows": (
        Figure("published_rate", "rows of PostgreSQL published at first, start included: rows/s", None, least=True),
        Figure("applied_rate", "the same loaded by a new replica in SQLite: rows/s", None, least=True),
    ),
    "changelog-large": (
        Figure("rate", "SQLite, one large transaction into the log: changes/s", None, least=True),
        Figure("cpu_us", "of that, processor time of a change, µs", 45),
    ),
    "changelog-small": (
        Figure("rate", "SQLite, transactions of 10 changes, each into the log at once: changes/s", None, least=True),
        Figure("cpu_us", "of that, processor time of a change, µs", None),
    ),
    "changelog-acknowledged": (Figure("p99_ms", "SQLite, a transaction of one change acknowledged by the log: p99, ms", None),),
    "changelog-memory-postgres": (
        Figure("publisher_mb", "one transaction of {changes:,} changes of PostgreSQL: publisher, MB", 256),
        Figure("replica_mb", "the same: replica in SQLite, MB", 256),
    ),
    "changelog-memory-sqlite": (
        Figure("publisher_mb", "one transaction of {changes:,} changes of SQLite: publisher, MB", 256),
        Figure("replica_mb", "the same: replica in SQLite, MB", 256),
    ),
    "make log": (
        Figure("rows_per_s", "a merged table made of {rows:,} rows, whole process: rows/s", None, least=True),
        Figure("peak_mb", "the same: memory, MB", None),
    ),
    "spread log": (Figure("rows_per_s", "{rows:,} rows merged into all buckets: rows/s", None, least=True),),
    "narrow log": (Figure("rows_per_s", "{rows:,} rows of 8 keys merged: rows/s", None, least=True),),
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
