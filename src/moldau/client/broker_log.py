"""Librdkafka's log lines for `logging`: a broker that is away makes one line, not twenty a second.

Lines about the connection to a broker count as one outage of that broker until it has answered again, or until nothing has been heard of
it for a minute. Every other line passes; one that repeats itself does so once a minute.
"""

import logging
import re
import time
from collections.abc import Callable

log = logging.getLogger("moldau.client")

QUIET_S = 60.0
STILL_AWAY_S = 0.5
"""Messages handed out so soon after a line may have been fetched before the outage, and prove nothing."""
RETRIED = "; the connection is retried"
"""End of the line of a broker that is away. It promises nothing for a message or an event: a call may fail meanwhile."""
_AWAY = re.compile(r"Connect to \S+ failed: |Failed to resolve|Connection setup timed out|Disconnected|timed out|brokers are down")
_BROKER = re.compile(r"([^\s/#]+:\d+)(?:/\S+)?: ")
_DETAILS = re.compile(r" ?\((?:after|while|on) [^)]*\)|\[thrd:[^]]*\]:? ?|\b\d+(?:\.\d+)?\s?ms\b")


class BrokerLog:
    """A logger for librdkafka, of the client `name`; lines go to the logger `to`."""

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic, to: logging.Logger = log) -> None:
        self._name = name
        self._monotonic = monotonic
        self._to = to
        self._away: dict[str, tuple[float, float]] = {}
        """For each broker that is away: since when, and when that was logged last."""
        self._heard_at = 0.0
        self._said: dict[str, float] = {}

    def log(self, level: int, message: str, *arguments: object) -> None:
        """One line of librdkafka's."""
        if level < logging.WARNING:
            self._to.log(level, message, *arguments)
            return
        text = str(arguments[-1]) if arguments else message
        now = self._monotonic()
        if _AWAY.search(text) is None:
            self._pass(level, message, arguments, _DETAILS.sub("", text), now)
            return
        self._heard_at = now
        found = _BROKER.search(_DETAILS.sub("", text))
        if found is None:  # "1/1 brokers are down": each of them has its own line
            self._to.debug(message, *arguments)
            return
        since, last = self._away.get(found[1], (now, now - QUIET_S))
        if now - last >= QUIET_S:
            since = now
            reason = _DETAILS.sub("", text)[found.end() :].rpartition("failed: ")[2].strip().rstrip(":")
            self._to.warning("%s: broker %s is away: %s%s", self._name, found[1], reason, RETRIED)
        else:
            self._to.debug(message, *arguments)
        self._away[found[1]] = (since, now)

    def _pass(self, level: int, message: str, arguments: tuple[object, ...], key: str, now: float) -> None:
        if now - self._said.get(key, now - QUIET_S) >= QUIET_S:
            self._said[key] = now
            self._to.log(level, message, *arguments)
        else:
            self._to.debug(message, *arguments)

    @property
    def any_away(self) -> bool:
        """Whether a broker is away, by the lines so far."""
        return bool(self._away)

    def answered(self) -> None:
        """A broker has answered a request."""
        if not self._away:
            return
        now = self._monotonic()
        if now - self._heard_at >= STILL_AWAY_S:
            since = min(since for since, _ in self._away.values())
            self._to.info("%s: answered again after %.1f s", self._name, now - since)
            self._away.clear()
