"""This checkout beside an earlier one, cell by cell in turn: what a change has cost.

    python benchmarks/pairs.py CHECKOUT [--only throughput,latency,...] [--rounds 3] [--scale 1.0] [--tolerance 0.03]

CHECKOUT is a work tree of another commit. Both run in the same Python environment, each from its own `src`, driven by the programs of this
checkout. Brokers that have a rival otherwise run at the same time and take turns run by run; what is a process of its own is started in
turns, A B B A. Prints each figure of either with the ratio of their medians, and in the end the cells that are worse by more than the
tolerance. Where the runs of one checkout are further apart than that, the scatter says so. Exit code 1 if a section failed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from row import short
from systems import BEFORE

HERE = Path(__file__).resolve().parent
TOGETHER = ("throughput", "latency", "transactions", "groups")
"""Sections that start both checkouts themselves."""
SCALED = ("throughput", "latency", "transactions", "compaction", "tracking", "auditor")
IN_TURNS = {
    "codec": "codec/run.py",
    "startup": "startup.py",
    "start_many_partitions": "start_many_partitions.py",
    "heartbeats": "heartbeats.py",
    "compaction": "compaction.py",
    "registry": "registry.py",
    "tracking": "tracking.py",
    "auditor": "auditor.py",
}
WHOLE_NUMBERS_OF_THE_CELL = ("rate", "groups", "members", "schemas", "partitions", "segments", "events", "records", "versions")
"""Whole numbers that say what was measured; all others are figures."""
BESIDE_THE_POINT = ("load", "withheld", "run", "runs", "target", "target_us", "met", "min", "max", "summary", "bytes", "records_bytes")
MORE_IS_BETTER = ("rate", "per_s", "per_second", "records/s")
"""Ends of the units and names of figures."""

Cell = tuple[str, ...]


@dataclass(slots=True)
class Figures:
    """What was measured of one figure of a cell, now and before."""

    now: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of the medians."""
        before = statistics.median(self.before)
        return statistics.median(self.now) / before if before else 1.0

    @property
    def scatter(self) -> float:
        """How far the runs of one checkout are apart, as a part of their median; the greater of both."""
        return max(
            (max(each) - min(each)) / statistics.median(each) if statistics.median(each) else 0.0 for each in (self.now, self.before)
        )


def figures(line: dict[str, Any]) -> Iterator[tuple[Cell, float]]:
    """The figures of a line, each with the cell that it is of; a spread gives its median and both ends."""
    known = {name: value for name, value in line.items() if name not in BESIDE_THE_POINT and name != "system"}
    facts = {name: value for name, value in known.items() if _says_what(name, value)}
    cell = tuple(f"{name} {value}" if name in WHOLE_NUMBERS_OF_THE_CELL else str(value) for name, value in facts.items())
    for name, value in known.items():
        if name in facts:
            continue
        if name == "median":
            yield cell, float(value)
        elif isinstance(value, dict) and "median" in value:
            yield from (((*cell, name), float(value[part])) for part in ("min", "median", "max"))
        elif isinstance(value, int | float):
            yield (*cell, name), float(value)


def _says_what(name: str, value: object) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int) and name in WHOLE_NUMBERS_OF_THE_CELL)


def lines(command: list[str], source: Path | None) -> list[dict[str, Any]]:
    """The JSON lines that a section prints, those that sum up runs where there are any; SystemExit if it fails."""
    environment = dict(os.environ) if source is None else {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}")
    found = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    return [line for line in found if line.get("summary")] or found


def measured(section: str, before: Path, rounds: int, scale: float) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The lines of a section, and whether they are of this checkout."""
    scaled = ["--scale", str(scale)] if section in SCALED else []
    if section in TOGETHER:
        command = [str(HERE / f"{section}.py"), "--before", str(before), "--runs", str(rounds), *scaled]
        for line in lines(command, None):
            yield line["system"] != BEFORE, line
        return
    runs = ["--runs", "1"] if section != "codec" else []
    sides = (False, before / "src"), (True, HERE.parent / "src")
    for number in range(rounds):
        for now, source in sides[::-1] if number % 2 else sides:
            # The codec's calls functions, whose arguments differ between checkouts: each checkout has its own.
            programs = source.parent / "benchmarks" if section == "codec" else HERE
            for line in lines([str((programs / IN_TURNS[section]).resolve()), *runs, *scaled], source.resolve()):
                yield now, line


def judge(found: dict[Cell, Figures], tolerance: float) -> list[str]:
    """Print the table; the cells that are worse by more than the tolerance."""
    worse = []
    print("| cell | now | before | ratio | scatter | |\n|---|---|---|---|---|---|")
    for cell, each in found.items():
        if not each.now or not each.before:
            continue
        more = any(part.endswith(MORE_IS_BETTER) for part in cell)
        bad = each.ratio < 1 - tolerance if more else each.ratio > 1 + tolerance
        verdict = ("worse" if each.scatter <= tolerance else "worse, within the scatter") if bad else ""
        name = ", ".join(cell)
        now, before = short(statistics.median(each.now)), short(statistics.median(each.before))
        print(f"| {name} | {now} | {before} | {each.ratio:.3f} | {each.scatter:.2f} | {verdict} |")
        if bad:
            worse.append(f"{name}: {each.ratio:.3f} (scatter {each.scatter:.2f})")
    return worse


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--only", default=",".join([*TOGETHER, *IN_TURNS]))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=0.03)
    given = parser.parse_args()
    sections = given.only.split(",")
    if wrong := sorted({*sections} - {*TOGETHER, *IN_TURNS}):
        parser.error(f"no such section: {', '.join(wrong)}; there are {', '.join([*TOGETHER, *IN_TURNS])}")
    failed, worse = [], []
    for section in sections:
        found: dict[Cell, Figures] = {}
        print(f"# {section}", flush=True)
        try:
            for now, line in measured(section, given.before, given.rounds, given.scale):
                for cell, value in figures(line):
                    each = found.setdefault(cell, Figures())
                    (each.now if now else each.before).append(value)
        except SystemExit as problem:
            print(problem, flush=True)
            failed.append(section)
        worse += [f"{section}: {text}" for text in judge(found, given.tolerance)]
    print("\nworse by more than the tolerance:", *(worse or ["none"]), sep="\n", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
