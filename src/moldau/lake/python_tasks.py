"""What Spark takes for each Python task, and how source and sink get around it.

Spark runs the tasks of a data source in Python processes that it keeps, one task after another. Two of its habits cost a small batch of a
stream more than its rows do: the second write to such a process waits for 40 ms, and the process collects garbage after each task.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

BALLAST = bytes(1 << 16)
"""Goes with each reader and writer to its tasks, and with functions for them (`begun_early`), so that they begin 40 ms earlier.

Spark writes to a task's Python process twice: what to do, which is the reader or writer, and then the partition or the rows, which may be
few. TCP holds a small piece back until the one before it is acknowledged, and the other side puts that off for 40 ms, unless the piece is
longer than a segment: 65,483 bytes on the loopback interface. Tasks share one copy of the reader or writer, compressed.
"""

_spared = 0


def spare_collections() -> None:
    """Leave what this process has loaded out of collections of garbage.

    Spark lets its Python process collect after every task. To go through the objects of all modules takes some 40 ms of a core, beside
    the commit of a small batch and the start of the next one. Done again only when more modules have been loaded: the garbage of tasks
    is left to the collector.
    """
    global _spared
    if _spared != len(sys.modules):
        _spared = len(sys.modules)
        gc.freeze()


Step = Callable[[Iterator[Any]], Iterator[Any]]
"""What `mapInArrow` takes: record batches of a task in, and out."""


def begun_early(step: Step) -> Step:
    """The same step for a small batch of a stream, whose tasks begin and end sooner."""
    return partial(_run, step, BALLAST)


def _run(step: Step, _ballast: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    spare_collections()
    return step(batches)
