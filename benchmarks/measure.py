"""What the measurements share: counters of processes, spread of repeated runs, JSON lines."""

import contextlib
import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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


def load_average() -> float:
    """Load average of the last minute, to tell a noisy run from a quiet one."""
    return round(os.getloadavg()[0], 2)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


class Results:
    """JSON lines, printed as they come and appended to a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, **record: Any) -> None:
        """One measurement."""
        line = json.dumps(record)
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
