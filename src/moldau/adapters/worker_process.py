"""Worker processes: a Python of its own for work that would take the broker's processor time.

Each worker has a thread here that starts its process, hands it one job after another and reads what it says; everything else runs on the
loop's thread. A process that was idle for a while is ended, and its memory given back. One that dies takes its job with it.
"""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import BinaryIO

from moldau.adapters.worker_main import DONE, ERROR, LOWEST_PRIORITY, MESSAGE, TASK, read_frame, write_frame
from moldau.ports.background import WorkerError

_LOG = logging.getLogger(__name__)

IDLE_S = 5.0
JOIN_LIMIT_S = 10.0
"""A killed process ends at once, unless it is in a system call of a disk that does not answer; that is not waited for."""
CANCELLED = "cancelled"


def start_process(niceness: int = LOWEST_PRIORITY, seconds: float = 0.0, memory_bytes: int = 0) -> "subprocess.Popen[bytes]":
    """Start the process of a worker, with these limits for a task (0 is none). WorkerError."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": "random"}
    command = [sys.executable, "-P", "-m", "moldau.adapters.worker_main", str(niceness), str(seconds), str(memory_bytes)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, process_group=0)
    except OSError as error:
        raise WorkerError(f"{sys.executable or 'no Python'}: could not be started: {error}") from error


class ProcessJob:
    """A job. `on_message` and `done` are called on the loop's thread."""

    def __init__(self, work: str, task: bytes, on_message: Callable[[bytes], object], done: Callable[[WorkerError | None], object]) -> None:
        self.work = work
        self.task = task
        self.on_message = on_message
        self.done = done
        self.cancelled = False
        self.worker: _Worker | None = None

    def cancel(self) -> None:
        """End the process that does it."""
        if not self.cancelled and self.worker is not None:
            self.cancelled = True
            self.worker.kill()


class LoopWorkers:
    """The :class:`moldau.ports.background.Workers` of a loop. A process runs only while there is work, and `idle_s` longer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, idle_s: float = IDLE_S) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._busy: dict[ProcessJob, _Worker] = {}
        self._idle: dict[_Worker, asyncio.TimerHandle] = {}
        self._ending: set[_Worker] = set()

    def run(
        self, work: str, task: bytes, on_message: Callable[[bytes], object], done: Callable[[WorkerError | None], object]
    ) -> ProcessJob:
        """Begin a job, in a worker that waits for one or in a new one."""
        job = ProcessJob(work, task, on_message, done)
        if self._idle:
            worker, timer = self._idle.popitem()
            timer.cancel()
        else:
            worker = _Worker(self._post)
        job.worker = worker
        self._busy[job] = worker
        worker.begin(job, lambda error: self._ended(job, error))
        return job

    @property
    def running(self) -> int:
        """Jobs whose `done` has not been called yet."""
        return len(self._busy)

    def processes(self) -> list[int]:
        """Ids of the processes that are there, for a person or a test."""
        workers = [*self._busy.values(), *self._idle, *self._ending]
        return [pid for worker in workers if (pid := worker.pid) is not None]

    def close(self) -> None:
        """End all processes, and wait for that. What they would have said is dropped."""
        workers = [*self._busy.values(), *self._idle, *self._ending]
        for timer in self._idle.values():
            timer.cancel()
        for job in self._busy:
            job.cancelled = True
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
        self._busy.clear()
        self._idle.clear()
        self._ending.clear()

    def _post(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed
            _LOG.debug("worker's answer dropped: loop closed")

    def _ended(self, job: ProcessJob, error: WorkerError | None) -> None:
        worker = self._busy.pop(job, None)
        if worker is None:
            return
        job.worker = None
        if worker.killed:
            self._end(worker)
        else:
            self._idle[worker] = self._loop.call_later(self._idle_s, self._retire, worker)
        job.done(WorkerError(CANCELLED) if job.cancelled else error)

    def _retire(self, worker: "_Worker") -> None:
        del self._idle[worker]
        self._end(worker)

    def _end(self, worker: "_Worker") -> None:
        self._ending.add(worker)
        worker.end(lambda: self._ending.discard(worker))


class _Worker:
    """One thread and, while it has work, one process."""

    def __init__(self, post: Callable[[Callable[[], object]], None]) -> None:
        self._post = post
        self._calls: SimpleQueue[Callable[[], bool]] = SimpleQueue()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.killed = False
        """No more work for this one. Guarded by the lock, as is the process."""
        self._thread = threading.Thread(target=self._serve, name="moldau-worker", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Id of the process, None without one."""
        process = self._process
        return None if process is None else process.pid

    # On the loop's thread

    def begin(self, job: ProcessJob, ended: Callable[[WorkerError | None], object]) -> None:
        """Do a job, then have ``ended(error)`` called on the loop's thread."""

        def call() -> bool:
            try:
                self._do(job)
                error = None
            except WorkerError as failure:
                error = failure
            self._post(lambda: ended(error))
            return True

        self._calls.put(call)

    def end(self, ended: Callable[[], object]) -> None:
        """End process and thread once the job is done, then have `ended` called on the loop's thread."""

        def call() -> bool:
            self._stop_process()
            self._post(ended)
            return False

        self._calls.put(call)

    def kill(self) -> None:
        """End the process, whatever it does."""
        with self._lock:
            self.killed = True
            if self._process is not None:
                self._process.kill()

    def join(self) -> None:
        """Wait for the end of the thread, after `kill`."""
        self.end(lambda: None)
        self._thread.join(JOIN_LIMIT_S)

    # On its own thread

    def _serve(self) -> None:
        while self._calls.get()():
            pass

    def _do(self, job: ProcessJob) -> None:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, TASK, job.work.encode() + b"\0" + job.task)  # type: ignore[arg-type]
            self._listen(process.stdout, job)  # type: ignore[arg-type]
        except OSError as error:
            raise self._died(process) from error

    def _listen(self, stream: BinaryIO, job: ProcessJob) -> None:
        while (frame := read_frame(stream)) is not None:
            kind, payload = frame
            if kind == MESSAGE:
                self._post(lambda payload=payload: None if job.cancelled else job.on_message(payload))  # type: ignore[misc]
            elif kind == DONE:
                return
            elif kind == ERROR:
                raise WorkerError(payload.decode(errors="replace"))
        assert self._process is not None
        raise self._died(self._process)

    def _started(self) -> "subprocess.Popen[bytes]":
        """The process, started if there is none that lives."""
        with self._lock:
            if self.killed:
                raise WorkerError(CANCELLED)
            if self._process is not None and self._process.poll() is None:
                return self._process
        self._stop_process()
        process = start_process()
        with self._lock:
            self._process = process
            if self.killed:
                process.kill()
        _LOG.debug("worker started: pid=%d", process.pid)
        return process

    def _died(self, process: "subprocess.Popen[bytes]") -> WorkerError:
        """Wait for a process whose pipes have ended; what became of it."""
        process.kill()
        self._stop_process()
        code = process.wait()
        return WorkerError(f"worker process {process.pid} has died: {f'signal {-code}' if code < 0 else f'exit code {code}'}")

    def _stop_process(self) -> None:
        process = self._process
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # the reader of the unwritten rest is closed
                    continue
        process.wait()
        with self._lock:
            self._process = None
