"""Quotas of clients: after each request they say for how long the client has to wait. There are none yet.

As in Kafka since 2.0 the response is sent at once, with the time in it, and no later request of the connection is handled before that
time is over (KIP-219). So a request that is handled needs no permission, and nothing is asked before it.
"""

from typing import Protocol

from moldau.broker.request import Request


class Quotas(Protocol):
    """Keeps the rate of each client."""

    def throttle_ms(self, request: Request) -> int:
        """Count an answered request; the milliseconds for which its client is to be muted, 0 within its quota."""


class NoQuotas:
    """Every client may ask for as much as it can."""

    __slots__ = ()

    def throttle_ms(self, request: Request) -> int:
        """0."""
        return 0
