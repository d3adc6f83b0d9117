"""When what has ended is started again: soon, and later each time that it ends soon again."""

FIRST_S = 0.5
LONGEST_S = 30.0
CALM_S = 60.0
"""A process that has run for so long is started again as one that has ended for the first time."""


class Backoff:
    """Of one process. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._pause_s = FIRST_S
        self._started_at = 0.0
        self.due_at: float | None = None
        """When it is to be started again; None while it runs."""

    def started(self, now: float) -> None:
        """It runs from now on."""
        self._started_at = now
        self.due_at = None

    def ended(self, now: float) -> float:
        """It has ended; the pause until it is started again."""
        if now - self._started_at >= CALM_S:
            self._pause_s = FIRST_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_S)
        self.due_at = now + pause_s
        return pause_s
