"""A file system in memory that knows what was synced, and forgets the rest when it crashes.

What it promises is no more than POSIX does, which is less than most disks keep:

* bytes written are safe after `File.sync`; before, a crash keeps any part of them (see :mod:`moldau.testing.disk_nodes`);
* a name created, renamed or removed is safe after `sync_directory` of its directory; before, a crash keeps the first few changes of that
  directory and loses the later ones. Syncing a file does not save its name;
* a sync that fails has lost its bytes: a later one that succeeds does not bring them back (as Linux does since it marks the pages clean).

Faults are asked for with `capacity` (a disk that fills up in the middle of a write) and `fail` (any operation on any path).
`make_special` adds links and other names that are no regular files.
Not modelled: permissions, renames from one directory to another.
"""

import contextlib
import posixpath
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from random import Random

from moldau.model.errors import StorageError
from moldau.ports.filesystem import LockHeldError, MissingFileError, NotRegularError
from moldau.testing.disk_nodes import Content, Directory, ForgetfulFile, ForgetfulLock, Node, Special, close_all, crash, used

PATHS_MAX = 4096
"""Paths whose names are remembered."""

Fault = Callable[[str, str], bool]
"""``fault(operation, path)``: whether this operation (a method's name) on this path fails with an input/output error."""


class ForgetfulDisk:
    """A :class:`moldau.ports.filesystem.FileSystem` in memory.

    `now_ms` gives the time that files are stamped with.
    """

    def __init__(self, *, capacity: int | None = None, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.capacity = capacity
        """Bytes that fit; None for no end. May be changed at any time, also below what is used."""
        self.fail: Fault | None = None
        """Which operations fail with an input/output error, from now on."""
        self.operations: Counter[str] = Counter()
        """How often each operation was asked for, by method name."""
        self.crashes = 0
        self.now_ms = now_ms
        self._root = Directory()
        self._locks: set[str] = set()
        self._orphans: list[Content] = []
        """Files without a name that are still open, and so still take space."""

    # Faults

    def enter(self, operation: str, path: str) -> None:
        """Count an operation, and fail it if that is asked for."""
        self.operations[operation] += 1
        if self.fail is not None and self.fail(operation, path):
            raise StorageError("input/output error", path=path)

    def used(self) -> int:
        """Bytes taken by files that have a name or are open."""
        return used(self._root) + sum(len(content.data) for content in self._orphans)

    def room(self, wanted: int) -> int:
        """How many of `wanted` more bytes fit."""
        if self.capacity is None:
            return wanted
        return max(0, min(wanted, self.capacity - self.used()))

    def crash(self, random: Random | None = None) -> list[str]:
        """Stop the machine and start it again: open files and locks are lost, unsynced bytes and names are kept or lost as `random`
        decides (None: all lost). The answer says what became of each file that had unsynced bytes.
        """
        self.crashes += 1
        self._locks = set()
        self._orphans = []
        report: list[str] = []
        crash(self._root, "", random, report)
        return report

    def process_ended(self) -> None:
        """The process that used the disk has ended, the machine runs on: open files and locks are lost, what was written stays."""
        self.crashes += 1
        self._locks = set()
        self._orphans = []
        close_all(self._root)

    def closed(self, content: Content) -> None:
        """The last user of a handle has closed it."""
        if not content.users and not content.linked:
            self._orphans.remove(content)

    # Names

    def make_special(self, path: str, kind: str, target: str | None = None) -> None:
        """Make a name a link to `target`, or a FIFO, a device, as `kind` says."""
        directory, name = self._parent(path)
        directory.change({name: Special(kind, target)})

    def _find(self, path: str) -> Node | None:
        """The node of a name; links before it are followed."""
        node: Node | None = self._root
        for name in _names(path):
            if type(node) is not Directory:
                node = self._follow(node)
                if not isinstance(node, Directory):
                    return None
            node = node.entries.get(name)
        return node

    def _follow(self, node: Node | None) -> Node | None:
        while isinstance(node, Special) and node.target is not None:
            node = self._find(node.target)
        return node

    def _file(self, path: str) -> Content:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        if not isinstance(node, Content):
            raise _not_regular(node, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._follow(self._find(path))
        if node is None:
            raise MissingFileError("no such directory", path=path)
        if not isinstance(node, Directory):
            raise NotRegularError("not a directory", path=path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, name = posixpath.split(_absolute(path))
        return self._directory(head), name

    def _unlink(self, node: Node) -> None:
        if isinstance(node, Directory):
            for inner in node.entries.values():
                self._unlink(inner)
        elif isinstance(node, Content):
            node.linked = False
            if node.users:
                self._orphans.append(node)

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> ForgetfulFile:
        """Open a file with one user."""
        self.enter("open", path)
        node = self._find(path)
        if isinstance(node, Directory | Special):
            raise _not_regular(node, path)
        if node is None:
            if not create:
                raise MissingFileError("no such file", path=path)
            directory, name = self._parent(path)
            node = Content(self.now_ms())
            directory.change({name: node})
        return ForgetfulFile(self, path, node, create or writable)

    def exists(self, path: str) -> bool:
        """Whether the name is there."""
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory, and no link to one."""
        return isinstance(self._find(path), Directory)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        self.enter("list", path)
        return sorted(self._directory(path).entries)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; their names are unsynced."""
        self.enter("make_directory", path)
        directory = self._root
        for name in _names(path):
            node = self._follow(directory.entries.get(name))
            if node is None and name not in directory.entries:
                node = Directory()
                directory.change({name: node})
            elif not isinstance(node, Directory):
                raise NotRegularError("not a directory", path=path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        """Rename within a directory."""
        self.enter("rename", source)
        directory, name = self._parent(source)
        target_directory, target_name = self._parent(target)
        assert directory is target_directory, f"{source} -> {target}: renames between directories are not modelled"
        node = directory.entries.get(name)
        if node is None:
            raise MissingFileError("no such file", path=source)
        replaced = directory.entries.get(target_name)
        if replaced is not None and replaced is not node:
            if isinstance(replaced, Directory):
                raise _not_regular(replaced, target)
            self._unlink(replaced)
        if target_name != name:
            directory.change({name: None, target_name: node})

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self.enter("remove", path)
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, Directory):
            raise _not_regular(node, path)
        directory, name = self._parent(path)
        directory.change({name: None})
        self._unlink(node)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it, if it is there."""
        self.enter("remove_tree", path)
        node = self._find(path)
        if node is None:
            return
        if not isinstance(node, Directory):
            raise NotRegularError("not a directory", path=path)
        parent, name = self._parent(path)
        parent.change({name: None})
        self._unlink(node)

    def read(self, path: str) -> bytes:
        """All bytes of a file; FileNotFoundError if it is missing."""
        self.enter("read", path)
        return bytes(self._file(path).data)

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file; durable on return."""
        self.enter("write_atomically", path)
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            if file.append([data]) < len(data):
                raise StorageError("no space left on device", path=path, no_space=True)
            file.sync()
            self.rename(temporary, path)
        except StorageError:
            with contextlib.suppress(StorageError):
                self.remove(temporary)
            raise
        finally:
            file.release()
        self.sync_directory(posixpath.dirname(_absolute(path)))

    def size(self, path: str) -> int:
        """Bytes of a file; FileNotFoundError if it is missing."""
        self.enter("size", path)
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        """When a file was last written; FileNotFoundError if it is missing."""
        self.enter("modified_ms", path)
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        self.enter("set_modified_ms", path)
        try:
            self._file(path).modified_ms = modified_ms
        except FileNotFoundError as error:
            raise MissingFileError("no such file", path=path) from error

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory safe."""
        self.enter("sync_directory", path)
        self._directory(path).sync()

    def forget_cached(self, path: str) -> None:
        """Have the process see what the disk has and what waits to be written: not what a failed sync has lost."""
        self.enter("forget_cached", path)
        try:
            self._file(path).forget_lost()
        except FileNotFoundError as error:
            raise MissingFileError("no such file", path=path) from error

    def disk_space(self, path: str) -> tuple[int, int]:
        """Total and free bytes; without a capacity a terabyte is free."""
        self.enter("disk_space", path)
        used = self.used()
        total = used + (1 << 40) if self.capacity is None else self.capacity
        return total, max(0, total - used)

    def lock(self, path: str) -> ForgetfulLock:
        """Take the lock file."""
        self.enter("lock", path)
        key = _absolute(path)
        if key in self._locks:
            raise LockHeldError(path)
        self.open(path, create=True).release()
        self._locks.add(key)
        return ForgetfulLock(self._locks, key)


def _not_regular(node: Node, path: str) -> NotRegularError:
    kind = node.kind if isinstance(node, Special) else "a directory"
    return NotRegularError(f"is {kind}, not a regular file; move it away", path=path)


@lru_cache(PATHS_MAX)
def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


@lru_cache(PATHS_MAX)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in _absolute(path).split("/") if name)
