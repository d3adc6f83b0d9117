"""Starts both systems, hands them to a measurement, and stops them: what every benchmark beside a rival has in common."""

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from load import LoadClient, build
from measure import Results
from systems import ROOT, System, kafka, moldau

T = TypeVar("T")
Pair = Sequence[tuple[System, LoadClient]]


@dataclass(frozen=True, slots=True)
class Options:
    """How much and how often."""

    scale: float
    runs: int
    batch: str | None
    """Only this size of batches (throughput)."""


def in_turn(systems: Sequence[T], run: int) -> Sequence[T]:
    """Another system first in every other run: what the machine does after one (it writes back, it frees pages) the next one pays for."""
    return systems[::-1] if run % 2 else systems


def benchmark(description: str | None, measure: Callable[[Pair, Results, Options], None]) -> None:
    """Read the command line, run the measurement with both systems up, only one of them under load at a time."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of messages or seconds")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch", help="only this size of batches: large, 50 or 1")
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    rival = parser.add_mutually_exclusive_group()
    rival.add_argument("--only", choices=["moldau", "kafka"], help="leave the other system out (no ratio can be quoted then)")
    rival.add_argument("--before", type=Path, metavar="CHECKOUT", help="Moldau of another checkout in Kafka's place")
    given = parser.parse_args()
    results = Results(given.out)
    program = build(ROOT / "out")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        systems = []
        if given.only != "kafka":
            systems.append(stack.enter_context(moldau(folder / "moldau")))
        if given.before is not None:
            systems.append(stack.enter_context(moldau(folder / "before", checkout=given.before)))
        elif given.only != "moldau":
            systems.append(stack.enter_context(kafka(folder / "kafka")))
        pair = [(system, LoadClient(program, system.bootstrap)) for system in systems]
        measure(pair, results, Options(given.scale, given.runs, given.batch))
