"""Bounds how often something is done on a suspicion: a second after the first time, doubled each time, halved by quiet."""

from collections.abc import Hashable

FIRST_MS = 1000
MAX_MS = 60_000
QUIET_MS = 3 * MAX_MS
"""After so long any back-off has become the first one."""


class BackOffs:
    """When what may happen at once, but not often, may happen again. Of each thing that has happened: when, and the back-off after it."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int, int]] = {}

    def may(self, what: Hashable, now_ms: int) -> bool:
        """Whether it may happen now; then it counts as happened."""
        if what not in self._last:
            self._last[what] = now_ms, FIRST_MS
            return True
        last_ms, delay_ms = self._last[what]
        quiet_ms = now_ms - last_ms - delay_ms
        if quiet_ms < 0:
            return False
        while quiet_ms >= delay_ms > FIRST_MS:
            quiet_ms -= delay_ms
            delay_ms = max(delay_ms // 2, FIRST_MS)
        self._last[what] = now_ms, FIRST_MS if quiet_ms >= delay_ms else min(2 * delay_ms, MAX_MS)
        return True

    def forget_old(self, now_ms: int) -> None:
        """Forget what was quiet for so long that it counts as new."""
        self._last = {what: each for what, each in self._last.items() if now_ms - each[0] < QUIET_MS}
