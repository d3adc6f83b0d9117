"""Controlled shutdown: before this broker stops, the controller moves its leaderships away, and takes it out of in-sync sets.

Meanwhile the broker serves as before, so that followers get the last records. What it led it serves no more after that, and for a moment
names the new leaders: a client that it cut off at once would ask another broker, which may not have heard of them, and look again a second
later. It ends in any case: at the latest when the time is over,
also where no controller or no tree is reached (KAFKA-9189). What is left then the controller elects when the registration ends.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.cluster.controller.requests import ShutDownBroker
from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from typing import Protocol

    from moldau.ports.clock import Clock, Timer

    class Ask(Protocol):
        """Has the controller carry out a request, wherever it is."""

        def __call__(self, request: ShutDownBroker, done: Callable[[Any], object], *, timeout_s: float) -> object:
            """See `ClusterMembership.ask`."""


_LOG = logging.getLogger(__name__)


class HandOver:
    """One controlled shutdown; see the module."""

    def __init__(
        self,
        request: ShutDownBroker,
        ask: "Ask",
        clock: "Clock",
        *,
        retries: int,
        back_off_s: float,
        linger_s: float,
        timeout_s: float,
    ) -> None:
        """`retries`: how often the controller is asked again after an answer that leaves something. `linger_s`: how long new leaders are
        named.
        """
        self.is_over = False
        """Whether the broker may stop."""
        self._request = request
        self._ask = ask
        self._clock = clock
        self._retries = retries
        self._back_off_s = back_off_s
        self._linger_s = linger_s
        self._deadline_s = clock.monotonic() + timeout_s
        self._next: Timer | None = None
        self._late = clock.call_later(timeout_s, self._expired)
        self._attempt()

    def _attempt(self) -> None:
        self._ask(self._request, self._answered, timeout_s=self._deadline_s - self._clock.monotonic())

    def _expired(self) -> None:
        _LOG.warning("leaderships not handed over in time; the broker stops: broker=%d", self._request.broker_id)
        self._end()

    def _answered(self, outcome: Any) -> None:
        if self.is_over:
            return
        if outcome == []:
            _LOG.info("leaderships handed over: broker=%d", self._request.broker_id)
            self._late.cancel()
            self._next = self._clock.call_later(self._linger_s, self._end)
            return
        left = outcome.message if isinstance(outcome, PeerError) else ",".join(map(str, outcome[:10]))
        repeats = self._retries > 0 and self._clock.monotonic() + self._back_off_s < self._deadline_s
        then = "it asks again" if repeats else "the broker stops"
        _LOG.warning("leaderships not all handed over; %s: broker=%d left=%s", then, self._request.broker_id, left)
        if repeats:
            self._retries -= 1
            self._next = self._clock.call_later(self._back_off_s, self._attempt)
        else:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._late.cancel()
        if self._next is not None:
            self._next.cancel()
