"""Runs that have failed: made small, and kept as files with their options, what went wrong in them, and what they must still reach.

Small: fewer faults and rare decisions, fewer operations, fewer clients, as long as the run fails in the same way. Faults and rare decisions
are removed by delta debugging: halves are tried first, then smaller parts. A removal is kept if the run still fails with the same
signature; that it fails at another place of the history does not matter.

A file keeps no seed's meaning but what the seed has drawn, so that a change of the drawing does not change the run. A run whose places are
not reached any more has lost its point: the test that repeats it fails.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from moldau.testing.simulation.disk import DiskOptions
from moldau.testing.simulation.nemesis import Fault
from moldau.testing.simulation.network import NetworkOptions
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.probes import Hit
from moldau.testing.simulation.trial import Script, TrialResult, run_trial
from moldau.testing.simulation.workloads import Workload

T = TypeVar("T")
RUNS_MAX = 80
OPERATIONS_MIN = 20

Workloads = Sequence[tuple[str, Workload]]


class ShrinkResult(NamedTuple):
    """A small run that fails."""

    options: Options
    workloads: Workloads
    verdict: TrialResult
    runs: int


def shrink(options: Options, workloads: Workloads, failed: TrialResult, runs_max: int = RUNS_MAX) -> ShrinkResult:
    """The smallest run found that fails as `failed` did, which these options and workloads have given."""
    wanted = failed.signature
    best = ShrinkResult(options, workloads, failed, 0)
    runs = 0

    def try_run(options: Options, workloads: Workloads, script: Script) -> bool:
        nonlocal best, runs
        if runs >= runs_max:
            return False
        runs += 1
        verdict = run_trial(options, workloads, script)
        if wanted not in verdict.signatures:
            return False
        best = ShrinkResult(options, workloads, verdict, runs)
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


class Regression(NamedTuple):
    """A run that must be clean."""

    claim: str
    """What it once broke, and what must hold."""
    reaches: Sequence[str]
    options: Options
    script: Script


def to_toml(regression: Regression) -> str:
    """The text of a file."""
    options = asdict(regression.options)
    tables = {name: options.pop(name) for name in ("faults", "settings", "network", "disk")}
    lines = [_entry("claim", regression.claim), _entry("reaches", list(regression.reaches)), "", "[options]"]
    lines += [_entry(name, value) for name, value in options.items()]
    for table, values in tables.items():
        lines += ["", f"[options.{table}]", *(_entry(name, value) for name, value in values.items())]
    for name, entries in (("fault", regression.script.faults), ("hit", regression.script.hits)):
        for entry in entries:
            lines += ["", f"[[{name}]]", *(_entry(key, value) for key, value in entry._asdict().items())]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> Regression:
    """What `to_toml` wrote."""
    data = tomllib.loads(text)
    options: dict[str, Any] = dict(data["options"])
    options["network"] = NetworkOptions(**options["network"])
    options["disk"] = DiskOptions(**options["disk"])
    script = Script([Fault(**each) for each in data.get("fault", [])], [Hit(**each) for each in data.get("hit", [])])
    return Regression(data["claim"], data["reaches"], Options(**options), script)


def load_all(directory: Path) -> Mapping[str, Regression]:
    """The regressions of a directory, by name."""
    return {path.stem: from_toml(path.read_text()) for path in sorted(directory.glob("*.toml"))}


def _entry(name: str, value: object) -> str:
    return f"{_text(name)} = {_value(value)}"


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            raise TypeError(f"no value for a regression's file: {value!r}")


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
