"""What a broker does to its logs from time to time: checkpoints, retention, forgetting old producers, removing what was deleted."""

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial
from heapq import heappop, heappush

from moldau.log.directory import LogDirectory
from moldau.log.log_set import LogSet
from moldau.log.names import MOVE_MARK
from moldau.model.errors import StorageError
from moldau.model.steps import Pause, Steps
from moldau.model.value import Value
from moldau.ports.background import Background
from moldau.ports.filesystem import FileSystem, MissingFileError

_LOG = logging.getLogger(__name__)

EMPTY_FOLDER_MS = 10_000
"""How long the emptied folder of a deleted partition is kept at least."""


class Removal(Value):
    """Work that gives space back, due at a time of the wall clock. It may run in any thread; StorageError."""

    due_ms: int
    number: int
    directory: LogDirectory
    path: str
    work: Callable[[], None] | None
    """None for the folder of a deleted partition."""


class Removals:
    """Earliest first. What still waits when the process ends is found again by its name at the next start."""

    def __init__(self) -> None:
        self._waiting: list[Removal] = []
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due_ms: int, directory: LogDirectory, path: str, work: Callable[[], None] | None = None) -> None:
        """Have `work`, which begins with `path`, done once `due_ms` has come. Without it, `path` is the folder of a deleted partition."""
        self._numbers += 1
        heappush(self._waiting, Removal(due_ms, self._numbers, directory, path, work))

    def add_copy(self, now_ms: int, directory: LogDirectory, folder: str, files: FileSystem) -> None:
        """Have the folder of a copy removed that takes the place of no log, if there is one."""
        self.add(now_ms, directory, folder, partial(_remove_copy, files, folder))

    def take_due(self, now_ms: int) -> Iterator[Removal]:
        """Those whose time has come, each out of the queue as it is asked for; those of a directory that went offline are dropped."""
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            removal = heappop(self._waiting)
            if removal.directory.online:
                yield removal

    def next_due_ms(self) -> int | None:
        """When the next one is due; None without any."""
        return self._waiting[0].due_ms if self._waiting else None


class Housekeeping:
    """Without a background the work is done at once. An error of a disk concerns only the directory it came from."""

    def __init__(self, files: FileSystem, logs: LogSet, removals: Removals, background: Background | None) -> None:
        self._files = files
        self._logs = logs
        self._removals = removals
        self._background = background

    def checkpoint(self) -> Steps:
        """Write recovery points, log starts and high watermarks of all directories, each log's as they are at its step.

        A partition whose files were removed goes offline: appends to it go to an unlinked file.
        """
        self._logs.has_new = False
        for placement in self._logs.in_service():
            yield None
            if placement.log is None or not self._logs.holds(placement):  # since the steps began
                continue
            path = placement.log.active_path
            if not self._files.exists(path):
                self._logs.partition_failed(placement, MissingFileError("is missing, and what was written to it is lost", path=path))
            self._logs.note_offset(placement)
        for directory in self._logs.online():
            self._do(directory, directory.checkpoint())

    def apply_retention(self, now_ms: int) -> Generator[Pause, None, int]:
        """Take segments out of use that are too old or too many; how many. Their bytes go after `file.delete.delay.ms`."""
        count = 0
        for placement in self._logs.in_service():
            yield None
            if placement.log is None or not placement.may_be_trimmed or not self._logs.holds(placement):
                continue
            try:
                removed = placement.log.apply_retention(now_ms)
            except StorageError as error:
                self._logs.partition_failed(placement, error)
                continue
            for segment in removed:
                self._removals.add(now_ms + segment.delay_ms, placement.directory, segment.paths[0], segment.unlink)
            count += len(removed)
        return count

    def expire_producers(self, now_ms: int) -> Steps:
        """Forget producers that have not written for `producer.id.expiration.ms`."""
        for placement in self._logs.in_service():
            yield None
            if placement.log is not None:
                placement.log.expire_producers(now_ms)

    def remove_due(self, now_ms: int) -> Generator[Pause, None, int]:
        """Give the space of what was deleted long enough ago back; how many removals were begun.

        The folder of a deleted partition stays, empty, while the directory's checkpoints may have lines of it: it shows the next start that
        the partition was deleted, and not lost.
        """
        count = 0
        for removal in self._removals.take_due(now_ms):
            _LOG.info("removing: path=%s", removal.path)
            work = removal.work
            if work is None and removal.directory.has_stale_lines:
                work = partial(_empty_folder, self._files, removal.path)
                self._removals.add(now_ms + EMPTY_FOLDER_MS, removal.directory, removal.path)
            self._do(removal.directory, work or partial(self._files.remove_tree, removal.path))
            count += 1
            yield None
        return count

    def _do(self, directory: LogDirectory, work: Callable[[], None]) -> None:
        if self._background is not None:
            self._background.run(work, lambda _result, error: self._done(directory, error))
            return
        try:
            work()
        except StorageError as error:
            self._done(directory, error)

    def _done(self, directory: LogDirectory, error: BaseException | None) -> None:
        if isinstance(error, StorageError):
            self._logs.storage_failed(directory, error)
        elif error is not None:
            raise error


def _empty_folder(files: FileSystem, folder: str) -> None:
    for name in files.list(folder) if files.exists(folder) else ():
        path = f"{folder}/{name}"
        (files.remove_tree if files.is_directory(path) else files.remove)(path)


def _remove_copy(files: FileSystem, folder: str) -> None:
    """The mark goes last: by that a start knows what the folder is."""
    for name in files.list(folder) if files.exists(folder) else ():
        if name != MOVE_MARK:
            files.remove(f"{folder}/{name}")
    files.remove_tree(folder)
