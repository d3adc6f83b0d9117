"""Each workload comes to its end through faults, and what its clients did and saw is clean."""

from dataclasses import replace

import pytest

from moldau.testing.simulation.fleet import clients_of, settle
from moldau.testing.simulation.options import draw_options
from moldau.testing.simulation.trial import TrialResult, run_trial

pytestmark = pytest.mark.system

TOGETHER = {
    "groups": ["commit_plainly", "join", "join", "join", "look", "write"],
    "copies": ["copy", "copy", "write"],
    "kept": ["compact", "delete"],
    "topics": ["administrate", "look", "write"],
    "heirs": ["look", "read", "succeed"],
}


def trial(clients: list[str], seed: int) -> TrialResult:
    options = replace(draw_options(seed), clients=clients)
    settle(options)
    return run_trial(options, clients_of(options))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clients", TOGETHER.values(), ids=list(TOGETHER))
def test_a_seed_is_clean(clients: list[str], seed: int) -> None:
    verdict = trial(clients, seed)
    assert not verdict.failures, str(verdict)
