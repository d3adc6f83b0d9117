"""Clocks that are wrong and disks that are full, for single processes: see `process_faults.c`, which is compiled for it."""

import os
import shutil
import subprocess
from pathlib import Path
from struct import Struct

_ENTRY = Struct("=qq")
_PID_MAX = Path("/proc/sys/kernel/pid_max")
DATA, METADATA = 1, 2


def can_be_made() -> bool:
    return shutil.which("cc") is not None and _PID_MAX.exists()


class ProcessFaults:
    """Of the processes that are started with its `environment`."""

    def __init__(self, directory: Path) -> None:
        library = directory / "process_faults.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
        table = directory / "process_faults"
        with table.open("wb") as file:
            file.truncate((int(_PID_MAX.read_text()) + 1) * _ENTRY.size + 4096)
        self._file = os.open(table, os.O_RDWR)
        self.environment = {"LD_PRELOAD": str(library), "MOLDAU_PROCESS_FAULTS": str(table)}

    def set(self, pid: int, *, clock_step_s: int = 0, no_space: int = 0) -> None:
        """What this process believes from now on."""
        os.pwrite(self._file, _ENTRY.pack(clock_step_s, no_space), pid * _ENTRY.size)

    def close(self) -> None:
        os.close(self._file)
