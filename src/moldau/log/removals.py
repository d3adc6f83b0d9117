"""Files and folders that are out of use and wait for their time: readers may still be in the middle of them."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from moldau.log.directory import LogDirectory


class Removal(NamedTuple):
    """Work that gives space back, due at a time of the wall clock. It may run in any thread; StorageError."""

    due_ms: int
    number: int
    directory: LogDirectory
    work: Callable[[], None]
    what: str


class Removals:
    """Earliest first. What still waits when the process ends is found again by its name at the next start."""

    def __init__(self) -> None:
        self._waiting: list[Removal] = []
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due_ms: int, directory: LogDirectory, work: Callable[[], None], what: str) -> None:
        """Have `work` done once `due_ms` has come."""
        self._numbers += 1
        heappush(self._waiting, Removal(due_ms, self._numbers, directory, work, what))

    def take_due(self, now_ms: int) -> Iterator[Removal]:
        """Those whose time has come, each out of the queue as it is asked for; those of a directory that went offline are dropped."""
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            removal = heappop(self._waiting)
            if removal.directory.online:
                yield removal

    def next_due_ms(self) -> int | None:
        """When the next one is due; None without any."""
        return self._waiting[0].due_ms if self._waiting else None
