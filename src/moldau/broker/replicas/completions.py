"""Appends that have reached their levels, or failed, until they are answered: each is called once, in the order in which it opened.

What they answer is sent afterwards, at once for each connection: one fetch of a follower may open the appends of many requests.
"""

import logging
from collections import deque
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Completions:
    """See the module."""

    __slots__ = ("_flushes", "opened")

    def __init__(self) -> None:
        self.opened: deque[Callable[[], object]] = deque()
        """What is to be called."""
        self._flushes: dict[Callable[[], object], None] | None = None
        """What sends the answers, while completions are called."""

    def flush_later(self, flush: Callable[[], object]) -> bool:
        """Call `flush`, once, after the completions that are being called; False if none are."""
        if self._flushes is None:
            return False
        self._flushes[flush] = None
        return True

    def run(self, most: int) -> int:
        """Call `most` of them, and then what sends their answers; how many more may be called."""
        opened, self._flushes = self.opened, {}
        while opened and most:
            most -= 1
            try:
                opened.popleft()()
            except Exception:
                _LOG.exception("append completed with a bug")
        flushes, self._flushes = self._flushes, None
        for flush in flushes:
            flush()
        return most
