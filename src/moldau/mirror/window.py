"""How much of a partition goes over a connection in one message: in the answer of a source, or in a request to the target.

A partition has one message under way: the next Fetch needs the offset at which the last answer ends, and the next Produce of a copy the
outcome of the last one. So a connection is idle for a round trip after each, and longer where the network loses segments: over a long way
messages have to be large. Near by they need not be, and would only take memory. Over a slow link a large one would not be there before the
request times out.

    a full message was answered after     the size
    less than LONG_S                      stays; doubles while it is less than at first
    LONG_S to SLOW_S                      doubles, up to the most
    SLOW_S to TOO_SLOW_S                  stays
    more than TOO_SLOW_S, full or not     halves, down to the least; also without an answer
"""

LONG_S = 0.1
SLOW_S = 1.0
TOO_SLOW_S = 2.5
BYTES_MIN = 64 * 1024


class Window:
    """See the module."""

    __slots__ = ("_at_first", "_most", "size")

    def __init__(self, at_first: int, most: int) -> None:
        self._at_first = at_first
        self._most = max(at_first, most)
        self.size = at_first

    def answered(self, size: int, seconds: float) -> None:
        """A message with so many bytes of records took so long."""
        if seconds > TOO_SLOW_S:
            self.lost()
        elif size >= self.size // 2 and seconds <= SLOW_S and (seconds >= LONG_S or self.size < self._at_first):
            self.size = min(2 * self.size, self._most)

    def lost(self) -> None:
        """No answer came."""
        self.size = max(self.size // 2, min(BYTES_MIN, self._at_first))
