"""A mirror that a test runs never outlives the test's process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.mirror_world import mirror_text
from support.paper import wait_until

pytestmark = pytest.mark.system

STARTER = """
import sys, time
from pathlib import Path
from support.mirror_world import MirrorProgram
program = MirrorProgram(Path(sys.argv[1]))
program.start()
while not program.log.stat().st_size:  # until it has logged that no cluster answers
    time.sleep(0.05)
if sys.argv[2] == "paused":
    program.pause()
print(program.pid, flush=True)
time.sleep(600)
"""


def runs(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("state", ["running", "paused"])
def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path, state: str) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(mirror_text("copy", "127.0.0.1:1", "127.0.0.1:2"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTER, str(file), state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert runs(pid)
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    wait_until(lambda: not runs(pid), "the mirror ends", limit_s=20.0, pause_s=0.05)
