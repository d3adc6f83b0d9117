"""Log lines about the brokers of a mirror's clusters that cannot be reached: which, why, for how long, and when they answer again."""

import logging
from typing import TYPE_CHECKING

from moldau.model.log_throttle import LogThrottle
from moldau.wire.connection import RequestLostError

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers
    from moldau.wire.connection import Address

_LOG = logging.getLogger(__name__)

LOGGED_EACH_S = 60.0
"""A broker that stays away, for one reason."""
LOGGED_MAX = 100
"""Lines in that time, of one cluster."""
_SHOWN = 3


class Reachability:
    """A :class:`moldau.wire.brokers.ConnectionWatch` of one cluster, which it calls `cluster` in its lines."""

    def __init__(self, mirror: str, cluster: str, clock: "Clock") -> None:
        self._mirror = mirror
        self._cluster = cluster
        self._clock = clock
        self._since: dict[Address, float] = {}
        """When the brokers that are away were first found so. Only those that the log has named."""
        self._throttle = LogThrottle(LOGGED_EACH_S, LOGGED_MAX)

    def connected(self, address: "Address") -> None:
        """See the protocol."""
        since_s = self._since.pop(address, None)
        if since_s is not None:
            away_s = self._clock.monotonic() - since_s
            _LOG.warning(
                "broker answers again: mirror=%s cluster=%s broker=%s:%d after_s=%.0f", self._mirror, self._cluster, *address, away_s
            )

    def failed(self, address: "Address", reason: str) -> None:
        """See the protocol."""
        now = self._clock.monotonic()
        if self._throttle.due((address, reason), now):
            away_s = now - self._since.setdefault(address, now)
            _LOG.warning(
                "broker does not answer, trying again: mirror=%s cluster=%s broker=%s:%d reason=%s for_s=%.0f",
                self._mirror,
                self._cluster,
                *address,
                reason,
                away_s,
            )


def is_logged(error: object) -> bool:
    """Whether it is only that a broker cannot be reached, of which the log has a line already."""
    return isinstance(error, RequestLostError) and not error.was_sent


def reason_of(brokers: "Brokers") -> str:
    """Which of a cluster's brokers cannot be reached, and why, the latest first; empty where all can."""
    latest = list(reversed(brokers.unreachable.items()))[:_SHOWN]
    return ", ".join(f"{host}:{port}: {reason}" for (host, port), reason in latest)
