"""The sparse index from offsets to file positions (``docs/formats/offset-index.md``).

An entry says: the batch that starts at this position of the segment file ends with this offset, relative to the segment's base.
One is added for about every `index.interval.bytes` of log.
"""

from struct import Struct

from moldau.log.index_file import IndexFile


class OffsetIndex(IndexFile):
    """Entries of int32 relative offset and int32 position, 8 bytes. Do not change."""

    __slots__ = ()

    entry = Struct(">ii")

    def position_before(self, offset: int) -> int:
        """Where a walk that looks for `offset` starts: never after the batch that holds it."""
        slot = self.search(offset - self.base_offset, 0) - 1
        return self[slot][1] if slot >= 0 else 0

    def last_position_until(self, position: int) -> int:
        """The last indexed position, thus start of a batch, that is not after `position`; 0 if there is none."""
        slot = self.search(position, 1) - 1
        return self[slot][1] if slot >= 0 else 0

    def truncate_to(self, position: int) -> None:
        """Drop the entries of batches that start at `position` or after it."""
        self.keep(self.search(position - 1, 1))
