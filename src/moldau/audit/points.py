"""The named points of an auditor's run, so that it can be shown what happens when it dies at each of them.

``MOLDAU_AUDIT_DIE_AT="counts sent"`` ends the process that reaches this point with SIGKILL, as a power cut would; with a number after it
(``counts sent:3``) when it is reached for the third time.
"""

import os
import signal

POINTS = (
    "id taken over",
    "offsets read",
    "fetch counted",
    "transaction begun",
    "counts sent",
    "offsets added",
    "committed",
    "before the end",
)
DIE_AT = "MOLDAU_AUDIT_DIE_AT"

_times: dict[str, int] = {}


def reached(point: str) -> None:
    """This process is at `point` now."""
    assert point in POINTS, point
    wanted = os.environ.get(DIE_AT)
    if wanted is None:
        return
    name, _, number = wanted.partition(":")
    _times[point] = _times.get(point, 0) + 1
    if point == name and _times[point] == int(number or 1):
        os.kill(os.getpid(), signal.SIGKILL)
