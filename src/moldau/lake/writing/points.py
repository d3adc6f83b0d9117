"""The named points of a transactional write, so that it can be shown what happens when it dies at each of them.

``MOLDAU_WRITE_DIE_AT="decided"`` in the environment ends the process that reaches this point with SIGKILL, as a power cut would; several
points are separated by commas. With ``MOLDAU_WRITE_DIE_ONCE=DIRECTORY`` it happens once at each: who dies leaves a file of that name.
"""

import os
import signal

DRIVER_POINTS = (
    "driver taken over",
    "leftovers aborted",
    "driver resumed",
    "looked at",
    "decided",
    "one committed",
    "all committed",
    "noted done",
)
TASK_POINTS = ("task begun", "task sent", "task written")
POINTS = frozenset((*DRIVER_POINTS, *TASK_POINTS))
DIE_AT, DIE_ONCE = "MOLDAU_WRITE_DIE_AT", "MOLDAU_WRITE_DIE_ONCE"


def reached(point: str) -> None:
    """This process is at `point` now."""
    assert point in POINTS, point
    wanted = os.environ.get(DIE_AT)
    if wanted is not None and point in wanted.split(",") and _first(os.environ.get(DIE_ONCE), point):
        os.kill(os.getpid(), signal.SIGKILL)


def _first(directory: str | None, point: str) -> bool:
    if directory is None:
        return True
    try:
        os.close(os.open(os.path.join(directory, point), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
