"""The named points of a job's batch, so that it can be shown what happens when the driver dies at each of them.

``MOLDAU_STREAM_DIE_AT="table committed"`` in the environment ends the process that reaches this point with SIGKILL, as a power cut would.
With ``MOLDAU_STREAM_DIE_ONCE=FILE`` it happens only while FILE is missing, and the process that dies makes it.
"""

import os
import signal

POINTS = ("claimed", "batch begun", "topic written", "files written", "table committed", "batch written")
LATE_POINTS = ("outputs written", "late rows written")
"""Of a batch with a side output of late rows, after the other outputs."""
TIER_POINTS = ("counts left", "counts published")
"""Of a batch of a job that is a tier of the audit, after all outputs."""
SWITCH_POINTS = (
    "reprocessing begun",
    "caught up",
    "old generation settled",
    "switch claimed",
    "new generation settled",
    "switched",
    "switch reported",
)
"""Of a reprocessing, in this order."""
DIE_AT, DIE_ONCE = "MOLDAU_STREAM_DIE_AT", "MOLDAU_STREAM_DIE_ONCE"


def reached(point: str) -> None:
    """This process is at `point` now."""
    assert point in (*POINTS, *LATE_POINTS, *TIER_POINTS, *SWITCH_POINTS), point
    if os.environ.get(DIE_AT) == point and _first(os.environ.get(DIE_ONCE)):
        os.kill(os.getpid(), signal.SIGKILL)


def _first(once: str | None) -> bool:
    if once is None:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
