"""A file system in memory that knows what was synced, and forgets the rest when it crashes.

What it promises is no more than POSIX does, which is less than most disks keep:

* bytes written are safe after `File.sync`; before, a crash keeps any part of them (see :func:`_after_crash`);
* a name created, renamed or removed is safe after `sync_directory` of its directory; before, a crash keeps the first few changes of that
  directory and loses the later ones. Syncing a file does not save its name;
* a sync that fails has lost its bytes: a later one that succeeds does not bring them back (as Linux does since it marks the pages clean).

Faults are asked for with `capacity` (a disk that fills up in the middle of a write) and `fail` (any operation on any path).
Not modelled: links, permissions, renames from one directory to another.
"""

import contextlib
import posixpath
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from moldau.model.errors import StorageError
from moldau.ports.filesystem import Bytes, LockHeldError

_PAGE = 512
"""Bytes that a crash keeps or loses together in the ``pages`` variant: a disk's sector."""

Fault = Callable[[str, str], bool]
"""``fault(operation, path)``: whether this operation (a method's name) on this path fails with an input/output error."""

_Change = tuple[int, bytes | None]
"""A write of bytes at a position, or a truncation to a size (None)."""


def _apply(data: bytearray, change: _Change) -> None:
    position, written = change
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    if written is None:
        del data[position:]
    else:
        data[position : position + len(written)] = written


def _apply_prefix(data: bytearray, changes: Sequence[_Change], count: int) -> None:
    """Apply changes until `count` bytes are used up; a truncation counts as one."""
    for position, written in changes:
        if count <= 0:
            return
        _apply(data, (position, None if written is None else written[:count]))
        count -= 1 if written is None else len(written)


def _after_crash(durable: bytearray, changes: Sequence[_Change], random: Random) -> tuple[str, bytearray]:
    """What a crash leaves of a file: the name of the variant, and the bytes.

    ``lost``: nothing unsynced; ``all``: everything; ``prefix``: up to any byte; ``zeros`` and ``garbage``: the full length was recorded,
    but from some byte on the blocks hold zeros or what was on the disk before; ``pages``: each sector old or new by itself.
    """
    whole = bytearray(durable)
    for change in changes:
        _apply(whole, change)
    variant = random.choice(("lost", "prefix", "prefix", "zeros", "garbage", "pages", "all"))
    if variant == "lost":
        return variant, bytearray(durable)
    if variant == "all":
        return variant, whole
    left = bytearray(durable)
    if variant == "pages":
        left.extend(bytes(max(0, len(whole) - len(left))))
        for start in range(0, len(whole), _PAGE):
            if random.random() < 0.5:
                left[start : start + _PAGE] = whole[start : start + _PAGE]
        return variant, left
    total = sum(1 if written is None else len(written) for _, written in changes)
    _apply_prefix(left, changes, random.randint(0, total))
    missing = max(0, len(whole) - len(left))
    if variant == "zeros":
        left.extend(bytes(missing))
    elif variant == "garbage":
        left.extend(random.randbytes(missing))
    return variant, left


class _Content:
    """A file's bytes, apart from its name: as the process sees them, and as the disk has them."""

    __slots__ = ("changes", "data", "durable", "linked", "modified_ms", "users")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.changes: list[_Change] = []
        """Invariant: `durable` with these applied in order is `data`, unless a sync failed."""
        self.modified_ms = modified_ms
        self.linked = True
        self.users = 0

    def change(self, position: int, written: bytes | None) -> None:
        _apply(self.data, (position, written))
        self.changes.append((position, written))

    def sync(self) -> None:
        for change in self.changes:
            _apply(self.durable, change)
        self.changes.clear()

    def forget_lost(self) -> None:
        self.data = bytearray(self.durable)
        for change in self.changes:
            _apply(self.data, change)

    def crash(self, random: Random | None) -> str:
        variant = "lost"
        if random is not None and self.changes:
            variant, self.durable = _after_crash(self.durable, self.changes, random)
        self.data = bytearray(self.durable)
        self.changes.clear()
        self.users = 0
        return variant


class _Directory:
    """Names and what they stand for: as the process sees them, and as the disk has them."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.changes: list[dict[str, _Node | None]] = []
        """Each a step that happens wholly or not at all: names and what they stand for after it (None: gone)."""

    def change(self, step: "dict[str, _Node | None]") -> None:
        _apply_names(self.entries, step)
        self.changes.append(step)

    def sync(self) -> None:
        for step in self.changes:
            _apply_names(self.durable, step)
        self.changes.clear()

    def crash(self, random: Random | None) -> None:
        kept = random.randint(0, len(self.changes)) if random is not None else 0
        for step in self.changes[:kept]:
            _apply_names(self.durable, step)
        self.entries = dict(self.durable)
        self.changes.clear()


_Node = _Content | _Directory


def _apply_names(entries: dict[str, _Node], step: dict[str, _Node | None]) -> None:
    for name, node in step.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class ForgetfulFile:
    """An open file on a :class:`ForgetfulDisk`. After a crash of the disk it must not be used any more."""

    def __init__(self, disk: "ForgetfulDisk", path: str, content: _Content, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._writable = writable
        self._users = 1
        self._crashes = disk.crashes
        content.users += 1

    def _enter(self, operation: str, *, writes: bool = False) -> None:
        assert self._crashes == self._disk.crashes, f"{self.path}: opened before the crash"
        assert self._users > 0, f"{self.path}: used after it was closed"
        self._disk.enter(operation, self.path)
        if writes and not self._writable:
            raise StorageError("opened for reading only", path=self.path)

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Write at the end; fewer bytes than given when the disk is full after them."""
        self._enter("append", writes=True)
        data = b"".join(buffers)
        room = self._disk.room(len(data))
        if data and not room:
            raise StorageError("no space left on device", path=self.path, no_space=True)
        self._write(data[:room], len(self._content.data))
        return room

    def pread(self, length: int, position: int) -> bytes:
        """Read what the process sees, synced or not."""
        self._enter("pread")
        return bytes(self._content.data[position : position + length])

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write at a position; on a full disk what fits is written before the error."""
        self._enter("pwrite", writes=True)
        inside = max(0, len(self._content.data) - position)
        room = inside + self._disk.room(max(0, len(data) - inside))
        self._write(bytes(data)[:room], position)
        if room < len(data):
            raise StorageError("no space left on device", path=self.path, no_space=True)

    def _write(self, data: bytes, position: int) -> None:
        self._content.change(position, data)
        self._content.modified_ms = self._disk.now_ms()

    def size(self) -> int:
        """Bytes in the file."""
        self._enter("size")
        return len(self._content.data)

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros (which take no space)."""
        self._enter("truncate", writes=True)
        self._content.change(size, None)

    def sync(self) -> None:
        """Make the bytes safe. A sync made to fail loses them for good, though they can still be read until the crash."""
        try:
            self._enter("sync")
        except StorageError:
            self._content.changes.clear()
            raise
        self._content.sync()

    def fileno(self) -> int:
        """None."""
        return -1

    def retain(self) -> None:
        """Count one more user."""
        self._users += 1

    def release(self) -> None:
        """Count one user less."""
        assert self._users > 0, f"{self.path}: released more often than retained"
        self._users -= 1
        if not self._users and self._crashes == self._disk.crashes:
            self._content.users -= 1
            self._disk.closed(self._content)


class ForgetfulLock:
    """A lock on a :class:`ForgetfulDisk`; a crash gives it back."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Give it back."""
        self._held.discard(self._path)


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
        self._root = _Directory()
        self._locks: set[str] = set()
        self._orphans: list[_Content] = []
        """Files without a name that are still open, and so still take space."""

    # Faults

    def enter(self, operation: str, path: str) -> None:
        """Count an operation, and fail it if that is asked for."""
        self.operations[operation] += 1
        if self.fail is not None and self.fail(operation, path):
            raise StorageError("input/output error", path=path)

    def used(self) -> int:
        """Bytes taken by files that have a name or are open."""
        return _used(self._root) + sum(len(content.data) for content in self._orphans)

    def room(self, wanted: int) -> int:
        """How many of `wanted` more bytes fit."""
        if self.capacity is None:
            return wanted
        return max(0, min(wanted, self.capacity - self.used()))

    def crash(self, random: Random | None = None) -> list[str]:
        """Stop the machine and start it again: open files and locks are gone, unsynced bytes and names are kept or lost as `random`
        decides (None: all lost). The answer says what became of each file that had unsynced bytes.
        """
        self.crashes += 1
        self._locks = set()
        self._orphans = []
        report: list[str] = []
        _crash(self._root, "", random, report)
        return report

    def closed(self, content: _Content) -> None:
        """The last user of a handle is gone."""
        if not content.users and not content.linked:
            self._orphans.remove(content)

    # Names

    def _find(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in _names(path):
            found = node.entries.get(name) if isinstance(node, _Directory) else None
            if found is None:
                return None
            node = found
        return node

    def _file(self, path: str) -> _Content:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        if isinstance(node, _Directory):
            raise StorageError("is a directory", path=path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise StorageError("no such directory" if node is None else "not a directory", path=path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        head, name = posixpath.split(_absolute(path))
        return self._directory(head), name

    def _unlink(self, node: _Node) -> None:
        if isinstance(node, _Directory):
            for inner in node.entries.values():
                self._unlink(inner)
        else:
            node.linked = False
            if node.users:
                self._orphans.append(node)

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> ForgetfulFile:
        """Open a file with one user."""
        self.enter("open", path)
        node = self._find(path)
        if isinstance(node, _Directory):
            raise StorageError("is a directory", path=path)
        if node is None:
            if not create:
                raise StorageError("no such file", path=path)
            directory, name = self._parent(path)
            node = _Content(self.now_ms())
            directory.change({name: node})
        return ForgetfulFile(self, path, node, create or writable)

    def exists(self, path: str) -> bool:
        """Whether the name is there."""
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory."""
        return isinstance(self._find(path), _Directory)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        self.enter("list", path)
        return sorted(self._directory(path).entries)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; their names are unsynced."""
        self.enter("make_directory", path)
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory()
                directory.change({name: node})
            elif not isinstance(node, _Directory):
                raise StorageError("not a directory", path=path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        """Rename within a directory."""
        self.enter("rename", source)
        directory, name = self._parent(source)
        target_directory, target_name = self._parent(target)
        assert directory is target_directory, f"{source} -> {target}: renames between directories are not modelled"
        node = directory.entries.get(name)
        if node is None:
            raise StorageError("no such file", path=source)
        replaced = directory.entries.get(target_name)
        if replaced is not None and replaced is not node:
            if isinstance(replaced, _Directory):
                raise StorageError("is a directory", path=target)
            self._unlink(replaced)
        if target_name != name:
            directory.change({name: None, target_name: node})

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self.enter("remove", path)
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, _Directory):
            raise StorageError("is a directory", path=path)
        directory, name = self._parent(path)
        directory.change({name: None})
        self._unlink(node)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it, if it is there."""
        self.enter("remove_tree", path)
        node = self._find(path)
        if node is None:
            return
        if not isinstance(node, _Directory):
            raise StorageError("not a directory", path=path)
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
            raise StorageError("no such file", path=path) from error

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory safe."""
        self.enter("sync_directory", path)
        self._directory(path).sync()

    def forget_cached(self, path: str) -> None:
        """Have the process see what the disk has and what waits to be written: not what a failed sync has lost."""
        self.enter("forget_cached", path)
        self._file(path).forget_lost()

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


def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


def _names(path: str) -> list[str]:
    return [name for name in _absolute(path).split("/") if name]


def _used(directory: _Directory) -> int:
    return sum(_used(node) if isinstance(node, _Directory) else len(node.data) for node in directory.entries.values())


def _crash(directory: _Directory, path: str, random: Random | None, report: list[str]) -> None:
    directory.crash(random)
    for name, node in directory.entries.items():
        if isinstance(node, _Directory):
            _crash(node, f"{path}/{name}", random, report)
        else:
            unsynced = bool(node.changes)
            before = len(node.data)
            variant = node.crash(random)
            node.linked = True
            if unsynced:
                report.append(f"{path}/{name}: {variant}, {before} -> {len(node.data)} bytes")
