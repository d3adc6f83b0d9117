"""A consumer that is closed in the middle of a rebalance leaves its group and ends."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.system

LIMIT_S = 60.0


def test_members_are_closed_before_they_have_heard_of_their_assignment() -> None:
    """In a process of its own: librdkafka, left to itself, may keep the interpreter's lock for ever."""
    command = [sys.executable, "-m", "support.unheard_assignments"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
