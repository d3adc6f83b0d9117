"""The offsets of a log that several of its parts read and move."""


class LogOffsets:
    """Invariants: start <= high watermark <= log end; flushed <= log end."""

    __slots__ = ("flushed_offset", "high_watermark", "log_end_offset", "start_offset")

    def __init__(self, start_offset: int, flushed_offset: int, log_end_offset: int) -> None:
        self.start_offset = start_offset
        self.flushed_offset = flushed_offset
        """Everything before it is on disk."""
        self.log_end_offset = log_end_offset
        """After the last record that is written."""
        self.high_watermark = log_end_offset
        """Up to where consumers may read."""

    def copy(self) -> "LogOffsets":
        """The offsets as they are now, on their own."""
        copied = LogOffsets(self.start_offset, self.flushed_offset, self.log_end_offset)
        copied.high_watermark = self.high_watermark
        return copied

    def advance_high_watermark(self, offset: int) -> bool:
        """Let consumers read up to `offset`, as far as that is written; never back. Whether more may be read now."""
        end_offset = self.log_end_offset
        if offset > end_offset:
            offset = end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def restore_high_watermark(self, offset: int) -> None:
        """The log was opened and nothing has been read: consumers may read up to `offset`, as far as that is in the log."""
        self.high_watermark = max(self.start_offset, min(offset, self.log_end_offset))

    def move_to(self, offset: int) -> None:
        """The log is empty and starts at `offset`."""
        self.start_offset = self.high_watermark = offset
        self.move_end(offset)

    def move_end(self, offset: int) -> None:
        """The log ends at `offset`, which is before its former end or where it starts now."""
        self.log_end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
