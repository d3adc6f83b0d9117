"""A mirror has each record once, in its order, whatever is killed at whatever moment (missions F3, G1)."""

import os
import random
from pathlib import Path

import pytest

from support.mirror_strikes import IN_TURN, run_strikes

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS, BROKERS = (60, [1, 3]) if os.environ.get("MOLDAU_TORTURE") else (6, [1])


@pytest.mark.parametrize("mode", ["merge", pytest.param("copy", marks=pytest.mark.long)])
@pytest.mark.parametrize("brokers", BROKERS)
def test_nothing_is_lost_or_doubled_by_kills_of_mirror_source_and_target(tmp_path: Path, mode: str, brokers: int) -> None:
    outcome = run_strikes(tmp_path, mode, IN_TURN, KILLS, brokers=brokers, seed=random.randrange(1 << 32))
    print(outcome)
    assert outcome.is_exact, outcome
