"""The process that runs a topology on this host: starts its jobs, starts again what fails, stops all, those that feed others first."""

import os
import signal
import time
from collections.abc import Callable, Sequence

from moldau.adapters.supervised_child import SupervisedChild
from moldau.model.backoff import Backoff
from moldau.streams.errors import StreamError
from moldau.streams.session import MASTER_VARIABLE
from moldau.streams.topology_file import PlannedJob, StreamTopology
from moldau.streams.topology_state import hold, log_of

_WATCH_S = 0.1
STOP_LIMIT_S = 90.0
"""A job stops at the end of its batch, and interrupts one that takes longer than a minute."""


class _Job:
    """A job and its process."""

    def __init__(self, planned: PlannedJob, topology: StreamTopology, directory: str, *, once: bool) -> None:
        self.name = planned.name
        environment = {**os.environ, **planned.environment}
        if topology.master is not None:
            environment[MASTER_VARIABLE] = topology.master
        words = ("stream", "run", os.path.abspath(planned.file), "--job", planned.name, *(("--once",) if once else ()))
        self.child = SupervisedChild(words, log_of(directory, planned.name), environment)
        self.backoff = Backoff()
        self.is_over = False
        """Whether it was stopped by an order, and is not to be started again."""

    def start(self) -> None:
        self.child.start()
        self.backoff.started(time.monotonic())


class TopologyRun:
    """Use `run` or `run_once`, then `stop` and `kill`."""

    def __init__(
        self, topology: StreamTopology, stages: Sequence[Sequence[str]], directory: str, report: Callable[[str], object], *, once: bool
    ) -> None:
        """`stages` are the jobs in the order of feeding; `report` receives lines for a person. StreamError if another process runs it."""
        self._directory = os.path.abspath(directory)
        self._report = report
        self._lock = hold(topology, self._directory)
        jobs = {planned.name: _Job(planned, topology, self._directory, once=once) for planned in topology.jobs}
        self._stages = [[jobs[name] for name in stage] for stage in stages]
        self._jobs = [job for stage in self._stages for job in stage]

    def run(self) -> None:
        """Until all jobs were stopped by orders."""
        for job in self._jobs:
            job.start()
            self._report(f"job {job.name}: started as process {job.child.identity.partition(' ')[0]}")
        while not all(job.is_over for job in self._jobs):
            now = time.monotonic()
            for job in self._jobs:
                if not job.is_over:
                    self._watch(job, now)
            time.sleep(_WATCH_S)

    def run_once(self) -> None:
        """Each job until its inputs are used up, after those that feed it. StreamError if one fails: those after it are not run."""
        for job in self._jobs:
            job.start()
            while not job.child.ended:
                time.sleep(_WATCH_S)
            if job.child.has_failed:
                after = [each.name for each in self._jobs[self._jobs.index(job) + 1 :]]
                not_run = f"; not run: {', '.join(after)}" if after else ""
                raise StreamError(f"job {job.name} ended {job.child.how}; its log is {job.child.log}{not_run}")
            job.is_over = True
            self._report(f"job {job.name}: done")

    def stop(self) -> None:
        """Stop the jobs, each stage when the one before has ended, at the end of their batches."""
        for stage in self._stages:
            stopping = [job.child for job in stage if not job.child.ended]
            for child in stopping:
                child.signal(signal.SIGTERM)
            end = time.monotonic() + STOP_LIMIT_S
            while not all(child.ended for child in stopping) and time.monotonic() < end:
                time.sleep(_WATCH_S)

    def kill(self) -> None:
        """End what still runs, at once."""
        for job in self._jobs:
            job.child.signal(signal.SIGKILL)
            job.child.close()
        os.close(self._lock)

    def _watch(self, job: _Job, now: float) -> None:
        child, backoff = job.child, job.backoff
        if backoff.due_at is not None:
            if now >= backoff.due_at:
                job.start()
                self._report(f"job {job.name}: started again as process {child.identity.partition(' ')[0]}")
        elif child.ended and child.has_failed:
            pause_s = backoff.ended(now)
            self._report(f"job {job.name}: ended {child.how}; it is started again in {pause_s:g} s; its log is {child.log}")
        elif child.ended:
            job.is_over = True
            self._report(f"job {job.name}: stopped by an order; it is not started again")
