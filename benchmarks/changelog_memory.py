"""One transaction of a million changes, from PostgreSQL and from SQLite, into a replica in SQLite: peak memory of publisher and replica.

    python benchmarks/changelog_memory.py [--scale 1.0] [--runs 1] [--out FILE]

Each is a process of its own; the publisher runs, and the replica follows, when the transaction is made. JSON lines: system, test, changes,
peak memory in MB, seconds from the end of the transaction until the replica has it.
"""

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import changelog
import changelog_postgres
from measure import Results, load_average, resident_mb, spread
from support.postgres import PostgresServer
from systems import ROOT, System, moldau

CHANGES = 1_000_000
FIRST = 1
"""Row that is there before, so that both processes are at work."""
LIMIT_S = 900.0
POSTGRES_PUBLISHER = """
import sys, threading
from moldau.changelog.postgres.published_keys import PublishedKeys
from moldau.changelog.postgres.source import PostgresSource
from moldau.changelog.publisher import Publisher
conninfo, bootstrap, changelog = sys.argv[1:]
publisher = Publisher(bootstrap, changelog, transaction_timeout_ms=600_000)
publisher.make_topics(["items"])
print("runs", flush=True)
PostgresSource(conninfo, ["items"], publisher, PublishedKeys(bootstrap, changelog, 0)).run(threading.Event())
"""
SQLITE_PUBLISHER = """
import sys, threading
from moldau.changelog.sqlite import Source
source = Source(*sys.argv[1:], transaction_timeout_ms=600_000)
source.publish()
print("runs", flush=True)
source.run(threading.Event())
"""
REPLICA = """
import sys
from moldau.changelog.replica import Replica
from moldau.changelog.stores.sqlite import SqliteStore
Replica(*sys.argv[1:3], SqliteStore(sys.argv[3])).run()
"""


@contextmanager
def process(*arguments: str, lines: int = 0) -> Iterator[int]:
    """Its number, once it has printed so many lines; in the end it is killed."""
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    with subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        try:
            for _ in range(lines):
                assert running.stdout.readline(), arguments
            yield running.pid
        finally:
            running.kill()


def wait_rows(path: Path, count: int) -> None:
    """Until a replica has so many rows."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                (found,) = database.execute("SELECT count(*) FROM items").fetchone()
        except sqlite3.OperationalError:
            found = 0
        if found >= count:
            return
        assert time.monotonic() < end, f"{found} of {count} rows came"
        time.sleep(0.2)


def measured(publisher: int, system: System, name: str, path: Path, insert: Any, count: int) -> dict[str, Any]:
    """Make the transaction, and wait until a replica has it."""
    with process("-c", REPLICA, system.bootstrap, name, str(path)) as replica:
        wait_rows(path, FIRST)
        before = resident_mb(publisher, "VmHWM"), resident_mb(replica, "VmHWM")
        insert(FIRST, count)
        begun = time.perf_counter()
        wait_rows(path, FIRST + count)
        seconds = round(time.perf_counter() - begun, 1)
        return {
            "publisher_mb": resident_mb(publisher, "VmHWM"),
            "replica_mb": resident_mb(replica, "VmHWM"),
            "publisher_before_mb": before[0],
            "replica_before_mb": before[1],
            "seconds": seconds,
        }


def from_postgres(system: System, folder: Path, run: int, count: int) -> dict[str, Any]:
    """A server of its own."""
    name = f"large_{run}"
    with PostgresServer({"max_wal_size": "4GB"}) as server:
        conninfo = server.create(name)
        with server.connect(name) as connection:
            connection.execute(changelog_postgres.SCHEMA)

            def insert(first: int, rows: int) -> None:
                connection.execute(changelog_postgres.INSERT, (first, first + rows - 1))

            insert(0, FIRST)
            with process("-c", POSTGRES_PUBLISHER, conninfo, system.bootstrap, name, lines=1) as publisher:
                return measured(publisher, system, name, folder / f"{name}.db", insert, count)


def from_sqlite(system: System, folder: Path, run: int, count: int) -> dict[str, Any]:
    """By a writer that knows nothing of the changelog."""
    case = changelog.Case(system, folder, "large", run)
    with case.other:

        def insert(first: int, rows: int) -> None:
            case.other.execute("BEGIN")
            case.other.executemany(changelog.INSERT, (changelog.row(number) for number in range(first, first + rows)))
            case.other.execute("COMMIT")

        insert(0, FIRST)
        with process("-c", SQLITE_PUBLISHER, str(case.path), system.bootstrap, case.name, lines=1) as publisher:
            return measured(publisher, system, case.name, folder / f"copy-{run}.db", insert, count)


def main() -> None:
    """Both, several times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    count = max(int(CHANGES * given.scale), 1000)
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as directory, moldau(Path(directory) / "broker") as system:
        for name, measure in (("postgres", from_postgres), ("sqlite", from_sqlite)):
            found = []
            for run in range(given.runs):
                found.append(measure(system, Path(directory), run, count) | {"load": load_average()})
                results.write(system="moldau", test=f"changelog-memory-{name}", run=run, changes=count, **found[-1])
            summary = {key: spread([each[key] for each in found]) for key in found[0] if key != "load"}
            results.write(system="moldau", test=f"changelog-memory-{name}", summary=True, changes=count, **summary)


if __name__ == "__main__":
    main()
