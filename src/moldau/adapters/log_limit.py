"""A log line at most once in a while, with the number of those left out."""

import logging


class LogLimit:
    """Lets one event in `interval_s` seconds through to the log."""

    def __init__(self, logger: logging.Logger, interval_s: float = 1.0) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._next = float("-inf")
        self._left_out = 0

    def warning(self, now: float, event: str, *fields: object) -> None:
        """Log `event` with its `fields`, if the last line is long enough ago; `now` in seconds of any clock that never goes back."""
        if now < self._next:
            self._left_out += 1
            return
        self._next = now + self._interval_s
        self._logger.warning(event + " left_out=%d", *fields, self._left_out)
        self._left_out = 0
