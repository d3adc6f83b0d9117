"""Calls into worker processes: a task and its answer, as bytes; the thread that calls waits.

A few processes take tasks one at a time, each with a limit of time and of memory that the kernel keeps. One that reaches a limit or dies
takes its task with it and nothing else: the next call starts another process. A process is kept between calls, and ends with its parent.
"""

import logging
import queue
import select
import signal
import subprocess
import threading
from typing import BinaryIO, cast

from moldau.adapters.worker_main import DONE, ERROR, LIMIT, MESSAGE, TASK, read_frame, write_frame
from moldau.adapters.worker_process import start_process
from moldau.ports.background import WorkerError, WorkerLimitError

_LOG = logging.getLogger(__name__)

_ATTEMPTS = 2
_BEYOND_LIMIT_S = 2.0
"""So long after its limit a process that is stopped, and so cannot end itself, is killed."""


class WorkerCalls:
    """Up to `processes_max` processes. `seconds` and `memory_bytes` bound one task. Any thread may call."""

    def __init__(self, *, processes_max: int, seconds: float, memory_bytes: int, niceness: int) -> None:
        self.seconds = seconds
        self.memory_bytes = memory_bytes
        self._niceness = niceness
        self._slots = [_Slot() for _ in range(processes_max)]
        self._free: queue.LifoQueue[_Slot] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._closed = False
        for slot in reversed(self._slots):
            self._free.put(slot)

    def call(self, work: str, task: bytes, *, wait_s: float) -> bytes:
        """The messages of the work, concatenated. It waits up to `wait_s` for a process that is free.

        WorkerLimitError: the task takes too much, or ends any process. WorkerError: it raised, none was free in time, or `close`.
        """
        try:
            slot = self._free.get(timeout=wait_s)
        except queue.Empty:
            raise WorkerError(f"all {len(self._slots)} worker processes are busy with other tasks") from None
        try:
            return self._call(slot, work.encode() + b"\0" + task)
        finally:
            self._free.put(slot)

    def processes(self) -> list[int]:
        """Ids of the processes that are there."""
        return [slot.process.pid for slot in self._slots if slot.process is not None and slot.process.poll() is None]

    def close(self) -> None:
        """End all processes, whatever they do; calls that wait fail."""
        with self._lock:
            self._closed = True
            processes = [slot.process for slot in self._slots if slot.process is not None]
            for process in processes:
                process.kill()
        for slot in self._slots:
            if slot.busy.acquire(timeout=_BEYOND_LIMIT_S):
                slot.discard()
                slot.busy.release()

    def _call(self, slot: "_Slot", task: bytes) -> bytes:
        ended, deaths = "", 0
        with slot.busy:
            while deaths < _ATTEMPTS:
                process = self._process(slot)
                try:
                    write_frame(cast("BinaryIO", process.stdin), TASK, task)
                    return self._listen(process)
                except (OSError, EOFError):
                    code = slot.discard()
                    if self._closed:
                        raise WorkerError("worker processes are stopped") from None
                    if code == 0 and not deaths:  # it ended after a large task, as it was taken for this one
                        deaths = 1
                        continue
                    deaths += 1
                    if code == -signal.SIGALRM:
                        raise WorkerLimitError(f"it takes more than {self.seconds:g} s") from None
                    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
                    _LOG.warning("worker process ended: pid=%d reason=%s", process.pid, ended)
        raise WorkerLimitError(f"it ends the process that does it ({ended})")

    def _listen(self, process: "subprocess.Popen[bytes]") -> bytes:
        """OSError or EOFError when the process ends, or has to be ended."""
        stream = cast("BinaryIO", process.stdout)
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        if not poll.poll((self.seconds + _BEYOND_LIMIT_S) * 1000):
            process.kill()
        messages = []
        while (frame := read_frame(stream)) is not None:
            kind, payload = frame
            if kind == MESSAGE:
                messages.append(payload)
            elif kind == DONE:
                return b"".join(messages)
            elif kind == LIMIT:
                raise WorkerLimitError(f"it takes more than {self.memory_bytes >> 20} MiB of memory")
            elif kind == ERROR:
                raise WorkerError(payload.decode(errors="replace"))
        raise EOFError

    def _process(self, slot: "_Slot") -> "subprocess.Popen[bytes]":
        """That of the slot, started if there is none that lives."""
        if slot.process is None or slot.process.poll() is not None:
            slot.discard()
            process = start_process(self._niceness, self.seconds, self.memory_bytes)
            with self._lock:
                slot.process = process
                if self._closed:
                    process.kill()
        return slot.process


class _Slot:
    """A place for one process; `busy` is held by who talks with it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.busy = threading.Lock()

    def discard(self) -> int:
        """Wait for the end of the process, whose pipes are no longer used; its exit code, 0 without one."""
        process, self.process = self.process, None
        if process is None:
            return 0
        for stream in (process.stdin, process.stdout):
            try:
                cast("BinaryIO", stream).close()
            except OSError:  # the reader of the unwritten rest is closed
                continue
        return process.wait()
