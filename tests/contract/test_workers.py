"""The workers port means the same over real processes and in the fake that works when the test says so.

A job's messages come in their order, then its end, once, all on the broker's thread; work that raises, that is unknown or that is cancelled
ends with an error that says so.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from moldau.adapters.event_loop import new_event_loop
from moldau.adapters.posix_files import PosixFiles
from moldau.adapters.worker_process import LoopWorkers
from moldau.ports.background import Job, WorkerError, Workers
from moldau.testing.background import FakeWorkers

LIMIT_S = 20.0


class Heard:
    """What a job has said."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.ends: list[WorkerError | None] = []
        self.threads: set[int] = set()

    def told(self, message: bytes) -> None:
        self.threads.add(threading.get_ident())
        self.messages.append(message)

    def done(self, error: WorkerError | None) -> None:
        self.threads.add(threading.get_ident())
        self.ends.append(error)


class World(Protocol):
    """Workers, and a way to let time pass for them."""

    @property
    def workers(self) -> Workers: ...

    def until(self, condition: Callable[[], bool]) -> None: ...


class RealWorld:
    def __init__(self) -> None:
        self.loop = new_event_loop("asyncio")
        self.workers = LoopWorkers(self.loop, idle_s=0.05)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S

        async def wait() -> None:
            while not condition():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.002)

        self.loop.run_until_complete(wait())

    def close(self) -> None:
        self.workers.close()
        self.loop.close()


class FakeWorld:
    def __init__(self) -> None:
        self.workers = FakeWorkers(PosixFiles())

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.workers.step()


@pytest.fixture(scope="module")
def processes() -> Iterator[RealWorld]:
    """Shared by the tests: each leaves an idle worker to the next."""
    world = RealWorld()
    yield world
    world.close()


@pytest.fixture(params=["processes", "fake"])
def world(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("processes") if request.param == "processes" else FakeWorld()


def begin(world: World, work: str, task: bytes = b"") -> tuple[Heard, Job]:
    heard = Heard()
    job = world.workers.run(f"support.works:{work}", task, heard.told, heard.done)
    assert (heard.messages, heard.ends) == ([], []), "nothing before `run` has returned"
    return heard, job


def finish(world: World, work: str, task: bytes = b"") -> Heard:
    heard, _ = begin(world, work, task)
    world.until(lambda: bool(heard.ends))
    return heard


def test_messages_in_their_order_and_then_the_end(world: World) -> None:
    heard = finish(world, "echo", b"one two three")
    assert (heard.messages, heard.ends) == ([b"one", b"two", b"three"], [None])
    assert heard.threads == {threading.get_ident()}


def test_a_job_may_have_nothing_to_say(world: World) -> None:
    assert finish(world, "echo").ends == [None]


def test_work_reads_and_writes_through_the_file_system_port(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert finish(world, "read", str(tmp_path / "file").encode()).messages == [b"content"]


def test_large_tasks_and_messages(world: World) -> None:
    word = b"x" * 3_000_000
    assert finish(world, "echo", word).messages == [word]


def test_work_that_raises(world: World) -> None:
    heard = finish(world, "raises", b"the reason")
    assert heard.messages == [b"first"]
    (error,) = heard.ends
    assert error is not None
    assert str(error).startswith("ValueError: the reason at works.py:")
    assert finish(world, "echo", b"next").ends == [None], "the worker takes the next job"


@pytest.mark.parametrize("work", ["missing", "no.such.module:work"])
def test_work_that_is_not_there(world: World, work: str) -> None:
    (error,) = finish(world, work).ends
    assert error is not None
    assert "no" in str(error)


def test_cancelled_while_it_runs(world: World) -> None:
    heard, job = begin(world, "endless")
    world.until(lambda: len(heard.messages) >= 3)
    count = len(heard.messages)
    job.cancel()
    job.cancel()
    world.until(lambda: bool(heard.ends))
    assert len(heard.messages) == count, "nothing is told any more"
    assert [str(error) for error in heard.ends] == ["cancelled"]
    assert finish(world, "echo", b"next").ends == [None]


def test_cancelled_at_once(world: World) -> None:
    heard, job = begin(world, "endless")
    job.cancel()
    world.until(lambda: bool(heard.ends))
    assert (heard.messages, [str(error) for error in heard.ends]) == ([], ["cancelled"])


def test_cancelled_when_it_has_ended(world: World) -> None:
    heard, job = begin(world, "echo", b"done")
    world.until(lambda: bool(heard.ends))
    job.cancel()
    assert finish(world, "echo", b"next").messages == [b"next"]
    assert heard.ends == [None]


def test_two_jobs_at_the_same_time(world: World) -> None:
    first, job = begin(world, "endless")
    second, _ = begin(world, "echo", b"quick")
    if isinstance(world, FakeWorld):
        job.cancel()  # the fake does one after the other
    world.until(lambda: bool(second.ends))
    job.cancel()
    world.until(lambda: bool(first.ends))
    assert second.messages == [b"quick"]


# Only a process can do this


def test_a_worker_has_the_lowest_priority_and_ends_when_it_was_idle(processes: RealWorld) -> None:
    (answer,) = finish(processes, "pid").messages
    pid, niceness = map(int, answer.split())
    assert (niceness, pid != os.getpid()) == (19, True)
    assert processes.workers.processes() == [pid]
    processes.until(lambda: processes.workers.processes() == [])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_of_a_broker_with_a_higher_priority_has_the_lowest_too() -> None:
    """Where it may not be raised, `nice` warns and runs the program as it is."""
    program = (
        "from moldau.adapters.worker_process import start_process\n"
        "from moldau.adapters.worker_main import TASK, read_frame, write_frame\n"
        "with start_process() as worker:\n"
        "    write_frame(worker.stdin, TASK, b'support.works:pid\\0')\n"
        "    _, answer = read_frame(worker.stdout)\n"
        "    worker.kill()\n"
        "print(answer.split()[1].decode())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["nice", "-n", "-5", sys.executable, "-c", program]
    assert subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True, timeout=LIMIT_S).stdout == "19\n"


def test_a_worker_that_dies(processes: RealWorld) -> None:
    heard = finish(processes, "dies")
    (error,) = heard.ends
    assert heard.messages == [b"last words"]
    assert error is not None
    assert str(error).endswith("has died: signal 9")
    assert finish(processes, "echo", b"next").ends == [None], "another takes its place"


def test_a_worker_that_died_while_idle_is_replaced(processes: RealWorld) -> None:
    pid = int(finish(processes, "pid").messages[0].split()[0])
    os.kill(pid, 9)
    processes.until(lambda: _has_ended(pid))
    assert finish(processes, "echo", b"next").messages == [b"next"]


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it was idle for so long that it was to end, and has been waited for already
        return True


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_what_a_library_prints_disturbs_nothing(processes: RealWorld, capfd: pytest.CaptureFixture[str]) -> None:
    assert finish(processes, "prints").messages == [b"heard"]


def test_closing_ends_what_runs() -> None:
    world = RealWorld()
    heard, _ = begin(world, "endless")
    world.until(lambda: bool(heard.messages))
    (pid,) = world.workers.processes()
    world.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert heard.ends == []


def test_without_an_interpreter_the_job_fails(processes: RealWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    processes.until(lambda: processes.workers.processes() == [])
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    (error,) = finish(processes, "echo").ends
    assert "/nowhere/python: could not be started" in str(error)


def test_a_worker_ends_when_its_broker_is_killed(tmp_path: Path) -> None:
    """Nobody may go on writing files that a new broker takes for its own."""
    program = (
        "import asyncio, sys\n"
        "from moldau.adapters.worker_process import LoopWorkers\n"
        "loop = asyncio.new_event_loop()\n"
        "workers = LoopWorkers(loop)\n"
        "workers.run('support.works:pid', b'', lambda pid: print(pid.split()[0].decode(), flush=True), lambda _: again())\n"
        "def again(): workers.run('support.works:endless', b'', lambda _: None, lambda _: None)\n"
        "loop.run_forever()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True) as broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        broker.kill()
    deadline = time.monotonic() + LIMIT_S
    while _state(pid) not in ("Z", ""):
        assert time.monotonic() < deadline
        time.sleep(0.002)
