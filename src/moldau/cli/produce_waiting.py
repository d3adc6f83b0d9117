"""What ``moldau produce`` says while brokers acknowledge nothing: that it waits, for what, until when; and that it goes on.

librdkafka tries again whatever may pass (a broker that is away, a full disk, too few replicas in sync) until a delivery's time is over, and
says nothing of the brokers' answers meanwhile. Of connections it does: `moldau.client.broker_log` makes one line of each outage, and the
last of these is told as the reason.

Looked at only where the producer waits anyway, for room in its queue or for the end.
"""

import logging
import time
from collections.abc import Callable

from moldau.cli.output import counted
from moldau.client.broker_log import RETRIED, BrokerLog

TELL_AFTER_S = 4.0
TELL_AGAIN_S = 30.0
UNKNOWN_REASON = "the brokers answer with an error that may pass (a full disk, too few replicas in sync), or not at all: see their logs"


class Waiting:
    """One stretch without acknowledgements after the other. `where` is what is sent to; a delivery may take `timeout_s`."""

    def __init__(self, where: str, timeout_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._where = where
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._heard = _Heard()
        lines = logging.Logger("moldau produce")
        lines.addHandler(self._heard)
        self.logger = BrokerLog("producer", monotonic, lines)
        """For librdkafka."""
        self._acknowledged = -1
        self._since = 0.0
        self._told_at: float | None = None

    def look(self, acknowledged: int, waiting: int) -> str | None:
        """What is to be said now, if anything: so many records are acknowledged so far, and so many wait to be.

        librdkafka counts its log lines among what waits, so a count may be too low for a moment.
        """
        now = self._monotonic()
        acknowledged = max(acknowledged, 0)
        if acknowledged > self._acknowledged:
            told, lasted_s = self._told_at is not None, now - self._since
            self._acknowledged, self._since, self._told_at = acknowledged, now, None
            self.logger.answered()
            if not self.logger.any_away:  # else these came before it went away, and it is not told again
                self._heard.reason = ""
            return f"{self._where}: acknowledged again after {lasted_s:.0f} s, going on" if told else None
        due = self._since + TELL_AFTER_S if self._told_at is None else self._told_at + TELL_AGAIN_S
        if not waiting or now < due:
            return None
        self._told_at = now
        records = f"{counted(waiting, 'record')} wait{'s' if waiting == 1 else ''}"
        limit = f"each is tried again for up to {self._timeout_s:g} s (--timeout)"
        reason = self._heard.reason or UNKNOWN_REASON
        return f"{self._where}: nothing acknowledged for {now - self._since:.0f} s, {records}; {limit}; {reason}"


class _Heard(logging.Handler):
    """Keeps the last warning as the reason, until there is progress."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        """A line of librdkafka's."""
        self.reason = record.getMessage().removeprefix("producer: ").removesuffix(RETRIED)
