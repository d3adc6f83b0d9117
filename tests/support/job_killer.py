"""Kills what a stream job consists of, while a batch of it is under way: its driver, a Python worker of its tasks, the broker.

A kill is noted with the batch that it met. After each the job has to come further: what was killed is started again, and so is a job that
has ended by itself because of it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.lake import python_daemon
from moldau.streams.points import DIE_AT
from support import killed_jobs
from support.killed_jobs import JOBS, Result, Topics, last_events, table_of, without_last
from support.server import ServerProcess
from support.stream_jobs import Event, in_table, in_topic, send

_LIMIT_S = 900.0
_LOOK_S = 0.01
_MOMENT_S = 1.0
"""A kill comes at a random moment of so long after a batch has begun."""
_WORKER = f"-m {python_daemon.MODULE}"
"""Of the daemon's command, and of what it forks. Java has the module among its settings, as another word."""
DRIVER, WORKER, BROKER = "driver", "task worker", "broker"


@dataclass(slots=True)
class Kills:
    """What was killed of one job."""

    by_kind: Counter[str] = field(default_factory=Counter)
    in_batch: int = 0
    """While a batch was under way."""
    ended: Counter[str] = field(default_factory=Counter)
    """Drivers that have ended because something else was killed, by what it was."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job has in the end, beside what a plain query over all its input gives."""

    rows: int
    missing: int
    doubled: int
    """Or not there at all in what is right."""


class JobUnderFire:
    """One job: its topics, its process, its kills. Removes what it has started with `close`."""

    def __init__(self, name: str, server: ServerProcess, directory: Path, draw: random.Random) -> None:
        self.name, self.kills = name, Kills()
        self._job, self._server, self._directory, self._draw = JOBS[name], server, directory, draw
        self.topics = Topics(f"{name}-in", f"{name}-other", f"{name}-out")
        self._hours = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = directory / "errors.log"
        directory.mkdir(parents=True)
        with Cluster(server.bootstrap) as cluster:
            for topic in (self.topics.source, self.topics.other, self.topics.sink):
                Admin(cluster).create_topic(topic, 2)

    # What is killed

    def kill_driver_at(self, point: str) -> None:
        """SIGKILL at a named point of its first batch."""
        self._feed()
        process = self._start({DIE_AT: point})
        self._count(f"{DRIVER}, {point}", in_batch=True)
        assert process.wait(_LIMIT_S) == -signal.SIGKILL, self.errors()
        self._process = None

    def kill_driver(self) -> None:
        """SIGKILL at a random moment of a batch."""
        self._feed()
        self._wait_for_moment()
        assert self._process is not None
        self._count(f"{DRIVER}, random moment", in_batch=self._in_batch())
        self._process.kill()
        self._process.wait()
        self._process = None

    def kill_worker(self) -> None:
        """SIGKILL of one of the Python processes that run tasks."""
        self._feed()
        self._wait_for_moment()
        while not (workers := self._workers()):
            assert self._running(), f"it has ended before anything was killed: {self.errors()}"
            time.sleep(_LOOK_S)
        self._count(WORKER, in_batch=self._in_batch())
        before = self._newest()
        os.kill(self._draw.choice(workers), signal.SIGKILL)
        self._wait_until_further(WORKER, before)

    def kill_broker(self) -> None:
        """SIGKILL of the broker, which starts again on its port."""
        self._feed()
        self._wait_for_moment()
        self._count(BROKER, in_batch=self._in_batch())
        before = self._newest()
        self._server.kill()
        self._server.start()
        self._wait_until_further(BROKER, before)

    # The end

    def finish(self) -> tuple[Outcome, Outcome]:
        """Let the job come to its end; what is in its topic and in its table."""
        if self._running():
            assert self._process is not None
            self._process.terminate()
            self._process.wait(_LIMIT_S)
        self._send(*last_events(self.name))
        process = self._start({}, "--once")
        assert process.wait(_LIMIT_S) == 0, self.errors()
        bootstrap = self._server.bootstrap
        values, others = (without_last(in_topic(bootstrap, each)) for each in (self.topics.source, self.topics.other))
        right = self._job.expected(values, others)
        outputs = in_topic(bootstrap, self.topics.sink), in_table(table_of(self._directory))
        found = [Counter(self._job.row(row) for row in rows if row.get("number", 0) >= 0) for rows in outputs]
        return _outcome(right, found[0]), _outcome(right, found[1])

    def errors(self) -> str:
        """What its processes have printed."""
        return self._errors.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """End its process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # Steps

    def _feed(self) -> None:
        self._send(*self._job.hour(self._hours))
        self._hours += 1

    def _send(self, *values: list[Event]) -> None:
        for topic, each in zip((self.topics.source, self.topics.other), values, strict=True):
            send(self._server.bootstrap, topic, each)

    def _start(self, variables: dict[str, str], *arguments: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
        names = self.topics.source, self.topics.other, self.topics.sink
        command = [sys.executable, killed_jobs.__file__, self.name, self._server.bootstrap, str(self._directory), *names, *arguments]
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, env=environment, stderr=errors, stdout=errors)
        return self._process

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _newest(self, what: str = "offsets") -> int:
        """The newest batch that is planned, or done (`commits`)."""
        folder = self._directory / "job" / self.name / what
        return max((int(each.name) for each in folder.glob("[0-9]*") if each.name.isdecimal()), default=-1)

    def _in_batch(self) -> bool:
        return self._newest() > self._newest("commits")

    def _wait_for_moment(self) -> None:
        """Until a batch of this run is under way, and a random moment longer."""
        if not self._running():
            newest = self._newest()
            self._start({})
            self._wait(lambda: self._newest() > newest or self._workers() != [], "no batch has begun")
        self._wait(self._in_batch, "no batch has begun")
        time.sleep(self._draw.uniform(0, _MOMENT_S))

    def _wait_until_further(self, what: str, before: int) -> None:
        """Until the batch is done that was under way; a job that ends meanwhile is started again."""
        deadline = time.monotonic() + _LIMIT_S
        while self._newest("commits") < before:
            assert time.monotonic() < deadline, f"batch {before} is not done after {_LIMIT_S:.0f} s: {self.errors()}"
            if not self._running():
                self.kills.ended[what] += 1
                self._start({})
            time.sleep(_LOOK_S)

    def _wait(self, done: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not done():
            assert time.monotonic() < deadline, f"{problem} after {_LIMIT_S:.0f} s: {self.errors()}"
            assert self._running(), f"{problem}, and the process has ended: {self.errors()}"
            time.sleep(_LOOK_S)

    def _count(self, kind: str, *, in_batch: bool) -> None:
        self.kills.by_kind[kind] += 1
        self.kills.in_batch += in_batch

    def _workers(self) -> list[int]:
        """Those that Spark's daemon has forked for tasks."""
        assert self._process is not None
        parents = _parents()
        below, found = {self._process.pid}, []
        while more := {pid for pid, parent in parents.items() if parent in below and pid not in below}:
            below |= more
        for pid in sorted(below):
            parent = parents.get(pid)
            if parent is not None and parent in below and _WORKER in _words(pid) and _WORKER in _words(parent):
                found.append(pid)
        return found


def _outcome(right: Result, found: Result) -> Outcome:
    return Outcome(found.total(), (right - found).total(), (found - right).total())


def _parents() -> dict[int, int]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                found[int(entry)] = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    return found


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
