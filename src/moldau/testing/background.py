"""Background work and workers without threads and processes: the work happens in the test when it says so, step by step or at once."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from moldau.adapters.worker_main import describe_failure, find_work
from moldau.ports.background import InlineBackground, WorkerError, WorkerTools
from moldau.ports.filesystem import FileSystem


class FakeBackground:
    """A :class:`moldau.ports.background.Background` whose jobs wait for `run_next` or `run_all`; `immediate` runs each at once."""

    def __init__(self, *, immediate: bool = False) -> None:
        self.immediate = immediate
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], object]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], object]) -> None:
        """Keep the job, or run it."""
        self.jobs.append((work, done))
        if self.immediate:
            self.run_all()

    def run_next(self, place: int = 0) -> None:
        """Do the oldest job, or the one at `place`, and answer it."""
        InlineBackground().run(*self.jobs.pop(place))

    def run_all(self) -> None:
        """Do every job, those that follow from answers too."""
        while self.jobs:
            self.run_next()


class FakeJob:
    """A job that continues when `FakeWorkers` lets it run."""

    def __init__(self, work: str, task: bytes, on_message: Callable[[bytes], object], done: Callable[[WorkerError | None], object]) -> None:
        self.work = work
        self.task = task
        self.on_message = on_message
        self.done = done
        self.messages: Iterator[bytes] | None = None
        self.failure: WorkerError | None = None

    def cancel(self) -> None:
        """It has ended the next time that it is run."""
        self.failure = self.failure or WorkerError("cancelled")


class FakeWorkers:
    """A :class:`moldau.ports.background.Workers`: each `step` brings the oldest job to its next message, or to its end.

    Time stands still for the work, but for what it sleeps: `slept_s`.
    """

    def __init__(self, files: FileSystem) -> None:
        self.jobs: deque[FakeJob] = deque()
        self.slept_s = 0.0
        self._tools = WorkerTools(files, lambda: self.slept_s, self._sleep)

    def run(self, work: str, task: bytes, on_message: Callable[[bytes], object], done: Callable[[WorkerError | None], object]) -> FakeJob:
        """Take a job; nothing happens yet."""
        job = FakeJob(work, task, on_message, done)
        self.jobs.append(job)
        return job

    @property
    def running(self) -> int:
        """Jobs whose `done` has not been called yet."""
        return len(self.jobs)

    def step(self) -> None:
        """One message of the oldest job, or its end."""
        job = self.jobs[0]
        message = None
        if job.failure is None:
            try:
                if job.messages is None:
                    job.messages = find_work(job.work)(job.task, self._tools)
                message = next(job.messages, None)
            except Exception as error:
                job.failure = WorkerError(describe_failure(error))
        if message is not None:
            job.on_message(message)
            return
        self.jobs.popleft()
        job.done(job.failure)

    def run_all(self) -> None:
        """Every job to its end, those that follow from answers too."""
        while self.jobs:
            self.step()

    def die(self) -> None:
        """The oldest job's process is no more."""
        self.jobs[0].failure = WorkerError("worker process 0 has died: signal 9")
        self.step()

    def close(self) -> None:
        """Forget all jobs."""
        self.jobs.clear()

    def _sleep(self, seconds: float) -> None:
        self.slept_s += seconds
