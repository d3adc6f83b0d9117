"""Which transactions of a partition hold its last stable offset down.

A transaction holds it at its first record while it is ongoing, and after that until its marker lies before the high watermark: a marker
that could still be lost decides nothing. Kafka keeps the two kinds apart; here they are one dictionary, in the order of their first
offsets, so the first that still holds is what counts::

    first offset    marker
             120        -1      ongoing
             131       140      ended; holds until the high watermark has passed 140
             133        -1      ongoing

Those that hold no more are dropped from the front when somebody asks, and all at once when they have become the most.
"""

ONGOING = -1
SWEEP_MIN = 64
"""So many may be there that hold no more."""


class UnsettledTransactions:
    """Invariant: the keys of `unsettled` rise."""

    __slots__ = ("_sweep_at", "unsettled")

    def __init__(self) -> None:
        self.unsettled: dict[int, int] = {}
        """By first offset where the marker is, `ONGOING` without one. Always the same object, so that it can be asked directly."""
        self._sweep_at = SWEEP_MIN

    def begin(self, first_offset: int) -> None:
        """A transaction begins at the end of the log."""
        self.unsettled[first_offset] = ONGOING

    def end(self, first_offset: int, marker_offset: int) -> None:
        """One ends, with a marker that is about to be written there."""
        self.unsettled[first_offset] = marker_offset

    def first_ongoing(self) -> int | None:
        """The first record of the oldest transaction that has no marker."""
        return next((first for first, marker in self.unsettled.items() if marker == ONGOING), None)

    def forget(self, first_offset: int) -> None:
        """It never began."""
        del self.unsettled[first_offset]

    def resume(self, first_offset: int) -> None:
        """It never ended."""
        self.unsettled[first_offset] = ONGOING

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first record that is not decided, or whose decision is not safe."""
        unsettled = self.unsettled
        if len(unsettled) > self._sweep_at:
            for first in [first for first, marker in unsettled.items() if ONGOING < marker < high_watermark]:
                del unsettled[first]
            self._sweep_at = SWEEP_MIN + 2 * len(unsettled)
        while unsettled:
            first, marker = next(iter(unsettled.items()))
            if not ONGOING < marker < high_watermark:
                return first
            del unsettled[first]
        return None

    def restart(self, first_offsets: list[int]) -> None:
        """These are ongoing and no others."""
        self.unsettled.clear()
        self.unsettled.update(dict.fromkeys(sorted(first_offsets), ONGOING))
