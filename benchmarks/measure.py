"""What the measurements share: counters of processes, spread of repeated runs, JSON lines."""

import contextlib
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # whoever has it set would measure how long our modules take to compile, at each start
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SHARED_MEMORY = Path("/dev/shm")
MEMORY_KEPT = 256 * 1024 * 1024
"""Free memory that `touch_memory` leaves alone."""


def cpu_seconds(pid: int) -> float:
    """User and system time that a process and its reaped children have used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS_PER_SECOND


def resident_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory in MB; its peak with field="VmHWM" (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def disk_read_bytes(pid: int) -> int:
    """What the disk has read for a process since it started (Linux)."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"])


def load_average() -> float:
    """Load average of the last minute, to tell a noisy run from a quiet one."""
    return round(os.getloadavg()[0], 2)


class Withheld:
    """What part of the processors the host gave to others since it was last asked: where it is much, rates say little (Linux)."""

    def __init__(self) -> None:
        self._withheld, self._whole = self._ticks()

    def share(self) -> float:
        """Between 0 and 1, of all processors; 0 where the system does not tell."""
        withheld, whole = self._ticks()
        before, before_whole, self._withheld, self._whole = self._withheld, self._whole, withheld, whole
        return round((withheld - before) / (whole - before_whole), 2) if whole > before_whole else 0.0

    @staticmethod
    def _ticks() -> tuple[int, int]:
        """Time withheld and time in all; guests' time is in the users' already."""
        try:
            fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except OSError:
            return 0, 0
        return fields[7], sum(fields)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def touch_memory(size: int, folder: Path = SHARED_MEMORY) -> None:
    """Have the system's next `size` bytes of free memory ready for use, as far as they are there: write a file in memory, and remove it.

    A virtual machine may have given its free pages back to the host, and pays for each when it takes it again: a copy into the page cache
    then costs three times as much, for every broker alike: the host is what is measured. Does nothing without such a folder (not Linux).
    """
    if not folder.is_dir():
        return
    found = os.statvfs(folder)
    free = min(found.f_bavail * found.f_frsize, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(min(size, free - MEMORY_KEPT) // len(block)):
            file.write(block)


class Results:
    """JSON lines, printed as they come and appended to a file; `withheld` in each is the share of `Withheld` since the line before."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._withheld = Withheld()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, **record: Any) -> None:
        """One measurement."""
        line = json.dumps({**record, "withheld": self._withheld.share()})
        print(line, flush=True)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(line + "\n")


def directory_bytes(folder: Path, pattern: str) -> int:
    """Bytes of the files below a folder whose path matches."""
    total = 0
    for file in folder.rglob(pattern):
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size
    return total
