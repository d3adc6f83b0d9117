"""A database of PostgreSQL into a replica in SQLite, through the log: changes a second, and how long a change takes to the replica.

    python benchmarks/changelog_postgres.py [--scale 1.0] [--runs 3] [--out FILE]

Server, broker and publisher are processes of their own; the replica is in this one. `rows`: 100,000 rows that were there before. `stream`:
as many changes in transactions of 100, written as fast as the server takes them; from the first one until the replica has the last.
`lag`: 1,000 changes a second in transactions of 10; of each change the milliseconds from its statement until the replica has committed it.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Results, cpu_seconds, load_average, spread
from moldau.changelog.replica import Replica
from moldau.changelog.store import Position
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import Change
from support import postgres_publisher
from support.postgres import PostgresServer
from systems import ROOT, System, moldau

CHANGES = 100_000
AT_A_TIME = 100
RATE = 1_000
LAG_AT_A_TIME = 10
SCHEMA = "CREATE TABLE items (id bigint PRIMARY KEY, name text NOT NULL, price double precision, written_ms bigint, note text)"
INSERT = """INSERT INTO items SELECT n, 'item ' || n, n * 1.25, extract(epoch FROM clock_timestamp()) * 1000, repeat('x', 60)
FROM generate_series(%s::bigint, %s::bigint) n"""


class TimedStore(SqliteStore):
    """Notes for each change when it was committed, and how long after it was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.applied = 0
        self.lags_ms: list[float] = []
        self.changed = threading.Condition()

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        """As the store does it."""
        super().apply(shard, changes, position)
        now_ms = time.time_ns() / 1e6
        with self.changed:
            self.lags_ms += [now_ms - each.after["written_ms"] for each in changes if each.after is not None]  # type: ignore[operator]
            self.applied += len(changes)
            self.changed.notify_all()

    def wait_for(self, rows: int) -> None:
        """Until so many changes are applied."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.applied >= rows, 600), f"{self.applied} of {rows} changes came"


class Case:
    """A database of its own, and a changelog."""

    def __init__(self, server: PostgresServer, system: System, folder: Path, name: str, run: int) -> None:
        self.name = f"{name}_{run}"
        self.bootstrap = system.bootstrap
        self.conninfo = server.create(self.name)
        self.connection = server.connect(self.name)
        self.connection.execute(SCHEMA)
        self.store = TimedStore(folder / f"{self.name}.db")

    def insert(self, first: int, count: int) -> None:
        """In one transaction."""
        self.connection.execute(INSERT, (first, first + count - 1))

    @contextmanager
    def published(self) -> Iterator[int]:
        """While a process publishes the database: its number."""
        command = [sys.executable, postgres_publisher.__file__, self.conninfo, self.bootstrap, self.name, "items"]
        environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            try:
                assert [process.stdout.readline(), process.stdout.readline()] == ["runs\n", "streams\n"]
                yield process.pid
            finally:
                process.kill()

    @contextmanager
    def replicated(self) -> Iterator[None]:
        """While a thread brings it to the store."""
        replica = Replica(self.bootstrap, self.name, self.store)
        thread = threading.Thread(target=replica.run)
        thread.start()
        try:
            yield
        finally:
            replica.stop()
            thread.join()
            replica.close()

    def close(self) -> None:
        """The slot too."""
        self.connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        self.connection.close()


def rows(case: Case, count: int) -> dict[str, Any]:
    """From the start of the publisher until its rows are in the log, and then in the replica."""
    case.insert(0, count)
    begun = time.perf_counter()
    with case.published():
        published = time.perf_counter()
        with case.replicated():
            case.store.wait_for(count)
        return {"published_rate": round(count / (published - begun)), "applied_rate": round(count / (time.perf_counter() - published))}


def stream(case: Case, count: int) -> dict[str, Any]:
    """As fast as it goes."""
    with case.published() as publisher, case.replicated():
        case.insert(-1, 1)
        case.store.wait_for(1)
        begun, cpu, own = time.perf_counter(), cpu_seconds(publisher), time.process_time()
        for first in range(0, count, AT_A_TIME):
            case.insert(first, AT_A_TIME)
        written = time.perf_counter() - begun
        case.store.wait_for(1 + count)
        seconds = time.perf_counter() - begun
        return {
            "rate": round(count / seconds),
            "written_rate": round(count / written),
            "publisher_cpu_us": round((cpu_seconds(publisher) - cpu) / count * 1e6, 1),
            "replica_cpu_us": round((time.process_time() - own) / count * 1e6, 1),
        }


def lag(case: Case, count: int) -> dict[str, Any]:
    """At an even pace."""
    with case.published(), case.replicated():
        begun = time.perf_counter()
        for first in range(0, count, LAG_AT_A_TIME):
            time.sleep(max(0.0, begun + first / RATE - time.perf_counter()))
            case.insert(first, LAG_AT_A_TIME)
        written = time.perf_counter() - begun
        case.store.wait_for(count)
        found = sorted(case.store.lags_ms)
    return {"p50_ms": round(found[count // 2], 1), "p99_ms": round(found[count * 99 // 100], 1), "written_rate": round(count / written)}


CASES: dict[str, tuple[Callable[[Case, int], dict[str, Any]], int]] = {
    "rows": (rows, CHANGES),
    "stream": (stream, CHANGES),
    "lag": (lag, 20 * RATE),
}


def main() -> None:
    """All cases, several times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    with (
        tempfile.TemporaryDirectory(prefix="moldau-bench-") as directory,
        moldau(Path(directory) / "broker") as system,
        PostgresServer({"max_wal_size": "4GB"}) as server,
    ):
        for name, (measure, full) in CASES.items():
            count = max(int(full * given.scale), 1000)
            found: list[dict[str, Any]] = []
            for run in range(given.runs):
                case = Case(server, system, Path(directory), name, run)
                found.append(measure(case, count) | {"load": load_average()})
                case.close()
                results.write(system="moldau", test=f"changelog-postgres-{name}", run=run, changes=count, **found[-1])
            summary = {key: spread([each[key] for each in found]) for key in found[0] if key != "load"}
            results.write(system="moldau", test=f"changelog-postgres-{name}", summary=True, **summary)


if __name__ == "__main__":
    main()
