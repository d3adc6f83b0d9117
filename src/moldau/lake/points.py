"""The named points of a load, a compaction and a merge, so that it can be shown what happens when one dies at each of them.

`reached` costs a look at a variable and at the environment. A test sets a hook in this process (`on_point`), or orders a death by the
environment: ``MOLDAU_LOAD_DIE_AT="driver: table committed"`` ends the process that reaches this point with SIGKILL, as a power cut would.
With ``MOLDAU_LOAD_DIE_ONCE=FILE`` it happens only while FILE is missing, and who dies makes it. The driver passes orders on to its tasks.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DRIVER_POINTS = (
    "driver: planned",
    "driver: files written",
    "driver: dead letters committed",
    "driver: table about to be committed",
    "driver: table committed",
    "driver: counts published",
    "driver: publication noted",
    "driver: group committed",
)
TASK_POINTS = ("task: begun", "task: batch read", "task: files written", "task: done")
COMPACTION_POINTS = ("compaction: files written", "compaction: committed")
MERGE_POINTS = (
    "merge: table made",
    "merge: planned",
    "merge: rows read",
    "merge: bucket written",
    "merge: files written",
    "merge: committed",
)
POINTS = frozenset((*DRIVER_POINTS, *TASK_POINTS, *COMPACTION_POINTS, *MERGE_POINTS))
DIE_AT, DIE_ONCE = "MOLDAU_LOAD_DIE_AT", "MOLDAU_LOAD_DIE_ONCE"

Orders = tuple[str | None, str | None]
"""At which point to die, and the file that marks it as done."""
NO_ORDERS: Orders = (None, None)

_hook: Callable[[str], object] | None = None
_passed_on: Orders = NO_ORDERS


def orders() -> Orders:
    """The orders of this process, for its tasks."""
    return os.environ.get(DIE_AT), os.environ.get(DIE_ONCE)


def follow(given: Orders) -> None:
    """Take the driver's orders: from now on, in this process."""
    global _passed_on
    _passed_on = given


def reached(point: str) -> None:
    """This process is at `point` now."""
    assert point in POINTS, point
    if _hook is not None:
        _hook(point)
    wanted, once = orders() if DIE_AT in os.environ else _passed_on
    if wanted == point and (once is None or _first(once)):
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def on_point(hook: Callable[[str], object]) -> Iterator[None]:
    """Call `hook` with each point that this process reaches; what it raises ends the load there."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def _first(once: str) -> bool:
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
