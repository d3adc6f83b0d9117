"""Work for tests of the workers: what a job may do, good and bad."""

import os
import signal
from collections.abc import Iterator

from moldau.ports.background import WorkerTools


def echo(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """Each word of the task."""
    yield from task.split()


def pid(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """Id of the process, and its niceness."""
    yield b"%d %d" % (os.getpid(), os.nice(0))


def read(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """The content of a file."""
    yield tools.files.read(task.decode())


def endless(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """A word now and then, for ever."""
    while True:
        yield b"again"
        tools.sleep(0.005)


def raises(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """A word, and then trouble."""
    yield b"first"
    raise ValueError(task.decode())


def dies(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """A word, and then the end of the process."""
    yield b"last words"
    os.kill(os.getpid(), signal.SIGKILL)


def prints(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """Something on standard output before its message."""
    print("this is for nobody")
    yield b"heard"
