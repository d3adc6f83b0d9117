"""A slow reader of a log directory's bytes, written apart from the product: where a log ends that is recovered from them.

That is the end of the longest whole prefix: batches that lie completely in their files, with a sound checksum, each at the offset that
follows the one before. Before the recovery point compaction may have left holes; from there on nothing may be missing, and leader epochs
do not fall.
"""

from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from moldau.testing.simulation.disk import SimulatedDisk

_BATCH = Struct(">qiiBIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta."""
_LENGTH_FROM, _CHECKED_FROM, _BYTES_MIN = 12, 21, 61
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_FUTURE, _MOVE_MARK = "-future", "moldau-move"


class DiskLogEnd(NamedTuple):
    """Where a log ends."""

    offset: int
    """After its last record."""
    epoch: int
    """The newest leader epoch of its records; -1 without any."""


def ends_of_logs(disk: SimulatedDisk, directories: Collection[str], *, cached: bool = True) -> dict[tuple[bytes, int], DiskLogEnd]:
    """By topic id and index where the log of a partition ends after recovery. A folder where compaction has not ended is left out, and so
    is one that never held a record beside one of the same partition that did.

    `cached`: see `SimulatedDisk.contents`.
    """
    ends: dict[tuple[bytes, int], DiskLogEnd] = {}
    points = {directory: recovery_points(disk, directory) for directory in directories}
    for log in logs_on(disk, directories):
        bases, topic_id = bases_of(disk, log.path), _topic_id(disk, log.path)
        if bases and topic_id is not None:
            point = points[log.directory].get(log.partition, 0)
            key, end = (topic_id, int(log.partition.rpartition("-")[2])), _end_of(disk, log.path, bases, point, cached=cached)
            ends[key] = max(ends.get(key, end), end)
    return ends


class LogOnDisk(NamedTuple):
    """A folder that a start takes for a log."""

    directory: str
    path: str
    partition: str
    """Topic and number; its name, but for a copy."""


def logs_on(disk: SimulatedDisk, directories: Collection[str]) -> Iterator[LogOnDisk]:
    """The folders of partitions; and of those that have none in any directory the copies that are whole, which take their places."""
    found = [LogOnDisk(each, f"{each}/{folder}", folder) for each in directories for folder in folders_of(disk, each)]
    yield from found
    names = dict.fromkeys(log.partition for log in found)
    for directory in directories:
        for path in copies_in(disk, directory):
            state, _, partition = _contents_of(disk, f"{path}/{_MOVE_MARK}").decode().partition(" ")
            if state == "whole" and partition not in names:
                yield LogOnDisk(directory, path, partition)


def copies_in(disk: SimulatedDisk, directory: str) -> Iterator[str]:
    """The paths of copies that have not taken the place of a log."""
    return (f"{directory}/{folder}" for folder in disk.names(directory) if folder.endswith(_FUTURE))


def _contents_of(disk: SimulatedDisk, path: str) -> bytes:
    return disk.contents(path) if disk.exists(path) else b""


def _topic_id(disk: SimulatedDisk, path: str) -> bytes | None:
    """The topic's id that a folder carries."""
    lines = _contents_of(disk, f"{path}/partition.metadata").decode().split("\n")
    return urlsafe_b64decode(lines[1].removeprefix("topic_id: ") + "==") if len(lines) > 1 else None


class Place(NamedTuple):
    """A batch on the disk."""

    path: str
    position: int
    size: int


def unsynced_batches(disk: SimulatedDisk, log: LogOnDisk) -> Iterator[Place]:
    """The batches of a log that are not known to be on disk: those after its recovery point, which a start after a crash checks."""
    point = recovery_points(disk, log.directory).get(log.partition, 0)
    for base in bases_of(disk, log.path):
        file = f"{log.path}/{base:020}.log"
        data, position = disk.contents(file), 0
        while position + _BYTES_MIN <= len(data):
            offset, length, *_ = _BATCH.unpack_from(data, position)
            end = position + _LENGTH_FROM + length
            if length < _BYTES_MIN - _LENGTH_FROM or end > len(data):
                break
            if offset >= point:
                yield Place(file, position, end - position)
            position = end


def batches_of(disk: SimulatedDisk, directories: Iterable[str], folder: str) -> Iterator[tuple[int, bytes]]:
    """The whole batches of a partition's log, by base offset."""
    for path in (f"{directory}/{folder}" for directory in directories):
        for base in bases_of(disk, path):
            data, position = disk.contents(f"{path}/{base:020}.log"), 0
            while position + _BYTES_MIN <= len(data):
                offset, length, *_ = _BATCH.unpack_from(data, position)
                end = position + _LENGTH_FROM + length
                yield offset, data[position:end]
                position = end


def folders_of(disk: SimulatedDisk, directory: str) -> Iterator[str]:
    """The folders of partitions."""
    for folder in disk.names(directory):
        topic, _, number = folder.rpartition("-")
        if topic and number.isdigit() and disk.is_directory(f"{directory}/{folder}"):
            yield folder


def bases_of(disk: SimulatedDisk, path: str) -> list[int]:
    """The base offsets of a partition's segments; none where compaction has not ended."""
    names = disk.names(path)
    if any(name.endswith((".swap", ".cleaned")) for name in names):
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit())


def recovery_points(disk: SimulatedDisk, directory: str) -> dict[str, int]:
    """The recovery points of a directory, by folder."""
    points = {}
    for line in _contents_of(disk, f"{directory}/{_RECOVERY_POINTS}").decode().split("\n")[2:]:
        words = line.split()
        if len(words) == 3:
            points[f"{words[0]}-{words[1]}"] = int(words[2])
    return points


def _end_of(disk: SimulatedDisk, path: str, bases: list[int], recovery_point: int, *, cached: bool) -> DiskLogEnd:
    due, latest = bases[0], -1
    for base in bases:
        if base != due and (base < due or due >= recovery_point):
            return DiskLogEnd(due, latest)
        due = max(due, base)
        data = disk.contents(f"{path}/{base:020}.log", cached=cached)
        position = 0
        while position < len(data):
            if position + _BYTES_MIN > len(data):
                return DiskLogEnd(due, latest)
            offset, length, epoch, magic, checksum, _, delta = _BATCH.unpack_from(data, position)
            end = position + _LENGTH_FROM + length
            if magic != 2 or length < _BYTES_MIN - _LENGTH_FROM or end > len(data) or delta < 0:
                return DiskLogEnd(due, latest)
            if crc32c(data[position + _CHECKED_FROM : end]) != checksum:
                return DiskLogEnd(due, latest)
            is_settled = offset + delta < recovery_point
            if offset != due and not (is_settled and offset > due):
                return DiskLogEnd(due, latest)
            if not is_settled and 0 <= epoch < latest:
                return DiskLogEnd(due, latest)
            latest = max(latest, epoch)
            due, position = offset + delta + 1, end
    return DiskLogEnd(due, latest)
