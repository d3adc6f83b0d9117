"""What a crash leaves of a broker's data."""

import shutil
from pathlib import Path


def copy_as_after_a_crash(directory: Path, target: Path) -> Path:
    """Copy the data of a broker that runs and is not busy: what it would find if its process ended now. No mark says a clean stop.

    Without the files of atomic writes that have not ended: their threads may rename them away under the copy.
    """
    shutil.copytree(directory, target, ignore=shutil.ignore_patterns("*.tmp"))
    assert not (target / ".kafka_cleanshutdown").exists()
    return target
