"""The disk of a simulated host: it forgets what was not synced, takes its time, fills up, fails, and notices every call.

Damage that no log can survive is not done: only a drawn kind of fault whose loss the model of losses knows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from moldau.model.errors import StorageError
from moldau.testing.disk import ForgetfulDisk

SECTOR = 512
JOB_MAX_S = 30.0
"""The longest a job in the background takes: it begins on a slow disk, and a cluster that has been healed waits for it."""


@dataclass(slots=True)
class DiskOptions:
    """How slow a disk is."""

    sync_s: float = 0.002
    """Typical time of a job in the background, which is mostly a sync."""
    slow_rate: float = 0.0
    """How often one takes up to a hundred times as long."""


def no_operation(_operation: str) -> None:
    """No process looks at operations."""


class SimulatedDisk(ForgetfulDisk):
    """See the module."""

    def __init__(self, random: Random, options: DiskOptions, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms=now_ms)
        self.options = options
        self.on_operation: Callable[[str], object] = no_operation
        """Called before each operation; what it raises ends that before it has an effect."""
        self.failing: str | None = None
        """A directory whose operations fail, with all below it: the disk that holds it is broken."""
        self.failing_syncs = 0
        """So many of the next syncs fail."""
        self.failed_syncs = 0
        """Syncs that have failed."""
        self.damaged: dict[str, None] = {}
        """Folders of partitions with records that were damaged, until it is judged what that has cost."""
        self.slowness = 1.0
        """Jobs in the background take so many times as long."""
        self._random = random

    def enter(self, operation: str, path: str) -> None:
        """Begin an operation."""
        self.on_operation(operation)
        if self.failing is not None or self.failing_syncs:
            is_sync = operation == "sync"
            fails = self.failing is not None and path.startswith(self.failing)
            if is_sync and self.failing_syncs and not fails:
                self.failing_syncs -= 1
                fails = True
            if fails:
                self.failed_syncs += is_sync
                raise StorageError("input/output error", path=path)
        if self.fail is not None:
            super().enter(operation, path)
        else:
            self.operations[operation] += 1

    def flip(self, path: str, position: int, bit: int) -> None:
        """Change one bit of a file."""
        content = self._file(path)
        content.change(position, bytes((content.data[position] ^ 1 << bit,)))

    def misdirect(self, source: str, path: str, position: int) -> None:
        """Put the first sector of one file into another, which it does not make longer: the disk has written it to the wrong place."""
        content = self._file(path)
        content.change(position, bytes(self._file(source).data[: min(SECTOR, len(content.data) - position)]))

    def contents(self, path: str, *, cached: bool = True) -> bytes:
        """All bytes of a file, for those that look at the disk from outside: no operation of the process.

        Without `cached`, without those that a failed sync has lost and that can still be read.
        """
        content = self._file(path)
        return bytes(content.data if cached else content.kept())

    def names(self, path: str) -> list[str]:
        """Names in a directory, looked at in the same way."""
        return sorted(self._directory(path).entries) if self.exists(path) else []

    def job_s(self) -> float:
        """How long the next job in the background takes."""
        draw = self._random.random
        seconds = self.options.sync_s * self.slowness * draw()
        return min(seconds * (1 + 99 * draw()) if draw() < self.options.slow_rate else seconds, JOB_MAX_S)

    def power_cut(self) -> list[str]:
        """Lose what was not synced, or a part of it; what became of each file that had something unsynced."""
        return self.crash(self._random)

    def fill_up(self, room: int) -> None:
        """From now on no more than so many bytes fit; what is removed makes room."""
        self.capacity = self.used() + room

    def make_room(self) -> None:
        """As many bytes fit as ever."""
        self.capacity = None
