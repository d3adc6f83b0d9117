"""Tasks of a load in this process, one after the other, instead of a Spark that takes seconds to start.

What Spark makes of tasks (tries again, speculation, what a dead process leaves) only a Spark can show.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moldau.lake.reading import tasks


class TasksHere:
    """What a load asks of a Spark: one core."""

    defaultParallelism = 1  # noqa: N815  # as Spark has it

    @property
    def sparkContext(self) -> "TasksHere":  # noqa: N802  # as Spark has it
        return self

    def parallelize(self, parts: Sequence[Any], slices: int) -> "_Parts":
        assert len(parts) == slices
        return _Parts(parts)

    def stop(self) -> None:
        """Nothing runs."""


class _Parts:
    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def mapPartitions(self, task: Callable[[Iterator[Any]], Iterator[Any]]) -> "_Parts":  # noqa: N802  # as Spark has it
        try:
            return _Parts([made for part in self._parts for made in task(iter([part]))])
        finally:  # a process of Spark's keeps them for its next task
            while tasks._logs:
                tasks._logs.popitem()[1].close()

    def collect(self) -> list[Any]:
        return list(self._parts)
