"""The processes of our Spark, Java and the Python workers that it starts: none outlives the process that started them.

Whatever is started for Spark has a token in its environment, which its own children inherit, so that all of them are found, wherever they
hang in the tree. A *watchdog* holds the end of a pipe to this process: when the pipe closes, because this process was killed for
instance, it kills all that have the token, until there are none, and removes the temporary directory. It has a session of its own, so that
no signal for this process's group reaches it. Directories of owners that are dead, watchdog and all, are removed at the next start.

Processes are found in ``/proc``. Where there is none, Java ends by itself some seconds after its parent, when its input closes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from moldau.adapters.temporary_directory import keep, make_temporary

TOKEN: Final = "MOLDAU_SPARK_OWNER"
_PAUSE_S: Final = 0.02
_END_S: Final = 10.0

_WATCHDOG: Final = """
import os, signal, shutil, sys, time
token, directory = sys.argv[1].encode(), sys.argv[2]
def theirs():
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/" + name + "/environ", "rb") as file:
                    if token in file.read().split(b"\\0"):
                        yield int(name)
            except OSError:
                pass
def end():
    quiet, until = 0, time.monotonic() + 10.0
    while quiet < 3 and time.monotonic() < until:
        found = list(theirs())
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        quiet = 0 if found else quiet + 1
        time.sleep(0.02)
if __name__ == "__main__":
    if not os.read(0, 1):
        end()
        if directory:
            shutil.rmtree(directory, ignore_errors=True)
"""
"""A program of its own, since it has to start in a few milliseconds. One byte on its input means that nothing is left to be done."""


class SparkProcesses:
    """All processes of one Spark, and the directory that they write to; a temporary one of this `prefix` unless it is given.

    Those of a program that has a Spark of its own have another `variable`: the program replaces this one for what it starts.
    """

    def __init__(self, directory: str | None = None, *, prefix: str = "moldau-spark-", variable: str = TOKEN) -> None:
        self._token = f"{variable}={os.getpid()}-{uuid.uuid4().hex}"
        self.temporary = directory is None
        """Whether the directory goes with the processes."""
        if directory is None:
            directory = make_temporary(prefix)
        self.directory = directory
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHDOG, self._token, directory if self.temporary else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={
                name: value for name, value in os.environ.items() if name != TOKEN
            },  # or the watchdog of a Spark that runs this would kill it
        )
        self._ending = threading.Event()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """What is started within belongs to them; also files that pyspark makes meanwhile lie in the directory."""
        name, _, value = self._token.partition("=")
        before, temporary = os.environ.get(name), tempfile.tempdir
        os.environ[name], tempfile.tempdir = value, os.path.join(self.directory, "tmp")
        try:
            yield
        finally:
            tempfile.tempdir = temporary
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before

    def keep_directory(self) -> None:
        """The directory stays when everything ends: a user has to look into it."""
        if self.temporary:
            self.temporary = False
            keep(self.directory)

    def end_soon(self) -> None:
        """Kill all of them from now on, also those that are about to start; for signal handlers. Does not wait."""
        if not self._ending.is_set():
            self._ending.set()
            threading.Thread(target=self._sweep, args=(_END_S * 6,), name="end of spark", daemon=True).start()

    @property
    def ending(self) -> bool:
        """Whether they are being ended."""
        return self._ending.is_set()

    def end(self) -> None:
        """Kill those that are left, and remove the directory if it is temporary."""
        self._ending.set()
        self._sweep(_END_S, quiet_rounds=2)
        if self.temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        assert self._watchdog.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, or a signal handler ends them at the same time
            self._watchdog.stdin.write(b".")
            self._watchdog.stdin.close()
        self._watchdog.wait()

    def _sweep(self, seconds: float, quiet_rounds: int | None = None) -> None:
        quiet, until = 0, time.monotonic() + seconds
        while time.monotonic() < until and (quiet_rounds is None or quiet < quiet_rounds):
            found = self.alive()
            for pid in found:
                with suppress(OSError):
                    os.kill(pid, 9)
            quiet = 0 if found else quiet + 1
            time.sleep(_PAUSE_S)

    def alive(self) -> list[int]:
        """The ids of those that run now."""
        return processes_with(self._token)


def processes_with(variable: str) -> list[int]:
    """The ids of processes that have ``NAME=VALUE`` in their environment; this one is none of them."""
    found, wanted = [], variable.encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found
