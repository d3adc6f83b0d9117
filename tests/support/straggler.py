"""Tasks of a load of which one hangs in its first attempt and one dies in its first: what Spark makes of that is up to Spark.

Imported by Spark's Python processes, in the place of `moldau.lake.loading.task.run_tasks`.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moldau.lake import points
from moldau.lake.loading import task

HANGS, DIES = 0, 1
"""The tasks of these numbers."""
NOTES = "MOLDAU_TEST_ATTEMPTS"
"""Of the environment: the directory where each attempt notes that it is done, as TASK-ATTEMPT."""
_LIMIT_S = 120.0
real_run_tasks = task.run_tasks


def run_tasks(shares: Iterator[Any], order: task.TaskOrder) -> Iterator[task.TaskReport]:
    """As the real ones; the files of the two attempts are whole, and on disk, when one waits and the other dies."""
    from pyspark import TaskContext

    context, notes = TaskContext.get(), Path(os.environ[NOTES])
    assert context is not None
    number, attempt = context.partitionId(), context.attemptNumber()

    def hook(point: str) -> None:
        if point != "task: done" or attempt > 0:
            return
        if number == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        until = time.monotonic() + _LIMIT_S
        while number == HANGS and not (notes / f"{HANGS}-1").exists() and time.monotonic() < until:
            time.sleep(0.05)

    with points.on_point(hook):
        yield from real_run_tasks(shares, order)
    (notes / f"{number}-{attempt}").touch()
