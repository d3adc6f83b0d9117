"""What a disk in memory keeps of files and directories: as the process sees them, as the disk has them, and what a crash leaves. Open files
and locks on them.

The rules are those that :mod:`moldau.testing.disk` promises.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol

from moldau.model.errors import StorageError
from moldau.ports.filesystem import Bytes

_PAGE = 512
"""Bytes that a crash keeps or loses together in the ``pages`` variant: a disk's sector."""

Change = tuple[int, bytes | None]
"""A write of bytes at a position, or a truncation to a size (None)."""


def _apply(data: bytearray, change: Change) -> None:
    position, written = change
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    if written is None:
        del data[position:]
    else:
        data[position : position + len(written)] = written


def _apply_prefix(data: bytearray, changes: Sequence[Change], count: int) -> None:
    """Apply changes until `count` bytes are used up; a truncation counts as one."""
    for position, written in changes:
        if count <= 0:
            return
        _apply(data, (position, None if written is None else written[:count]))
        count -= 1 if written is None else len(written)


def _after_crash(durable: bytearray, changes: Sequence[Change], random: Random) -> tuple[str, bytearray]:
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


class Content:
    """A file's bytes, apart from its name: as the process sees them, and as the disk has them."""

    __slots__ = ("changes", "data", "durable", "linked", "modified_ms", "users")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.changes: list[Change] = []
        """Invariant: `durable` with these applied in order is `data`, unless a sync failed."""
        self.modified_ms = modified_ms
        self.linked = True
        self.users = 0

    def change(self, position: int, written: bytes | None) -> None:
        """Write, or truncate; not yet safe."""
        _apply(self.data, (position, written))
        self.changes.append((position, written))

    def sync(self) -> None:
        """Make all changes safe."""
        for change in self.changes:
            _apply(self.durable, change)
        self.changes.clear()

    def kept(self) -> bytearray:
        """What is safe or may yet be: all but what a failed sync has lost."""
        data = bytearray(self.durable)
        for change in self.changes:
            _apply(data, change)
        return data

    def forget_lost(self) -> None:
        """Let the process see no more than is safe or may yet be."""
        self.data = self.kept()

    def crash(self, random: Random | None) -> str:
        """Keep what a crash leaves, nothing unsynced without `random`; the name of the variant."""
        variant = "lost"
        if random is not None and self.changes:
            variant, self.durable = _after_crash(self.durable, self.changes, random)
        self.data = bytearray(self.durable)
        self.changes.clear()
        self.users = 0
        return variant


class Directory:
    """Names and their contents: as the process sees them, and as the disk has them."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.changes: list[dict[str, Node | None]] = []
        """Each a step that happens wholly or not at all: names and their contents after it (None: removed)."""

    def change(self, step: "dict[str, Node | None]") -> None:
        """Change names in one step; not yet safe."""
        _apply_names(self.entries, step)
        self.changes.append(step)

    def sync(self) -> None:
        """Make all changes safe."""
        for step in self.changes:
            _apply_names(self.durable, step)
        self.changes.clear()

    def crash(self, random: Random | None) -> None:
        """Keep the first few changes, none without `random`."""
        kept = random.randint(0, len(self.changes)) if random is not None else 0
        for step in self.changes[:kept]:
            _apply_names(self.durable, step)
        self.entries = dict(self.durable)
        self.changes.clear()


class Special:
    """A name that is no regular file: a symbolic link, with the path that it leads to, or something else (None). It is never synced
    for its own sake; a crash leaves or loses the name.
    """

    __slots__ = ("kind", "target")

    def __init__(self, kind: str, target: str | None) -> None:
        self.kind = kind
        self.target = target


Node = Content | Directory | Special


def _apply_names(entries: dict[str, Node], step: dict[str, Node | None]) -> None:
    for name, node in step.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def used(directory: Directory) -> int:
    """Bytes of all files below."""
    total = 0
    for node in directory.entries.values():
        match node:
            case Directory():
                total += used(node)
            case Content():
                total += len(node.data)
            case Special():
                pass
    return total


def close_all(directory: Directory) -> None:
    """No file below has a user any more."""
    for node in directory.entries.values():
        if isinstance(node, Directory):
            close_all(node)
        elif isinstance(node, Content):
            node.users = 0


def crash(directory: Directory, path: str, random: Random | None, report: list[str]) -> None:
    """Crash everything below; `report` gets a line for each file that had something unsynced."""
    directory.crash(random)
    for name, node in directory.entries.items():
        if isinstance(node, Directory):
            crash(node, f"{path}/{name}", random, report)
        elif isinstance(node, Content):
            unsynced = bool(node.changes)
            before = len(node.data)
            variant = node.crash(random)
            node.linked = True
            if unsynced:
                report.append(f"{path}/{name}: {variant}, {before} -> {len(node.data)} bytes")


class Disk(Protocol):
    """What an open file needs of its disk."""

    crashes: int

    def enter(self, operation: str, path: str) -> None:
        """Begin an operation. StorageError for one that was made to fail."""

    def room(self, wanted: int) -> int:
        """How many of so many bytes more there is space for."""

    def closed(self, content: Content) -> None:
        """A file has one user less."""

    def now_ms(self) -> int:
        """The time that files are stamped with."""


class ForgetfulFile:
    """An open file on a :class:`ForgetfulDisk`. After a crash of the disk it must not be used any more."""

    def __init__(self, disk: Disk, path: str, content: Content, writable: bool) -> None:
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
