"""Loaded by Python at its start where this folder is in PYTHONPATH: the process kills itself instead of its n-th rename of a compaction.

The renames are those of ``.cleaned`` and ``.swap`` files, and those to ``.deleted``; MOLDAU_TEST_RENAMES has n and, behind a colon, the
file that gets a line for each.
"""

import os
import signal
from typing import Any

_number, _, _notes = os.environ["MOLDAU_TEST_RENAMES"].partition(":")
_rename = os.rename
_left = int(_number)


def rename(source: Any, target: Any, **options: Any) -> None:
    """The system's, unless it is time to go."""
    global _left
    if str(source).endswith((".cleaned", ".swap")) or str(target).endswith(".deleted"):
        _left -= 1
        if _left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        with open(_notes, "a") as notes:
            notes.write(f"{source} {target}\n")
    _rename(source, target, **options)


os.rename = rename  # type: ignore[assignment]
