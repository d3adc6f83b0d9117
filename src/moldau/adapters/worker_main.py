"""The process of a worker, ``python -m moldau.adapters.worker_main NICENESS SECONDS BYTES``; see :mod:`moldau.adapters.worker_process`.

Frames on standard input and output: int32 length, one byte of kind, and so many bytes less one.

    to here:    ``t``  module:function, a zero byte, the task
    from here:  ``m``  a message of the work; ``d``  the work is done; ``e``  it has raised: what;
                ``l``  it would need more memory than BYTES

It adds NICENESS to its parent's, and ends at once when its input ends: its parent has ended, and files that it continued to write would
collide with those of the next. With SECONDS the kernel ends it when one task takes longer, in any call, and also when no parent is left
to wait for it. With BYTES its address space ends there, and it ends after a task that has taken half of that: the next one gets all of it.
"""

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from struct import Struct
from typing import BinaryIO

from moldau.adapters.posix_files import PosixFiles
from moldau.ports.background import Work, WorkerTools

TASK = b"t"
MESSAGE = b"m"
DONE = b"d"
ERROR = b"e"
LIMIT = b"l"

TASK_TOO_LARGE = 71
"""Exit code of a process whose memory does not hold its task."""

_LENGTH = Struct(">i")
LOWEST_PRIORITY = 39
"""As NICENESS: the system stops at 19, the lowest priority, whatever the parent's is (-20 to 19)."""
_KIBIBYTE = 1024


def write_frame(stream: BinaryIO, kind: bytes, payload: bytes = b"") -> None:
    """Send a frame. OSError when the other end is closed."""
    stream.write(_LENGTH.pack(len(payload) + 1) + kind + payload)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    """Kind and payload of the next frame; None when the stream has ended."""
    head = stream.read(_LENGTH.size + 1)
    if len(head) <= _LENGTH.size:
        return None
    length = _LENGTH.unpack_from(head)[0] - 1
    payload = stream.read(length)
    return None if len(payload) < length else (head[_LENGTH.size :], payload)


def find_work(name: str) -> Work:
    """The function that ``module:function`` names. ImportError, AttributeError."""
    module, _, function = name.partition(":")
    work: Work = getattr(import_module(module), function)
    return work


def describe_failure(error: BaseException) -> str:
    """The error of a piece of work in one line, with the place."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"{type(error).__name__}: {error}{where}"


def _take_tasks(stream: BinaryIO, tasks: "SimpleQueue[bytes]", end: Callable[[int], object]) -> None:
    try:
        while (frame := read_frame(stream)) is not None:
            tasks.put(frame[1])
    except MemoryError:  # the task itself takes more than the process may
        end(TASK_TOO_LARGE)
    end(0)


def _answer(stream: BinaryIO, kind: bytes, payload: bytes = b"") -> None:
    """Send a frame; the process ends if the pipe has no reader."""
    try:
        write_frame(stream, kind, payload)
    except OSError:
        os._exit(0)


def _peak_bytes() -> int:
    """The most memory that this program has taken; 0 where the system does not say.

    Not ``ru_maxrss``: what the process that started this one had taken at that time counts there too.
    """
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * _KIBIBYTE
    return 0


def main(niceness: int = LOWEST_PRIORITY, seconds: float = 0.0, memory_bytes: int = 0) -> None:
    """Do what comes until the input ends; 0 is no limit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is the broker's to handle
    os.nice(niceness)
    if memory_bytes:
        with contextlib.suppress(OSError, ValueError):  # a system without this limit
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the frames
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_take_tasks, args=(sys.stdin.buffer, tasks, os._exit), daemon=True).start()
    tools = WorkerTools(PosixFiles(), time.monotonic, time.sleep)
    while True:
        name, _, task = tasks.get().partition(b"\0")
        if seconds:
            signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM ends the process: nothing handles it
        try:
            for message in find_work(name.decode())(task, tools):
                _answer(answers, MESSAGE, message)
        except MemoryError:
            _answer(answers, LIMIT)
            os._exit(0)
        except Exception as error:
            _answer(answers, ERROR, describe_failure(error).encode())
        else:
            _answer(answers, DONE)
        if seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if memory_bytes and _peak_bytes() > memory_bytes // 2:
            os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
