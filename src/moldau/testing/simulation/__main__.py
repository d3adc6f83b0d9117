"""Simulates many seeds: ``python -m moldau.testing.simulation --seeds 1000 --first 1``. The exit status is 1 if one was not clean.

The seeds are shared out to processes, each with its own order of hashes; every twentieth runs in two of them and has to be the same run.
Of a seed that fails its transcript and a small run that fails in the same way are written to files.

With ``--mirrors`` a seed is two clusters and a mirror between them; of one that fails the transcript is written, and no small run.

With ``--mutants`` it plants bugs and counts how many seeds it takes to find each; the exit status is 1 if no block of seeds finds one.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any, TextIO

from moldau.testing.simulation.fleet import clients_of, options_of
from moldau.testing.simulation.mirrors.fleet import mirror_options_of
from moldau.testing.simulation.mirrors.mutants import MIRROR_MUTANTS, MIRROR_SEEDS_MAX, mirror_seeds_until_found
from moldau.testing.simulation.mirrors.trial import run_mirror_trial
from moldau.testing.simulation.mutant import Mutant
from moldau.testing.simulation.mutants import BLOCKS, MUTANTS, SEEDS_MAX, first_of_block, seeds_until_found
from moldau.testing.simulation.probes import points_of_mirrors, points_of_the_product
from moldau.testing.simulation.regressions import Regression, shrink, to_toml
from moldau.testing.simulation.report import SeedReport
from moldau.testing.simulation.trial import TrialResult, run_trial

TWICE_EVERY = 20
SHOWN = 5
"""Failing seeds that are shown in full."""
LINES_SHOWN = 60


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="moldau.testing.simulation", description="Run simulated brokers from seeds.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/simulation"), help="directory for transcripts and small runs")
    parser.add_argument("--mirrors", action="store_true", help="two clusters and a mirror from one to the other")
    parser.add_argument("--mutants", action="store_true", help="plant bugs and count the seeds that find them")
    parser.add_argument("--worker", type=int, default=-1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker >= 0:
        results = _hunt(given) if given.mutants else _run(given)
        for result in results:
            print(json.dumps(result), flush=True)
        return 0
    begun = time.monotonic()
    status = _report_mutants(given) if given.mutants else _report_seeds(given)
    print(f"{time.monotonic() - begun:.0f} s in {given.jobs} processes")
    return status


def _run(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The seeds of one process."""
    for place in range(given.seeds):
        is_second = place % TWICE_EVERY == 0 and (place + 1) % given.jobs == given.worker
        if place % given.jobs == given.worker or is_second:
            verdict = _verdict(given.first + place, mirrors=given.mirrors)
            yield {
                "seed": verdict.seed,
                "crc": verdict.crc,
                "failures": verdict.failures,
                "cpu_s": verdict.cpu_s,
                "steps": verdict.steps,
                "records": verdict.operations,
                "faults": len(verdict.done),
                "reached": sorted(verdict.reached),
                "struck": sorted(verdict.struck),
                "states": sorted(verdict.states),
            }


def _verdict(seed: int, *, mirrors: bool, transcript: TextIO | None = None) -> TrialResult:
    if mirrors:
        return run_mirror_trial(mirror_options_of(seed), transcript=transcript)
    options = options_of(seed)
    return run_trial(options, clients_of(options), transcript=transcript)


def _planted(given: argparse.Namespace) -> tuple[Sequence[Mutant], Callable[[Mutant, int], int | None], int]:
    """The bugs, how one is hunted in a block of seeds, and how many of these there are."""
    if given.mirrors:
        return MIRROR_MUTANTS, mirror_seeds_until_found, MIRROR_SEEDS_MAX
    return MUTANTS, seeds_until_found, SEEDS_MAX


def _hunt(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The blocks of seeds of one process, for each planted bug."""
    mutants, hunt, _ = _planted(given)
    tasks = [(place, block) for place in range(len(mutants)) for block in range(BLOCKS)]
    for place, block in tasks[given.worker :: given.jobs]:
        yield {"mutant": place, "found": hunt(mutants[place], first_of_block(block))}


def _report_seeds(given: argparse.Namespace) -> int:
    report = SeedReport()
    for result in _results(given):
        report.add(result)
        if result["failures"]:
            print(f"seed {result['seed']}: {result['failures'][0].splitlines()[-1][:300]}", flush=True)
    points = points_of_mirrors() if given.mirrors else points_of_the_product()
    print("\n".join(report.lines(points)))
    for seed in report.failed()[:SHOWN]:
        if given.mirrors:
            _show(seed, given.out)
        else:
            _explain(seed, given.out)
    missing = report.never_reached(points)
    if missing:
        print("never reached: " + ", ".join(missing))
    return 1 if report.failed() or report.differences or missing else 0


def _report_mutants(given: argparse.Namespace) -> int:
    mutants, _, most = _planted(given)
    found: dict[int, list[int | None]] = {place: [] for place in range(len(mutants))}
    for result in _results(given):
        found[result["mutant"]].append(result["found"])
        print(f"{mutants[result['mutant']].name}: {result['found'] or 'not found'}", flush=True)
    print(f"\nplanted bug, median of the seeds until found in {BLOCKS} blocks of at most {most}, each block")
    for place, mutant in enumerate(mutants):
        middle = median(most + 1 if count is None else count for count in found[place])
        blocks = " ".join(str(count or "-") for count in found[place])
        print(f"  {mutant.name:<70} {middle if middle <= most else f'> {most}':>6}   {blocks}")
    return int(any(not any(counts) for counts in found.values()))


def _results(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What the processes report, as it comes."""
    lines: SimpleQueue[str | int] = SimpleQueue()

    def read(worker: "subprocess.Popen[str]") -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            lines.put(line)
        lines.put(worker.wait())

    for number in range(given.jobs):
        command = [sys.executable, "-m", "moldau.testing.simulation", *sys.argv[1:], "--worker", str(number)]
        environment = {**os.environ, "PYTHONHASHSEED": str(number + 1)}
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        threading.Thread(target=read, args=(worker,), daemon=True).start()
    running = given.jobs
    while running:
        line = lines.get()
        if isinstance(line, str):
            yield json.loads(line)
        elif line:
            raise SystemExit(f"a process ended with status {line}")
        else:
            running -= 1


def _show(seed: int, out: Path, *, mirrors: bool = True) -> TrialResult:
    """Run a failing seed again with its transcript."""
    out.mkdir(parents=True, exist_ok=True)
    transcript = out / f"seed-{seed}.log"
    with transcript.open("w") as file:
        verdict = _verdict(seed, mirrors=mirrors, transcript=file)
    print(f"\n==== seed {seed}; again: make simulate{'-mirrors' if mirrors else ''} FIRST={seed} SEEDS=1; transcript: {transcript}")
    print("\n".join(transcript.read_text().splitlines()[-LINES_SHOWN:]))
    print("\n".join(verdict.failures))
    return verdict


def _explain(seed: int, out: Path) -> None:
    """Show it, and make it small."""
    verdict, options = _show(seed, out, mirrors=False), options_of(seed)
    small = shrink(options, clients_of(options), verdict)
    small.options.clients = [name for name, _ in small.workloads]
    kept = out / f"seed-{seed}.toml"
    kept.write_text(to_toml(Regression(small.verdict.signature, sorted(small.verdict.reached), small.options, small.verdict.script)))
    print(f"small run after {small.runs} tries: clients {', '.join(small.options.clients)}, {small.options.operations} operations")
    print("\n".join(f"  {entry}" for entry in (*small.verdict.script.faults, *small.verdict.script.hits)))
    print(f"  {small.verdict.failures[0].splitlines()[-1]}")
    print(f"small run: {kept}")


if __name__ == "__main__":
    sys.exit(main())
