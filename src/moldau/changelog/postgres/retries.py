"""Pauses between the connections of a source that fail, and a line in the log when that begins and when it ends."""

import logging
import threading
import time
from typing import Final

_LOG = logging.getLogger(__name__)

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
LASTS_S: Final = 1.0


class Retries:
    """Pauses between connections that fail, and a line in the log for each time that this begins and ends: it ends when a connection has
    lasted for a while, so that one that is made and lost again and again is one failure.
    """

    def __init__(self, server: str, stop: threading.Event) -> None:
        self._server = server
        self._stop = stop
        self._pause_s = PAUSE_FIRST_S
        self._failing_since: float | None = None
        self._connected_at = 0.0
        self._was_connected = False

    def pause(self, error: Exception) -> None:
        """After this error; it is raised if no connection has succeeded yet."""
        if not self._was_connected:
            raise error
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            _LOG.warning("changelog of PostgreSQL interrupted, connecting again: server=%r reason=%s", self._server, error)
        self._stop.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def connected(self) -> None:
        """A connection was made."""
        self._was_connected, self._connected_at = True, time.monotonic()

    def lasts(self) -> None:
        """It is there still, and has sent all that it had."""
        if self._failing_since is not None and time.monotonic() - self._connected_at > LASTS_S:
            away_s = self._connected_at - self._failing_since
            _LOG.info("changelog of PostgreSQL connected again: server=%r after_s=%.1f", self._server, away_s)
            self._failing_since, self._pause_s = None, PAUSE_FIRST_S
