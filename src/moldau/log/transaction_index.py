"""The index of aborted transactions (``docs/formats/transaction-index.md``): what a reader of committed records has to leave out.

One file per segment, with an entry for each transaction whose abort marker lies in the segment; the transaction itself may begin in an
earlier one. Most segments have none, and then there is no file.

A crash loses more of it than of the other indexes: no single batch shows whether an entry is missing, since the records that a marker ends
depend on all batches before it. So the file is synced with the flush that follows a change. Recovery compares its entries with the batches
of the segments that it reads, unless a checksum covers the whole file.

A transaction that stays open holds the last stable offset of all later entries down, so that none of them ends a search. So the lowest
first offset of every `BLOCK` entries is kept in memory, and a search reads only the blocks that can have something for it.
"""

from array import array
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from moldau.log.cache import SegmentCache
from moldau.log.indexes import EntryFile
from moldau.ports.filesystem import FileSystem, NotRegularError

ABORTED = Struct(">hqqqq")
"""An entry of ``.txnindex``: version, producer id, first and last offset, last stable offset when it ended. Do not change."""
ABORTED_VERSION = 0


BLOCK = 256
"""Entries that a search reads, or skips, together."""
ENTRIES_MAX = 50_000
"""Entries after which the segment is rolled: about 2 MB, read in one piece, and 10 ms for the first search after a start."""


class TransactionIndexEntry(NamedTuple):
    """A transaction that was aborted: whose, its first record, its marker, and the last stable offset once that was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(EntryFile):
    """Entries of :data:`ABORTED`, 34 bytes.

    Invariants: from entry to entry `last_offset` rises, and `last_stable_offset` does not fall. `_lowest` has the lowest first offset of
    each block of the first `_surveyed` entries.
    """

    __slots__ = ("_lowest", "_surveyed", "damaged", "unsynced")

    entry = ABORTED

    def __init__(self, files: FileSystem, cache: SegmentCache, path: str, base_offset: int, *, new: bool = False) -> None:
        super().__init__(files, cache, path, base_offset, new=new)
        self._lowest = array("q")
        self._surveyed = 0
        self.stale = new and files.exists(path)  # without entries there is no file
        self.unsynced = self.stale
        """Whether it has changed since a flush took it on."""
        self.damaged = False
        """Whether the file held something else than entries in order, so that some may be missing. Known once `stored` is."""

    def __getitem__(self, slot: int) -> TransactionIndexEntry:
        at = slot * self.entry.size
        stored = self.stored
        if at >= stored:
            _, *fields = self.entry.unpack_from(self.tail, at - stored)
        else:
            _, *fields = self.entry.unpack_from(self._cache.index(self.path, stored), at)
        return TransactionIndexEntry(*fields)

    def __iter__(self) -> Iterator[TransactionIndexEntry]:
        return (self[slot] for slot in range(len(self)))

    def add(self, aborted: TransactionIndexEntry) -> None:
        """Add an entry. Its marker lies after those of all others."""
        self.tail += self.entry.pack(ABORTED_VERSION, *aborted)
        self.unsynced = True

    def overlapping(self, first_offset: int, end_offset: int) -> tuple[list[TransactionIndexEntry], bool]:
        """Those with a record, or their marker, from `first_offset` to before `end_offset`; whether no later index can have more."""
        self._survey()
        found: list[TransactionIndexEntry] = []
        slot, length = self._slot_of(first_offset), len(self)
        while slot < length:
            following = min(slot - slot % BLOCK + BLOCK, length)
            if self._lowest[slot // BLOCK] < end_offset:
                for aborted in self._between(slot, following):
                    if aborted.first_offset < end_offset:
                        found.append(aborted)
                    if aborted.last_stable_offset >= end_offset:
                        return found, True
            elif self[following - 1].last_stable_offset >= end_offset:
                return found, True
            slot = following
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of markers at `offset` and after it."""
        kept = self._slot_of(offset)
        if kept < len(self):
            self.keep(kept)
            self.unsynced = True

    def keep(self, entries: int) -> None:
        """As for other indexes."""
        super().keep(entries)
        self._forget_after(entries)

    def replace(self, entries: Sequence[TransactionIndexEntry]) -> None:
        """Hold these and no others, in the file as well. StorageError: nothing has changed."""
        data = b"".join([self.entry.pack(ABORTED_VERSION, *aborted) for aborted in entries])
        self._cache.forget(self.path)
        if data:
            self._files.write_atomically(self.path, data)
        elif self._files.exists(self.path):
            self._files.remove(self.path)
        self.tail = bytearray()
        self._stored = len(data)
        self._forget_after(0)
        self.stale = self.damaged = self.unsynced = False

    def store(self) -> bool:
        """As for other indexes; a file that would be empty is removed. A damaged one is left as it is, still to be detected."""
        if (self.tail or self.stale) and self.stored >= 0 and self.damaged:
            return False
        if self.tail or not self.stale or self.stored:
            return super().store()
        if self._files.exists(self.path):
            self._files.remove(self.path)
        self.stale = False
        return True

    def _slot_of(self, offset: int) -> int:
        """How many entries have their marker before `offset`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _between(self, slot: int, end: int) -> Iterator[TransactionIndexEntry]:
        """The entries from `slot` to before `end`."""
        size, stored = self.entry.size, self.stored
        data = b""
        if slot * size < stored:
            data = self._cache.index(self.path, stored)[slot * size : min(end * size, stored)]
        if end * size > stored:
            data += self.tail[max(slot * size - stored, 0) : end * size - stored]
        for _, *fields in self.entry.iter_unpack(data):
            yield TransactionIndexEntry(*fields)

    def _survey(self) -> None:
        """Bring `_lowest` up to the last entry."""
        lowest, length = self._lowest, len(self)
        while self._surveyed < length:
            following = min(self._surveyed - self._surveyed % BLOCK + BLOCK, length)
            low = min(aborted.first_offset for aborted in self._between(self._surveyed, following))
            if self._surveyed % BLOCK:
                lowest[-1] = min(lowest[-1], low)
            else:
                lowest.append(low)
            self._surveyed = following

    def _forget_after(self, entries: int) -> None:
        """Entries after the first `entries` were replaced or removed."""
        if entries < self._surveyed:
            blocks = entries // BLOCK
            del self._lowest[blocks:]
            self._surveyed = blocks * BLOCK

    def _measure(self) -> int:
        try:
            data = self._files.read(self.path)
        except FileNotFoundError:
            return 0
        except NotRegularError:
            self.damaged = True
            return 0
        size, last = 0, self.base_offset - 1
        whole = len(data) - len(data) % self.entry.size
        for version, _, first_offset, last_offset, _ in self.entry.iter_unpack(memoryview(data)[:whole]):
            if version != ABORTED_VERSION or not 0 <= first_offset <= last_offset or last_offset <= last:
                break
            size, last = size + self.entry.size, last_offset
        self.damaged = size < len(data)
        return size
