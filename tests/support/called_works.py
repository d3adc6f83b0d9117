"""Work for worker processes that are called: some of it misbehaves."""

import os
import re
import signal
import sys
from collections.abc import Iterator

from moldau.ports.background import WorkerTools


def echo(task: bytes, _tools: WorkerTools) -> Iterator[bytes]:
    """The task."""
    yield task


def hang(_task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """Sleep for ever."""
    tools.sleep(3600)
    yield b""


def hang_in_c(_task: bytes, _tools: WorkerTools) -> Iterator[bytes]:
    """Hold the interpreter's lock for ever."""
    re.match("^(a+)+$", "a" * 100 + "b")
    yield b""


def take_memory(_task: bytes, _tools: WorkerTools) -> Iterator[bytes]:
    """More than there may be."""
    yield b"x" * (1 << 40)


def take_some_memory(_task: bytes, _tools: WorkerTools) -> Iterator[bytes]:
    """More than half of what may be."""
    _ = b"x" * (300 << 20)
    yield b"taken"


def die(_task: bytes, _tools: WorkerTools) -> Iterator[bytes]:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield b""


def exit_with_zero(_task: bytes, _tools: WorkerTools) -> Iterator[bytes]:
    """End without an answer, and without saying that anything is wrong."""
    sys.stdout.flush()
    os._exit(0)
    yield b""


def raise_error(_task: bytes, _tools: WorkerTools) -> Iterator[bytes]:
    """Fail."""
    raise ValueError("no")
    yield b""
