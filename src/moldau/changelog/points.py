"""Named points of publications and of replicas, so that it can be shown what happens when the process dies at each of them.

``MOLDAU_CHANGELOG_DIE_AT="commit: published"`` in the environment ends the process that reaches this point with SIGKILL, as a power cut
would; ``MOLDAU_CHANGELOG_DIE_AFTER=3`` when it reaches it for the third time.
"""

import os
import signal
from collections import Counter

POINTS = (
    "publisher: started",
    "writer: sealed",
    "writer: committed",
    "seal: committed",
    "rows: chunk committed",
    "commit: half sent",
    "commit: sent",
    "commit: published",
    "outbox: cleaned",
)
"""Of a publication."""
REPLICA_POINTS = (
    "replica: fetched",
    "replica: prepared",
    "replica: cleared",
    "replica: spilled",
    "replica: rows written",
    "replica: applied",
)
DIE_AT, DIE_AFTER = "MOLDAU_CHANGELOG_DIE_AT", "MOLDAU_CHANGELOG_DIE_AFTER"

_reached: Counter[str] = Counter()


def reached(point: str) -> None:
    """This process is at `point` now."""
    assert point in POINTS or point in REPLICA_POINTS, point
    if os.environ.get(DIE_AT) == point:
        _reached[point] += 1
        if _reached[point] >= int(os.environ.get(DIE_AFTER, "1")):
            os.kill(os.getpid(), signal.SIGKILL)
