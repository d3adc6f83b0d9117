"""The named points of a transactional write, so that it can be shown what happens when it dies at each of them.

``MOLDAU_WRITE_DIE_AT="decided"`` in the environment ends the process that reaches this point with SIGKILL, as a power cut would.
"""

import os
import signal

DRIVER_POINTS = (
    "driver taken over",
    "leftovers aborted",
    "going on",
    "looked at",
    "decided",
    "one committed",
    "all committed",
    "noted done",
)
TASK_POINTS = ("task begun", "task sent", "task written")
POINTS = frozenset((*DRIVER_POINTS, *TASK_POINTS))
DIE_AT = "MOLDAU_WRITE_DIE_AT"


def reached(point: str) -> None:
    """This process is at `point` now."""
    assert point in POINTS, point
    if os.environ.get(DIE_AT) == point:
        os.kill(os.getpid(), signal.SIGKILL)
