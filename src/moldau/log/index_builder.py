"""Adding index entries for batches that are in a segment already, on top of the entries that its indexes hold."""

from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex
from moldau.protocol.records.header import BatchHeader


class IndexBuilder:
    """To be shown every batch from the last indexed one on. The rules are those of `SegmentAppender.index`."""

    __slots__ = ("_index", "_indexed_timestamp", "_interval", "_time_index", "indexed_at", "newest", "reached")

    def __init__(self, index: OffsetIndex, time_index: TimeIndex, interval: int) -> None:
        self._index = index
        self._time_index = time_index
        self._interval = interval
        last = index.last()
        self.indexed_at = last[1] if last is not None else 0
        """Position of the last batch that has an entry; 0 where none has."""
        self.newest, self.reached = time_index.last_entry()
        self._indexed_timestamp = self.newest

    def add(self, position: int, header: BatchHeader) -> None:
        """Note the batch at `position`. One that compaction has emptied has no record of its time."""
        if header.max_timestamp > self.newest and header.record_count:
            self.newest, self.reached = header.max_timestamp, header.last_offset
        if position - self.indexed_at > self._interval:
            self._index.append(header.last_offset - self._index.base_offset, position)
            self._indexed_timestamp = self._time_index.add(self.newest, self.reached, self._indexed_timestamp)
            self.indexed_at = position

    def finish(self) -> None:
        """The batches end here: the time index gets the largest timestamp."""
        self._indexed_timestamp = self._time_index.add(self.newest, self.reached, self._indexed_timestamp)
