"""A Delta table of 100,000 small files: seconds and memory of opening it, scanning it, `moldau lake doctor`, a checkpoint and a compaction.

    python benchmarks/lake_doctor.py [--files 100000] [--per-version 100] [--compact] [--out FILE]

Files of ten rows in a thousand days, a hundred of them in each version of the log, and no checkpoint: what a load leaves that commits every
few seconds and that nothing looks after. They are links to a few real ones, so that all can be read. Each step is a process of its own;
`cpu_s` are its seconds of the processor, `rss_mb` its peak of resident memory, and `base_mb` what the same imports take alone. JSON lines:
test, files, seconds, cpu_s, rss_mb, base_mb.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from measure import Results, load_average, resident_mb
from moldau.lake.tables import delta
from moldau.lake.tables.data_files import DAY, TIME_FIELDS, DataFile, PartitionWriter
from moldau.lake.tables.format import TableChange
from moldau.lake.tables.opening import format_named, open_or_create, opened

DAYS = 1_000
ROWS = 10
LINKS_MAX = 50_000
"""A file system allows some 65,000 names of one file."""
BEGIN = date(2013, 1, 1)
SCHEMA = pa.schema([("carrier", pa.string()), ("flight", pa.int64()), ("delay", pa.float64()), *TIME_FIELDS])


def make_table(path: str, files: int, per_version: int) -> None:
    """The table, by the log's own writer but without its checkpoints."""
    delta.CHECKPOINT_INTERVAL = files + 1
    tables = format_named("delta")
    snapshot = open_or_create(tables, path, SCHEMA, [DAY], "")
    assert isinstance(snapshot, delta.DeltaSnapshot)
    rows = pa.table({"carrier": ["AA"] * ROWS, "flight": list(range(ROWS)), "delay": [float(number) for number in range(ROWS)]})
    names = [f"{DAY}={BEGIN + timedelta(days=number)}" for number in range(DAYS)]
    for name in names:
        Path(path, name).mkdir()
    sources: list[DataFile] = []
    number = 0
    while number < files:
        adds = []
        for _ in range(min(per_version, files - number)):
            if number % LINKS_MAX == 0:
                writer = PartitionWriter(path, "source")
                writer.add(rows, np.zeros(ROWS, np.int64))
                sources += writer.finish()
            source, name = sources[-1], names[number % DAYS]
            file = f"{name}/bench-{number:032x}.parquet"
            os.link(Path(path, source.path), Path(path, file))
            adds.append(DataFile(file, {DAY: name.partition("=")[2]}, source.size, ROWS, source.statistics))
            number += 1
        snapshot.version = tables.put(path, snapshot, TableChange("LOAD", adds))  # the next is made after it, and the log is not read again
    for source in sources:
        Path(path, source.path).unlink()


def imports(path: str) -> None:
    """What all steps import."""
    import moldau.lake.dataset
    import moldau.lake.doctor.repairing  # noqa: F401


def open_(path: str) -> None:
    """The newest snapshot and its list of files."""
    opened(path).files()


def scan(path: str) -> None:
    """A dataset, and the rows of one day."""
    import pyarrow.dataset as pad

    from moldau.lake.dataset import scan as scan_table

    found = scan_table(path).count_rows(filter=pad.field(DAY) == BEGIN)
    assert found > 0, found


def doctor(path: str) -> None:
    """All checks, with a thousand footers."""
    from moldau.lake.doctor.examination import examine
    from moldau.lake.doctor.facts import Limits
    from moldau.lake.doctor.rules import findings

    facts = examine(path)
    assert not facts.missing
    print([each.check.value for each in findings(facts, Limits())], file=sys.stderr)


def checkpoint(path: str) -> None:
    """A checkpoint of the newest version."""
    from moldau.lake.tables.delta import make_checkpoint

    make_checkpoint(path)


def compact(path: str) -> None:
    """All small files into one for each day."""
    from moldau.lake.tables.rewriting import compact_table

    done = compact_table(path)
    assert done.files_after == DAYS, done


STEPS: dict[str, Callable[[str], None]] = {
    "imports": imports, "open": open_, "scan": scan, "doctor": doctor, "checkpoint": checkpoint, "compact": compact,
}  # fmt: skip


def step(name: str, path: str) -> dict[str, float]:
    """Seconds, those of the processor among them, and peak memory in MB of a step in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--step", name, path], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run_step(name: str, path: str) -> None:
    """In that process: the imports before, then the step."""
    imports(path)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    STEPS[name](path)
    seconds, cpu_s = round(time.perf_counter() - begun, 2), round(time.process_time() - begun_cpu, 2)
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "rss_mb": resident_mb(os.getpid(), "VmHWM")}))


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the table, and measure step after step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--per-version", type=int, default=100, help="files that one version of the log adds")
    parser.add_argument("--compact", action="store_true", help="compact the table too")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--step", nargs=2, metavar=("NAME", "TABLE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.step:
        run_step(*given.step)
        return
    results = Results(given.out)
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        path = str(Path(folder, "table"))
        begun = time.perf_counter()
        make_table(path, given.files, given.per_version)
        print(f"table of {given.files:,} files made in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
        base_mb = step("imports", path)["rss_mb"]
        after = [("open", "open"), ("scan", "scan"), ("doctor", "doctor"), ("checkpoint", "checkpoint")]
        after += [("open, checkpoint", "open"), ("doctor, checkpoint", "doctor")]
        if given.compact:
            after += [("compact", "compact"), ("checkpoint, compacted", "checkpoint"), ("open, compacted", "open")]
        for test, name in after:
            measured = step(name, path)
            results.write(system="moldau", test=test, files=given.files, **measured, base_mb=base_mb, load=load_average())


if __name__ == "__main__":
    main()
