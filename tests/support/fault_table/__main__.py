"""Run cells, print what came of each, and write the table between the marks of a page.

Results are kept in a file of JSON lines: cells that are in it are not run again, so that a run may be interrupted and continued.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from support.fault_table.cell import Result, from_json, run_cell
from support.fault_table.faults import faults_of
from support.fault_table.stage import STORES
from support.fault_table.table import tables, write_between
from support.fault_table.workloads import WORKLOADS

BEGIN, END = "<!-- table of faults: begin -->", "<!-- table of faults: end -->"


def main() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="python -m support.fault_table", description=__doc__)
    parser.add_argument("--stores", default=",".join(STORES), help="where the metadata is, by commas")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--faults", default="", help="all of the store, or these")
    parser.add_argument("--seconds", type=float, default=8.0, help="at least for each cell")
    parser.add_argument("--strikes", type=int, default=3, help="of the fault, at least in each cell")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--out", type=Path, default=Path("out/faults"), help="directory of results, and of what is kept of runs with something wrong"
    )
    parser.add_argument("--page", type=Path, help="file with marks, between which the table is written")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "results.jsonl"
    results = [from_json(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    for store in given.stores.split(","):
        for fault in given.faults.split(",") if given.faults else faults_of(store):
            for workload in given.workloads.split(","):
                if any((each.store, each.fault, each.workload) == (store, fault, workload) for each in results):
                    continue
                directory = given.out.absolute() / f"{store}-{fault}-{workload}"
                result = run_cell(directory, store, workload, fault, seed=given.seed, seconds=given.seconds, strikes_least=given.strikes)
                results.append(result)
                with file.open("a") as kept:
                    kept.write(json.dumps(result.as_json()) + "\n")
                _show(result)
    text = tables(results)
    print(text)
    if given.page is not None:
        write_between(given.page, BEGIN, END, text)
    return int(any(each.wrong for each in results))


def _show(result: Result) -> None:
    counts = f"{result.faults} faults, {result.acknowledged} acknowledged, {result.lost} lost, {result.doubled} doubled"
    print(
        f"{result.store} {result.fault} {result.workload}: {counts}, longest stall {result.stall_s:.1f} s, {result.seconds:.0f} s",
        flush=True,
    )
    for each in result.wrong:
        print(f"    {each}", flush=True)
    if result.kept:
        print(f"    kept: {result.kept}; seed {result.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
