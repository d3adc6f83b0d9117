"""A database in SQLite into the log: changes a second, and how long one commit takes from its transaction to the log.

    python benchmarks/changelog.py [--scale 1.0] [--runs 3] [--out FILE]

The broker is a process of its own. `large`: one transaction of 100,000 changes. `rows`: as many rows that were there before. `small`:
commits of ten changes by another writer, each published at once. `acknowledged`: one change in a transaction, and the next one when the log
has it. `cpu_us` is the processor time of this process for a change, with librdkafka's threads, in `small` with the writer; `written_rate`
is what the writer does meanwhile, and `unpublished_written_rate` without triggers.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import Results, load_average, spread
from moldau.changelog.sqlite import Store
from systems import System, moldau

CHANGES = 100_000
SMALL = 10
ACKNOWLEDGED = 500
SCHEMA = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL, stock INTEGER, note TEXT)"
INSERT = "INSERT INTO items VALUES (?, ?, ?, ?, ?)"


def row(number: int) -> tuple[object, ...]:
    """About a hundred bytes."""
    return number, f"item {number}", number * 1.25, number % 100, "x" * 60


class Case:
    """A database of its own, and a changelog."""

    def __init__(self, system: System, folder: Path, name: str, run: int) -> None:
        self.name = f"{name}-{run}"
        self.path = folder / f"{self.name}.db"
        self.bootstrap = system.bootstrap
        self.other = sqlite3.connect(self.path, isolation_level=None)
        self.other.execute("PRAGMA journal_mode = WAL")
        self.other.execute(SCHEMA)

    def store(self) -> Store:
        """The store, which the log knows already."""
        store = Store(self.path, self.bootstrap, self.name)
        store.source.start()
        return store

    def insert(self, count: int, at_a_time: int) -> float:
        """By a writer that knows nothing of the changelog; seconds."""
        begun = time.perf_counter()
        for first in range(0, count, at_a_time):
            self.other.execute("BEGIN")
            self.other.executemany(INSERT, (row(number) for number in range(first, first + at_a_time)))
            self.other.execute("COMMIT")
        return time.perf_counter() - begun


def large(case: Case, count: int) -> dict[str, Any]:
    """One commit."""
    with case.store() as store:
        writing = case.insert(count, count)
        begun, cpu = time.perf_counter(), time.process_time()
        store.publish()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"rate": round(count / seconds), "cpu_us": round(cpu / count * 1e6, 1), "written_rate": round(count / writing)}


def rows(case: Case, count: int) -> dict[str, Any]:
    """Rows that were there."""
    writing = case.insert(count, count)
    with case.store() as store:
        begun, cpu = time.perf_counter(), time.process_time()
        store.publish()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"rate": round(count / seconds), "cpu_us": round(cpu / count * 1e6, 1), "unpublished_written_rate": round(count / writing)}


def small(case: Case, count: int) -> dict[str, Any]:
    """Each commit of the writer is published at once."""
    with case.store() as store:
        begun, cpu, done = time.perf_counter(), time.process_time(), 0
        while done < count:
            case.other.execute("BEGIN")
            case.other.executemany(INSERT, (row(number) for number in range(done, done + SMALL)))
            case.other.execute("COMMIT")
            done += SMALL
            store.publish()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"rate": round(count / seconds), "commits_per_s": round(count / SMALL / seconds), "cpu_us": round(cpu / count * 1e6, 1)}


def acknowledged(case: Case, count: int) -> dict[str, Any]:
    """Milliseconds of each commit, from its begin until the log has it."""
    took = []
    with case.store() as store:
        for number in range(count):
            begun = time.perf_counter()
            with store.transaction() as transaction:
                transaction.execute(INSERT, row(number))
            store.publish(transaction.commit)
            took.append((time.perf_counter() - begun) * 1e3)
    took.sort()
    return {"p50_ms": round(took[count // 2], 2), "p99_ms": round(took[count * 99 // 100], 2)}


CASES: dict[str, tuple[Callable[[Case, int], dict[str, Any]], int]] = {
    "large": (large, CHANGES),
    "rows": (rows, CHANGES),
    "small": (small, CHANGES // 10),
    "acknowledged": (acknowledged, ACKNOWLEDGED),
}


def main() -> None:
    """All cases, several times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as directory, moldau(Path(directory) / "broker") as system:
        for name, (measure, full) in CASES.items():
            count = max(int(full * given.scale), 100)
            found: list[dict[str, Any]] = []
            for run in range(given.runs):
                case = Case(system, Path(directory), name, run)
                found.append(measure(case, count) | {"load": load_average()})
                case.other.close()
                results.write(system="moldau", test=f"changelog-{name}", run=run, changes=count, **found[-1])
            summary = {key: spread([each[key] for each in found]) for key in found[0] if key != "load"}
            results.write(system="moldau", test=f"changelog-{name}", summary=True, **summary)


if __name__ == "__main__":
    main()
