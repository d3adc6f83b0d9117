"""A failing run becomes a small one, is shown, and is kept."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from moldau.broker.replicas.partition import Partition
from moldau.testing.simulation.fleet import clients_of
from moldau.testing.simulation.options import draw_options
from moldau.testing.simulation.regressions import Regression, from_toml, load_all, minimize, shrink, to_toml
from moldau.testing.simulation.trial import run_trial
from simulation.test_trials import WORKLOADS

pytestmark = pytest.mark.system

REGRESSIONS = Path(__file__).parent / "regressions"


@pytest.mark.parametrize("needed", [[], [3], [0, 99], [5, 6, 50]])
def test_minimizing_leaves_what_is_needed(needed: list[int]) -> None:
    tried = []

    def fails(items: Sequence[int]) -> bool:
        tried.append(items)
        return set(needed) <= set(items)

    assert minimize(list(range(100)), fails) == needed
    assert len(tried) < 80


def test_a_planted_bug_shrinks_to_few_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "open_offset", lambda self, _level: self.log_end_offset)
    for seed in range(100):
        options = draw_options(seed, ("power_cut", "disconnect", "slow_disk", "refuse"))
        options.settings["log.flush.interval.messages"] = 1
        failed = run_trial(options, WORKLOADS)
        if failed.failures:
            break
    small = shrink(options, WORKLOADS, failed)
    assert small.verdict.signature == failed.signature
    assert len(small.verdict.script.faults) + len(small.verdict.script.hits) <= 3
    assert small.options.operations <= options.operations
    assert run_trial(small.options, small.workloads, small.verdict.script).crc == small.verdict.crc


def test_a_transcript_changes_nothing_and_shows_what_happened() -> None:
    options = draw_options(38)
    file = io.StringIO()
    shown = run_trial(options, WORKLOADS, transcript=file)
    assert shown.crc == run_trial(options, WORKLOADS).crc
    lines = [[column.strip() for column in line.split("|")] for line in file.getvalue().splitlines()]
    assert {"^", "!", "~"} <= {line[2] for line in lines}
    assert any("plain-0 " in line[4] for line in lines if len(line) > 4)
    assert [float(line[0]) for line in lines] == sorted(float(line[0]) for line in lines)


def test_a_run_is_the_same_from_its_file() -> None:
    options = draw_options(7)
    verdict = run_trial(options, WORKLOADS)
    kept = Regression('says "no"', ["recovery: cut a torn batch"], options, verdict.script)
    read = from_toml(to_toml(kept))
    assert read == kept._replace(script=read.script)
    assert run_trial(read.options, WORKLOADS, read.script).crc == verdict.crc


@pytest.mark.parametrize("name", load_all(REGRESSIONS))
def test_what_was_found_once_does_not_come_back(name: str) -> None:
    regression = load_all(REGRESSIONS)[name]
    verdict = run_trial(regression.options, clients_of(regression.options), regression.script)
    assert not verdict.failures, f"{regression.claim}: {verdict}"
    missing = [point for point in regression.reaches if not verdict.reached[point]]
    assert not missing, "the run has lost its point"
