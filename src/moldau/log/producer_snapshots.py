"""Producer state as a file, so that opening a log need not read it from the start (``docs/formats/producer-snapshot.md``).

The file ``OFFSET.snapshot`` describes the producers as they were when the log ended at OFFSET. One is written when a segment is rolled
(OFFSET is then the new segment's base), when a log is closed, and now and then between. It is only ever a shortcut: one that is
missing or damaged is passed over for an older one and the batches after that.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from heapq import nlargest
from itertools import starmap
from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from moldau.log import names
from moldau.log.producer_entry import ProducerEntry, StoredBatch
from moldau.model.errors import MoldauError, StorageError
from moldau.ports.filesystem import FileSystem

VERSION = 1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_START = 6
_SEQUENCE_MASK = 2**31 - 1


class BadSnapshotError(MoldauError):
    """Bytes that are no producer snapshot."""


class SnapshotEntry(NamedTuple):
    """One producer as the file has it; -1 means none. `offset_delta` is last minus first offset of the last batch."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_start: int


def encode_snapshot(entries: dict[int, ProducerEntry]) -> bytes:
    """The file's bytes. Of a producer's batches it keeps the last."""
    packed = bytearray(_HEAD.size)
    for producer_id, entry in entries.items():
        last_sequence, last_offset, delta = -1, -1, 0
        if entry.batches:
            batch = entry.batches[-1]
            last_sequence, last_offset, delta = batch.last_sequence, batch.last_offset, batch.last_offset - batch.first_offset
        packed += _ENTRY.pack(
            producer_id, entry.epoch, last_sequence, last_offset, delta, entry.timestamp, entry.coordinator_epoch, entry.transaction_start
        )
    _HEAD.pack_into(packed, 0, VERSION, 0, len(entries))
    _HEAD.pack_into(packed, 0, VERSION, crc32c(memoryview(packed)[_CRC_START:]), len(entries))
    return bytes(packed)


def decode_snapshot(data: bytes) -> "SnapshotEntries":
    """The producers in a file's bytes, made one at a time whenever it is walked. BadSnapshotError."""
    if len(data) < _HEAD.size:
        raise BadSnapshotError(f"{len(data)} bytes are no producer snapshot")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise BadSnapshotError(f"producer snapshot of unknown version {version}")
    if crc32c(memoryview(data)[_CRC_START:]) != checksum:
        raise BadSnapshotError("checksum of the producer snapshot does not match")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise BadSnapshotError(f"{len(data)} bytes for {count} producers")
    return SnapshotEntries(data)


class SnapshotEntries:
    """The entries of a file that was checked: a file of many producers is not made into as many objects at once."""

    def __init__(self, data: bytes) -> None:
        self._entries = memoryview(data)[_HEAD.size :]

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    def __iter__(self) -> Iterator[SnapshotEntry]:
        return starmap(SnapshotEntry, _ENTRY.iter_unpack(self._entries))


def producers_of(snapshot: SnapshotEntries, now_ms: int, most: int = sys.maxsize) -> dict[int, ProducerEntry]:
    """Producer state as of a snapshot, each producer taken as seen at `now_ms`.

    Of those without a transaction, if they are more than `most`, the ones with the newest batches.
    """
    entries: dict[int, ProducerEntry] = {}
    oldest, left = _timestamp_of_the_newest(snapshot, most), most
    for stored in snapshot:
        if stored.transaction_start < 0:
            if stored.timestamp < oldest or not left:
                continue
            left -= 1
        entry = entries[stored.producer_id] = ProducerEntry(stored.epoch, now_ms)
        entry.timestamp = stored.timestamp
        entry.coordinator_epoch = stored.coordinator_epoch
        entry.transaction_start = stored.transaction_start
        if stored.last_offset >= 0:
            first_sequence = (stored.last_sequence - stored.offset_delta) & _SEQUENCE_MASK
            first_offset = stored.last_offset - stored.offset_delta
            entry.batches = (StoredBatch(first_sequence, stored.last_sequence, first_offset, stored.last_offset, stored.timestamp),)
            entry.next_sequence = (stored.last_sequence + 1) & _SEQUENCE_MASK
    return entries


def _timestamp_of_the_newest(snapshot: SnapshotEntries, most: int) -> int:
    """The oldest timestamp among the `most` newest without a transaction; before all of them where there are no more than that."""
    if len(snapshot) <= most or sum(stored.transaction_start < 0 for stored in snapshot) <= most:
        return -sys.maxsize
    return nlargest(most, (stored.timestamp for stored in snapshot if stored.transaction_start < 0))[-1]


class Snapshots:
    """Invariant: `offsets` are those of the snapshot files in the folder, rising."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        """Path of the snapshot at `offset`."""
        return f"{self._directory}/{names.file_name(offset, names.SNAPSHOT)}"

    def write(self, offset: int, entries: dict[int, ProducerEntry]) -> str:
        """Write the snapshot at `offset` (into the page cache); its path. StorageError: a part of it is removed, if possible."""
        path = self.path(offset)
        data = encode_snapshot(entries)
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            while data:
                data = data[file.append([data]) :]
        except StorageError:
            with suppress(StorageError):
                self._files.remove(path)
            raise
        finally:
            file.release()
        self.offsets.append(offset)
        self.offsets.sort()
        return path

    def load_newest(self, until: int, now_ms: int, most: int) -> tuple[int, dict[int, ProducerEntry]] | None:
        """Offset and producers of the newest snapshot not after `until` that can be read; damaged ones are removed.

        Of those without a transaction, if they are more than `most`, the ones with the newest batches.
        """
        for offset in reversed([offset for offset in self.offsets if offset <= until]):
            try:
                return offset, producers_of(decode_snapshot(self._files.read(self.path(offset))), now_ms, most)
            except (BadSnapshotError, FileNotFoundError):
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        """Remove one."""
        self._files.remove(self.path(offset))
        self.offsets.remove(offset)

    def remove_after(self, offset: int) -> None:
        """Remove those that speak of records which were cut off."""
        for late in [other for other in self.offsets if other > offset]:
            self.remove(late)

    def remove_between(self, bases: list[int], offset: int) -> None:
        """Remove those before `offset` that stand at no segment's base: a newer one has taken their place."""
        kept = set(bases)
        for stray in [other for other in self.offsets if other < offset and other not in kept]:
            self.remove(stray)

    def forget(self, offset: int) -> None:
        """The file went with its segment."""
        if offset in self.offsets:
            self.offsets.remove(offset)
