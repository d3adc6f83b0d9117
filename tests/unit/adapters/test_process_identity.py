"""A process is known by its id and its start: what has its id later gets no signal that was meant for it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from moldau.adapters.process_identity import has_ended, identity_of, is_alive, is_stopped, pid_of, send_signal

DEAD = 999_999_999
LIMIT_S = 30.0


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_is_alive_until_it_has_ended_also_before_its_parent_has_taken_note(child: "subprocess.Popen[bytes]") -> None:
    identity = identity_of(child.pid)
    assert pid_of(identity) == child.pid
    assert (is_alive(identity), has_ended(identity), is_stopped(identity)) == (True, False, False)
    assert send_signal(identity, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(identity), "its id is not given to others yet"
    assert has_ended(identity)
    assert not send_signal(identity, signal.SIGKILL)
    child.wait()
    assert (is_alive(identity), has_ended(identity)) == (False, True)


def test_one_that_a_signal_has_stopped_lives(child: "subprocess.Popen[bytes]") -> None:
    identity = identity_of(child.pid)
    for number, stopped in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
        assert send_signal(identity, number)
        end = time.monotonic() + LIMIT_S
        while is_stopped(identity) != stopped:
            assert time.monotonic() < end
        assert not has_ended(identity)


def test_another_process_with_the_same_id_gets_no_signal(child: "subprocess.Popen[bytes]") -> None:
    pid, started, namespace = identity_of(child.pid).split()
    for other in (f"{pid} {int(started) - 1} {namespace}", f"{pid} {started} pid:[1]", f"{DEAD} 1 {namespace}"):
        assert not send_signal(other, signal.SIGKILL)
    assert child.poll() is None
