"""Child processes of the demonstration: they end when it ends, whatever ends it.

A child reads a pipe that stays open until the demonstration ends. When this process ends, also by ``kill -9``, the pipe closes and the
child kills itself at once. A broker that lived on would still take what a dead producer had left in its socket, unknown to
the next run.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from moldau.model.config.static import ENVIRONMENT_PREFIX

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_IN_USE = ("in use by another", "runs here already")
"""What a broker and a cluster print whose directory another one still has."""
_IN_USE_POLL_S = 0.2

_WATCHED = """
import os, signal, sys, threading
def watch():
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
"""
_START = "threading.Thread(target=watch, daemon=True).start()\n"
_COMMAND = f'{_WATCHED}{_START}from moldau.cli.main import main\nsys.argv[0] = "moldau"\nmain()\n'
_STREAM_JOB = f"{_WATCHED}{_START}from moldau.demo.airport_hours import main\nmain(sys.argv[1:])\n"
_HOST = f"{_WATCHED}orders = sys.stdin.buffer.readline()\n{_START}from moldau.demo.host import run\nrun(orders)\n"


class ChildError(RuntimeError):
    """A child did not come up, or ended before its time; the message ends with its output."""


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child: none of Moldau's own, which are for other brokers and registries."""
    return {name: value for name, value in environment.items() if not name.startswith(ENVIRONMENT_PREFIX)}


class Child:
    """A process with this interpreter; its standard error goes to `log`."""

    def __init__(self, code: str, words: Sequence[str], log: Path) -> None:
        self.log = log
        self._start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env=own_environment(os.environ),
            )

    def output(self) -> str:
        """Its standard error."""
        return self.log.read_bytes()[self._start :].decode(errors="replace").strip()[-600:]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask it to end, and wait for that; its exit code. One that does not end in time is killed."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        return self.kill()

    def kill(self) -> int:
        """End it now."""
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return code


def command(words: Sequence[str], log: Path) -> Child:
    """``moldau WORDS`` as a child."""
    return Child(_COMMAND, words, log)


def stream_job(words: Sequence[str], log: Path) -> Child:
    """The stream job of the demonstration."""
    return Child(_STREAM_JOB, words, log)


def host(orders: bytes, log: Path) -> Child:
    """A host that publishes, with its orders: one line of JSON."""
    child = Child(_HOST, (), log)
    assert child.process.stdin is not None
    child.process.stdin.write(orders + b"\n")
    child.process.stdin.flush()
    return child


def started(words: Sequence[str], log: Path, marker: str) -> tuple[Child, list[str]]:
    """``moldau WORDS``, a server, which has printed a line with `marker`; the addresses that its lines name. ChildError.

    A server of a killed run, which still holds the directory for a moment, is waited for.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        child = command(words, log)
        addresses = _addresses(child, marker, deadline)
        if addresses is not None:
            return child, addresses
        child.kill()
        output = child.output()
        if not any(each in output for each in _IN_USE) or time.monotonic() > deadline:
            raise ChildError(f"moldau {words[0]} did not start; {log} ends with: {output}")
        time.sleep(_IN_USE_POLL_S)


def _addresses(child: Child, marker: str, deadline: float) -> list[str] | None:
    """None if it ends before, or takes too long."""
    assert child.process.stdout is not None
    output = b""
    while marker.encode() not in output or not output.endswith(b"\n"):
        ready, _, _ = select.select([child.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(child.process.stdout.fileno(), 4096) if ready else b""
        if not part:
            return None
        output += part
    return [line.rpartition(b" ")[2].decode() for line in output.splitlines() if b"listening on " in line]
