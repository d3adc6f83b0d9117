"""What clients change in the cluster, one line in the log each: what was changed, from which address, by which client id.

    topic created: topic=orders partitions=3 peer=10.0.0.7:50312 client=rdkafka

A request may change thousands of topics, so no more than `LINES_MAX` lines are written in `WINDOW_S`; a line says how many were left out.
"""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.request import Request
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

LINES_MAX = 200
WINDOW_S = 10.0


class AdminLog:
    """See the module."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._since = float("-inf")
        self._lines = 0
        self._left_out = 0

    def note(self, request: "Request", event: str, **fields: object) -> None:
        """`event` has happened, to what the fields say."""
        now = self._clock.monotonic()
        if now - self._since >= WINDOW_S:
            self._since, self._lines = now, 0
        if self._lines >= LINES_MAX:
            if not self._left_out:
                self._clock.call_later(self._since + WINDOW_S - now, self._summarise)
            self._left_out += 1
            return
        self._lines += 1
        template = "".join(f" {name}=%s" for name in fields)
        _LOG.info(f"{event}:{template} peer=%s:%d client=%s", *fields.values(), *request.channel.peer, request.client_id or "none")

    def _summarise(self) -> None:
        left_out, self._left_out = self._left_out, 0
        _LOG.info("changes by clients not shown: count=%d in_seconds=%d", left_out, WINDOW_S)
