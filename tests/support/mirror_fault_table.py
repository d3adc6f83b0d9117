"""Strikes at mirrors of both modes: print what came of each run, and write the table between the marks of a page.

Results are kept in a file of JSON lines: runs that are in it are not made again, so that they may be interrupted and continued.
"""

import argparse
import json
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from support.fault_table.table import markdown, write_between
from support.mirror_strikes import ALL_STRIKES, Outcome, run_strikes

BEGIN, END = "<!-- table of mirrors: begin -->", "<!-- table of mirrors: end -->"
MODES = ("copy", "merge")
HEAD = ("mode", "brokers on each side", "struck", "how often", "records", "lost", "doubled", "in another order", "longest stall")


def main() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="python -m support.mirror_fault_table", description=__doc__)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--brokers", default="1,3", help="of each cluster, by commas")
    parser.add_argument("--kills", type=int, default=18, help="in each run")
    parser.add_argument("--pauses", type=int, default=6, help="in each run")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--out", type=Path, default=Path("out/mirror-faults"), help="directory of results, and of runs with something wrong"
    )
    parser.add_argument("--page", type=Path, help="file with marks, between which the table is written")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "results.jsonl"
    outcomes = [Outcome(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    for mode in given.modes.split(","):
        for brokers in map(int, given.brokers.split(",")):
            for strikes in ALL_STRIKES:
                if any((each.mode, each.brokers, each.strikes) == (mode, brokers, strikes.name) for each in outcomes):
                    continue
                directory = given.out.absolute() / f"{mode}-{brokers}-{strikes.name.replace(' ', '-')}"
                count = given.pauses if strikes.pauses else given.kills
                outcome = run_strikes(directory, mode, strikes, count, brokers=brokers, seed=given.seed)
                print(outcome, flush=True)
                if outcome.is_exact:
                    shutil.rmtree(directory)
                outcomes.append(outcome)
                with file.open("a") as kept:
                    kept.write(json.dumps(asdict(outcome)) + "\n")
    text = table(outcomes)
    print(text)
    if given.page is not None:
        write_between(given.page, BEGIN, END, text)
    return int(not all(each.is_exact for each in outcomes))


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown."""
    rows, order = [], [strikes.name for strikes in ALL_STRIKES]
    for each in sorted(outcomes, key=lambda each: (each.mode, each.brokers, order.index(each.strikes))):
        counts = each.brokers, each.strikes, each.count, each.records, each.lost, each.doubled, each.misplaced
        rows.append([each.mode, *map(str, counts), f"{each.stall_s:.1f} s"])
    total = sum(each.count for each in outcomes), sum(each.records for each in outcomes)
    lost, doubled = sum(each.lost for each in outcomes), sum(each.doubled for each in outcomes)
    return f"{total[0]} strikes, {total[1]} records, {lost} lost, {doubled} doubled.\n\n{markdown(HEAD, rows)}\n"


if __name__ == "__main__":
    sys.exit(main())
