"""The sparse index from timestamps to offsets (``docs/formats/time-index.md``).

An entry says: up to this offset, relative to the segment's base, no record is newer than this timestamp, and the batch that ends with
this offset reaches it. Timestamps rise strictly; a sealed segment's last entry holds its largest one.
"""

from struct import Struct

from moldau.log.index_file import IndexFile


class TimeIndex(IndexFile):
    """Entries of int64 timestamp and int32 relative offset, 12 bytes. Do not change."""

    __slots__ = ()

    entry = Struct(">qi")

    def add(self, timestamp: int, offset: int, last_timestamp: int) -> int:
        """Append an entry if it is newer than the last one, which the caller knows. The last timestamp after that."""
        if timestamp <= last_timestamp:
            return last_timestamp
        self.append(timestamp, offset - self.base_offset)
        return timestamp

    def last_entry(self) -> tuple[int, int]:
        """Largest indexed timestamp and the offset that reaches it; ``(-1, base offset)`` in an empty index."""
        last = self.last()
        return (-1, self.base_offset) if last is None else (last[0], self.base_offset + last[1])

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is older than `timestamp`: a search for it may start there."""
        slot = self.search(timestamp - 1, 0) - 1
        return self.base_offset + self[slot][1] if slot >= 0 else self.base_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries that speak of `offset` and later ones."""
        self.keep(self.search(offset - self.base_offset - 1, 1))
