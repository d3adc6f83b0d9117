"""A call into a worker process costs at most what it may, whatever the work does, and the next call is answered."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from moldau.adapters.worker_calls import WorkerCalls
from moldau.adapters.worker_main import TASK, write_frame
from moldau.ports.background import WorkerError, WorkerLimitError

pytestmark = pytest.mark.system

WORKS = "support.called_works:"
PATIENCE_S = 30.0


def gone(pid: int) -> bool:
    """Whether a process has ended, within a while."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def calls() -> Iterator[WorkerCalls]:
    made = WorkerCalls(processes_max=1, seconds=2.0, memory_bytes=512 << 20, niceness=0)
    yield made
    made.close()
    assert made.processes() == []


def test_a_process_is_kept_from_call_to_call(calls: WorkerCalls) -> None:
    assert calls.call(WORKS + "echo", b"a\0b", wait_s=PATIENCE_S) == b"a\0b"
    pids = calls.processes()
    assert calls.call(WORKS + "echo", b"x" * (4 << 20), wait_s=PATIENCE_S) == b"x" * (4 << 20)
    assert calls.processes() == pids


def test_the_memory_of_the_parent_does_not_count(calls: WorkerCalls) -> None:
    large = bytearray(os.urandom(1)) * (300 << 20)
    assert calls.call(WORKS + "echo", b"a", wait_s=PATIENCE_S) == b"a"
    pids = calls.processes()
    assert calls.call(WORKS + "echo", b"b", wait_s=PATIENCE_S) == b"b"
    assert calls.processes() == pids, "more than half of 512 MiB is what this process has, and not the worker"
    del large


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        ("hang_in_c", "more than 2 s"), ("hang", "more than 2 s"), ("take_memory", "512 MiB of memory"), ("die", "signal 9"),
        ("exit_with_zero", "exit code 0"),
    ],
)  # fmt: skip
def test_what_takes_too_much_fails_and_the_next_call_is_answered(calls: WorkerCalls, work: str, reason: str) -> None:
    """Also what hangs in C code, where no handler of a signal and no other thread of that process ever runs."""
    with pytest.raises(WorkerLimitError, match=reason):
        calls.call(WORKS + work, b"", wait_s=PATIENCE_S)
    assert calls.call(WORKS + "echo", b"y", wait_s=PATIENCE_S) == b"y"


def test_work_that_raises_says_what(calls: WorkerCalls) -> None:
    with pytest.raises(WorkerError, match="ValueError: no"):
        calls.call(WORKS + "raise_error", b"", wait_s=PATIENCE_S)
    assert calls.call(WORKS + "echo", b"y", wait_s=PATIENCE_S) == b"y"


def test_a_process_that_was_killed_between_calls_is_replaced(calls: WorkerCalls) -> None:
    calls.call(WORKS + "echo", b"", wait_s=PATIENCE_S)
    os.kill(calls.processes()[0], signal.SIGKILL)
    assert calls.call(WORKS + "echo", b"y", wait_s=PATIENCE_S) == b"y"


def test_a_process_that_took_much_memory_ends_behind_its_answer(calls: WorkerCalls) -> None:
    assert calls.call(WORKS + "take_some_memory", b"", wait_s=PATIENCE_S) == b"taken"
    assert calls.call(WORKS + "echo", b"y", wait_s=PATIENCE_S) == b"y"


def test_a_call_waits_for_a_free_process_no_longer_than_it_may(calls: WorkerCalls) -> None:
    def hang() -> None:
        with pytest.raises(WorkerError):
            calls.call(WORKS + "hang", b"", wait_s=PATIENCE_S)

    busy = threading.Thread(target=hang)
    busy.start()
    while not calls.processes():
        time.sleep(0.01)
    with pytest.raises(WorkerError, match="busy"):
        calls.call(WORKS + "echo", b"", wait_s=0.05)
    calls.close()
    busy.join(PATIENCE_S)
    assert not busy.is_alive()


def test_no_process_outlives_its_parent_that_was_killed_in_the_middle_of_work() -> None:
    program = (
        "import sys, threading, time; from moldau.adapters.worker_calls import WorkerCalls;"
        "calls = WorkerCalls(processes_max=1, seconds=2.0, memory_bytes=512 << 20, niceness=0);"
        f"threading.Thread(target=calls.call, args=('{WORKS}hang_in_c', b''), kwargs=dict(wait_s=5), daemon=True).start();"
        "\nwhile not calls.processes(): time.sleep(0.01)\n"
        "print(calls.processes()[0], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_task_that_the_process_has_no_memory_for_is_refused_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    calls = WorkerCalls(processes_max=1, seconds=5.0, memory_bytes=256 << 20, niceness=0)
    with pytest.raises(WorkerLimitError):
        calls.call(WORKS + "echo", bytes(300 << 20), wait_s=PATIENCE_S)
    assert calls.call(WORKS + "echo", b"a", wait_s=PATIENCE_S) == b"a"
    calls.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_whose_answer_has_no_reader_ends_silently() -> None:
    command = [sys.executable, "-m", "moldau.adapters.worker_main", "0", "0", "0"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    write_frame(cast("BinaryIO", process.stdin), TASK, (WORKS + "echo").encode() + b"\0a")
    assert process.wait(PATIENCE_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()
