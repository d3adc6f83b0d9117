"""Makes a failing run small: fewer faults and rare decisions, fewer operations, fewer clients, as long as it fails in the same way.

Faults and rare decisions are removed by delta debugging: halves are tried first, then smaller parts. A removal is kept if the run still
fails with the same signature; that it fails at another place of the history does not matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from moldau.testing.simulation.nemesis import Fault
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.probes import Hit
from moldau.testing.simulation.trial import Script, Verdict, run_trial
from moldau.testing.simulation.workloads import Workload

T = TypeVar("T")
RUNS_MAX = 80
OPERATIONS_MIN = 20

Workloads = Sequence[tuple[str, Workload]]


class Shrunk(NamedTuple):
    """A small run that fails."""

    options: Options
    workloads: Workloads
    verdict: Verdict
    runs: int


def shrink(options: Options, workloads: Workloads, failed: Verdict, runs_max: int = RUNS_MAX) -> Shrunk:
    """The smallest run found that fails as `failed` did, which these options and workloads have given."""
    wanted = failed.signature
    best = Shrunk(options, workloads, failed, 0)
    runs = 0

    def try_run(options: Options, workloads: Workloads, script: Script) -> bool:
        nonlocal best, runs
        if runs >= runs_max:
            return False
        runs += 1
        verdict = run_trial(options, workloads, script)
        if wanted not in verdict.signatures:
            return False
        best = Shrunk(options, workloads, verdict, runs)
        return True

    def with_items(items: Sequence[Fault | Hit]) -> bool:
        return try_run(best.options, best.workloads, _script(items))

    items: list[Fault | Hit] = [*failed.script.faults, *failed.script.hits]
    minimize(items, with_items)
    while best.options.operations > OPERATIONS_MIN:
        if not try_run(replace(best.options, operations=best.options.operations // 2), best.workloads, best.verdict.script):
            break
    for place in reversed(range(len(workloads))):
        rest = [each for number, each in enumerate(best.workloads) if number != place]
        if rest:
            try_run(best.options, rest, best.verdict.script)
    return best._replace(runs=runs)


def minimize(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Items without which, one or some at a time, `fails` is false: a small list for which it was true. It is true for `items`."""
    left = list(items)
    if left and fails([]):
        return []
    parts = 2
    while len(left) > 1:
        size = max(1, len(left) // parts)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if rest and fails(rest):
                left, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(left), 2 * parts)
    return left


def _script(items: Sequence[Fault | Hit]) -> Script:
    return Script([each for each in items if isinstance(each, Fault)], [each for each in items if isinstance(each, Hit)])
