"""A directory of this machine.

A file that appears under its name whole and synced, and only if the name is free, is made by `os.link`: it fails where the name is taken,
and what it shows was written and synced before. A writer that dies on the way leaves a file with a name that no reader looks at.

Data files are synced together, from several threads, because a file system then settles many in one go.
"""

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from moldau.lake.tables.places.place import FileState, UnansweredError

_SYNC_THREADS = 16


class LocalPlace:
    """A directory."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def scratch(self) -> str | None:
        """The directory."""
        return self._path

    def check(self) -> None:
        """Make the directory, and a file in it twice."""
        os.makedirs(self._path, exist_ok=True)
        name = f"_moldau_{uuid.uuid4().hex}.probe"
        self.put_new(name, b"")
        self.delete([name])

    def prepare(self, folder: str) -> None:
        """Make it and those above it that are missing, and bring their names to disk."""
        path, missing = self._full(folder), []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(os.path.abspath(path))
        for each in reversed(missing):
            os.makedirs(each, exist_ok=True)
        for each in missing:
            _sync(os.path.dirname(os.path.abspath(each)))

    def has_folder(self, folder: str) -> bool:
        """Whether it is a directory."""
        return os.path.isdir(self._full(folder))

    def changed_ns(self, folder: str) -> int | None:
        """The directory's own time."""
        try:
            return os.stat(self._full(folder)).st_mtime_ns
        except FileNotFoundError:
            return None

    def put_new(self, name: str, content: bytes) -> None:
        """Write, sync, link, sync the folder."""
        path = self._full(name)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f"_moldau_{uuid.uuid4().hex}.tmp")
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _link(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        try:
            with contextlib.suppress(FileNotFoundError):  # the doctor was faster
                os.unlink(temporary)
            _sync(folder)
        except OSError as error:
            raise UnansweredError(f"{path}: it is there, and may not survive a power failure: {error.strerror or error}") from error

    def put(self, name: str, content: bytes) -> None:
        """Written beside and renamed; not synced."""
        path = self._full(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        new = f"{path}.{os.getpid()}.new"
        with open(new, "wb") as file:
            file.write(content)
        os.replace(new, path)

    def read(self, name: str) -> bytes:
        """A whole file."""
        with open(self._full(name), "rb") as file:
            return file.read()

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """One after the other."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield name, self.read(name)

    def source(self, name: str) -> Any:
        """Its path."""
        return self._full(name)

    def file_system(self) -> tuple[Any, str]:
        """That of this machine."""
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), os.path.abspath(self._path)

    def create(self, name: str) -> BinaryIO:
        """A file under its own name."""
        path = self._full(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb")

    def end(self, _name: str, file: BinaryIO) -> None:
        """Close it."""
        file.close()

    def abandon(self, name: str, file: BinaryIO) -> None:
        """Close and unlink it."""
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._full(name))

    def settle(self, names: list[str]) -> None:
        """Sync the files, their folders, those above and the table's."""
        folders = sorted({os.path.dirname(name) for name in names})
        above = sorted({os.path.dirname(folder) for folder in folders})
        with ThreadPoolExecutor(_SYNC_THREADS) as pool:
            for some in (names, folders, above, [""]):
                for _ in pool.map(_sync, [self._full(name) for name in some]):
                    pass

    def state(self, name: str) -> FileState:
        """Of the file, also behind a link."""
        return _state(name, os.stat(self._full(name)))

    def names(self, folder: str, after: str = "") -> list[str]:
        """FileNotFoundError for a folder that is not there."""
        names = os.listdir(self._full(folder))
        return [name for name in names if name > after] if after else names

    def states(self, folder: str) -> list[FileState]:
        """FileNotFoundError for a folder that is not there."""
        found = []
        with os.scandir(self._full(folder)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    found.append(_state(f"{folder}/{entry.name}", entry.stat()))
        return found

    def walk(self, below: str = "") -> Iterator[FileState]:
        """Links to folders are not followed."""
        folders = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._full(below)) as entries:
            for entry in entries:
                name = os.path.join(below, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("_"):
                        folders.append(name)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    yield _state(name, entry.stat())
        for folder in folders:
            yield from self.walk(folder)

    def delete(self, names: Iterable[str]) -> None:
        """In this order."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._full(name))

    @property
    def keeps_marks(self) -> bool:
        """A file's time can be set."""
        return True

    def mark(self, name: str) -> None:
        """By `os.utime`."""
        os.utime(self._full(name))

    def _full(self, name: str) -> str:
        return os.path.join(self._path, name)


def _state(name: str, found: os.stat_result) -> FileState:
    return FileState(name, found.st_size, found.st_mtime)


def _link(temporary: str, path: str) -> None:
    """`os.link`; on a network file system an answer may be lost, and the repetition then finds the name taken by ourselves."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        if not os.path.samefile(temporary, path):
            raise


def _sync(path: str) -> None:
    """Bring a file or the names in a folder to disk. OSError names it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)
