"""Merged tables: rows that a merge takes in a second, and the memory that it needs.

    python benchmarks/lake_merge.py [--scale 1.0] [--runs 3] [--out FILE]

An append-only table of rows with a text key of 20 bytes, a text of 60 bytes, two numbers and a time, as a load leaves it: by day, zstd.
`make` is the first merge, of 2,000,000 rows (times --scale) with 1,000,000 keys, into buckets by size. `spread` merges 200,000 further rows
whose keys lie in all buckets, so all of the table is written again; `narrow` 200,000 rows of 8 keys, in some of the buckets. Each is a
process of its own, from its start to its end, imports included; memory is its greatest resident size. A new table in each run. JSON lines:
system, test, seconds, processor time, rows per second of new rows, memory in MB.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measure import Results, load_average, spread
from moldau.lake.tables.committing import commit
from moldau.lake.tables.data_files import ParquetFileWriter
from moldau.lake.tables.format import TableChange
from moldau.lake.tables.opening import format_named, open_or_create

ROWS, KEYS, NEW, NARROW_KEYS = 2_000_000, 1_000_000, 200_000, 8
ROWS_PER_FILE = 250_000
DAY = datetime.date(2013, 7, 1)
NOON_US = 1_372_680_000_000_000
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([
    ("id", pa.string()), ("text", pa.string()), ("number", pa.int64()), ("delay", pa.int32()), ("at", TIME), ("op", pa.string()),
    ("_partition", pa.int32()), ("_offset", pa.int64()), ("_timestamp", TIME), ("event_hour", pa.int32()), ("event_day", pa.date32()),
])  # fmt: skip
MERGE = """
import json, resource, sys
from moldau.lake.merging.merge import merge_table
done = merge_table(sys.argv[1], sys.argv[2], keys=["id"], order=sys.argv[3], deletes="op=d")
used = resource.getrusage(resource.RUSAGE_SELF)
found = {"rows_read": done.rows_read, "buckets": done.buckets, "rows": done.rows, "merge_s": round(done.seconds, 3)}
found |= {"cpu_s": round(used.ru_utime + used.ru_stime, 3), "peak_mb": round(used.ru_maxrss / 1024, 1)}
print(json.dumps(found))
"""


class Appended:
    """An append-only table of four partitions."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._tables = format_named("delta")
        self._ends = np.zeros(4, np.int64)
        self._order = np.random.default_rng(1)
        open_or_create(self._tables, self.path, SCHEMA, ("event_day",), "benchmark")

    def append(self, keys: Any) -> None:
        """One version with a row for each of these numbers of keys, in files of `ROWS_PER_FILE`."""
        files = []
        inside = pa.schema([each for each in SCHEMA if each.name != "event_day"])
        for begin in range(0, len(keys), ROWS_PER_FILE):
            file = ParquetFileWriter(self.path, "load-", {"event_day": DAY.isoformat()}, inside)
            file.write(self._rows(keys[begin : begin + ROWS_PER_FILE]).cast(inside))
            files.append(file.close())
        commit(self._tables, self.path, TableChange("LOAD", files))

    def _rows(self, keys: Any) -> Any:
        count = len(keys)
        partitions = keys % 4
        offsets = np.zeros(count, np.int64)
        for partition in range(4):
            mine = np.flatnonzero(partitions == partition)
            offsets[mine] = self._ends[partition] + np.arange(len(mine))
            self._ends[partition] += len(mine)
        numbers = self._order.integers(0, 2**40, count)
        at = pa.array(NOON_US + numbers % 86_400_000_000).cast(TIME)
        columns = {
            "id": pa.array([f"member-{key:013d}" for key in keys.tolist()]),
            "text": pa.array([f"{number:020d}{number * 7919:020d}{number * 31:020d}"[:60] for number in numbers.tolist()]),
            "number": pa.array(numbers),
            "delay": pa.array((numbers % 1000).astype(np.int32)),
            "at": at,
            "op": pa.array(np.where(numbers % 50 == 0, "d", "u")),
            "_partition": pa.array(partitions.astype(np.int32)),
            "_offset": pa.array(offsets),
            "_timestamp": at,
            "event_hour": pa.array(np.full(count, 12, np.int32)),
        }
        return pa.table(columns)


def merge(appended: Appended, merged: Path, order: str) -> dict[str, Any]:
    """A process that merges: what it did, and its time."""
    begun = time.perf_counter()
    command = [sys.executable, "-c", MERGE, appended.path, str(merged), order]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    seconds = time.perf_counter() - begun
    return {**json.loads(done.stdout), "seconds": seconds}


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    rows, keys, new = (int(count * given.scale) for count in (ROWS, KEYS, NEW))
    seconds: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    for run in range(given.runs):
        random = np.random.default_rng(run)
        tests = [("make", keys, rows), ("spread", keys, new), ("narrow", NARROW_KEYS, new)]
        for order in ("log", "time:at"):
            with tempfile.TemporaryDirectory() as folder:
                appended = Appended(Path(folder, "t"))
                for test, different, count in tests:
                    appended.append(random.integers(0, different, count))
                    os.sync()
                    name = f"{test} {order}"
                    found = merge(appended, Path(folder, "merged"), order)
                    rate = round(found["rows_read"] / found["seconds"])
                    results.write(system="moldau", test=name, run=run, **found, rows_per_s=rate, load=load_average())
                    seconds.setdefault(name, []).append(found["seconds"])
                    memory.setdefault(name, []).append(found["peak_mb"])
                    sizes[name] = found["rows_read"]
    for name, values in seconds.items():
        results.write(
            system="moldau", test=name, summary=True, rows=sizes[name], seconds=spread(values),
            rows_per_s=spread([round(sizes[name] / value) for value in values]), peak_mb=spread(memory[name]),
        )  # fmt: skip


if __name__ == "__main__":
    main()
