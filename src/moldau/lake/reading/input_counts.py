"""What is known of the records that a stream has read of an input, by their event times."""

from dataclasses import astuple, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class InputCounts:
    """Counts of rows; times in ms since 1970."""

    rows: int = 0
    ahead: int = 0
    """Records whose time was beyond the bound for the future: the time of the record in the log was taken."""
    without_time: int = 0
    """Records without an event time: the time of the record in the log was taken."""
    undecodable: int = 0
    """Records that are no rows, since their values cannot be read."""
    newest_ms: int | None = None
    """Timestamp of the newest record that was read."""
    late: int = 0
    """Records at or before the watermark by which Spark drops the late ones of their batch."""
    latest_ms: int | None = None
    """How long before that watermark the one was that came latest."""

    def plus(self, other: Self) -> "InputCounts":
        """Of both."""
        return InputCounts(
            self.rows + other.rows,
            self.ahead + other.ahead,
            self.without_time + other.without_time,
            self.undecodable + other.undecodable,
            _greater(self.newest_ms, other.newest_ms),
            self.late + other.late,
            _greater(self.latest_ms, other.latest_ms),
        )

    def to_json(self) -> list[int | None]:
        """The fields in their order."""
        return list(astuple(self))


def _greater(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else max(first, second)
