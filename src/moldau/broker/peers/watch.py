"""Whether another broker answers: it is asked again and again, by a request that needs nothing of it (ApiVersions).

It is suspected

* at once when it refuses a connection: its process has ended, or does not listen. A connection that is closed has it asked at once, so
  that the end of a process is seen when it happens;
* when it leaves a request unanswered for `suspicion.timeout.ms`, as a process that is stopped, or a host that is cut off;
* at the second fault of another kind in a row.

It is not suspected any more when it answers. A suspicion proves nothing: what is done on one must be right also when it is wrong.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.broker.peers.connection import PeerCallError, PeerConnection
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.broker.peers.connections import Connect
    from moldau.cluster.snapshot import BrokerInfo
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

ASKED_SHARE = 1 / 3
"""It is asked again after this share of `suspicion.timeout.ms`."""
FAULTS = 2
_VERSION = VersionRange(0, 2)
"""The versions that carry nothing."""


def ask(connection: PeerConnection, done: Callable[[Any], object], timeout_s: float) -> None:
    """Whether the other side answers: the one request that needs nothing of it."""
    connection.request(ApiKey.API_VERSIONS, ApiVersionsRequest(), done, timeout_s=timeout_s, version=_VERSION)


class PeerWatch:
    """Watches one broker; see the module."""

    def __init__(
        self,
        connect: "Connect",
        clock: "Clock",
        broker: "BrokerInfo",
        *,
        timeout_s: Callable[[], float],
        changed: Callable[[bool], object],
        grace_s: float = 0.0,
        is_suspected: bool = False,
    ) -> None:
        """`changed` is called when suspicion begins (True) and ends. Within `grace_s` none begins before the first answer: the broker may
        be about to listen. `is_suspected`: whether it is suspected already.
        """
        self.broker = broker
        self._clock = clock
        self._timeout_s = timeout_s
        self._changed = changed
        self.is_suspected = is_suspected
        """Whether it does not answer."""
        self._faults = 0
        """In a row."""
        self._grace_until_s = clock.monotonic() + grace_s
        self._late_at_s = 0.0
        """When the request that is out is late."""
        self._is_out = False
        self._is_closed = False
        self._timer: Timer | None = None
        self._connection = connect(broker, "watch")
        self._connection.on_idle_lost = self._ask
        self._ask()

    def close(self) -> None:
        """Watch it no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._connection.close()

    def _ask(self) -> None:
        if self._is_closed or self._is_out:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_out = True
        timeout_s = self._timeout_s()
        self._late_at_s = self._clock.monotonic() + timeout_s
        ask(self._connection, self._answered, timeout_s)

    def _answered(self, outcome: Any) -> None:
        self._is_out = False
        if self._is_closed:
            return
        delay_s = self._timeout_s() * ASKED_SHARE
        if isinstance(outcome, PeerCallError):
            self._failed(outcome)
            if not self.is_suspected:
                delay_s = 0.0
        else:
            self._faults = 0
            self._grace_until_s = 0.0
            self._suspect(False, "it answers")
        self._timer = self._clock.call_later(delay_s, self._ask)

    def _failed(self, error: PeerCallError) -> None:
        self._faults += 1
        now_s = self._clock.monotonic()
        if (error.is_refused or now_s >= self._late_at_s or self._faults >= FAULTS) and now_s >= self._grace_until_s:
            self._suspect(True, error)

    def _suspect(self, is_suspected: bool, reason: object) -> None:
        if is_suspected != self.is_suspected:
            self.is_suspected = is_suspected
            text = "broker is suspected: broker=%d reason=%s" if is_suspected else "broker is suspected no more: broker=%d reason=%s"
            _LOG.warning(text, self.broker.broker_id, reason)
            self._changed(is_suspected)
