"""How much one connection to a source asks for at once.

The next Fetch of a partition is sent when the answer to the last one is there, for only then is its offset known. So a connection is
idle for a round trip after each answer, and longer where the network loses segments: from far away answers have to be large. Near by they
need not be, and would only take memory. On a slow link a large answer would not be there before the request times out.

    a full answer came after              what is asked for
    less than LONG_S                      stays; doubles while it is less than at first
    LONG_S to SLOW_S                      doubles, up to the most
    SLOW_S to TOO_SLOW_S                  stays
    more than TOO_SLOW_S, full or not     halves, down to the least; also without an answer
"""

from moldau.mirror.fetched import Limits

LONG_S = 0.1
SLOW_S = 1.0
TOO_SLOW_S = 2.5
PARTITION_BYTES_MIN = 64 * 1024


class FetchWindow:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.partition_bytes = limits.partition_bytes
        """Of one partition in an answer."""

    @property
    def response_bytes(self) -> int:
        """Of all partitions in an answer: no less than that, and less than at first in proportion to it."""
        at_first = self._limits
        fewer = at_first.response_bytes * self.partition_bytes // at_first.partition_bytes
        return max(min(at_first.response_bytes, fewer), self.partition_bytes)

    def answered(self, size: int, seconds: float) -> None:
        """An answer with so many bytes of records came so long after its request."""
        if seconds > TOO_SLOW_S:
            self.lost()
        elif size >= self.partition_bytes // 2 and seconds <= SLOW_S and (seconds >= LONG_S or self._is_small):
            self.partition_bytes = min(2 * self.partition_bytes, max(self._limits.partition_bytes_max, self._limits.partition_bytes))

    def lost(self) -> None:
        """No answer came."""
        self.partition_bytes = max(self.partition_bytes // 2, min(PARTITION_BYTES_MIN, self._limits.partition_bytes))

    @property
    def _is_small(self) -> bool:
        return self.partition_bytes < self._limits.partition_bytes
