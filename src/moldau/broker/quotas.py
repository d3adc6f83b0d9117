"""Quotas of clients: after each request they say for how long the client has to wait. There are none yet.

As in Kafka since 2.0 the response is sent at once, with the time in it, and no later request of the connection is handled before that
time is over (KIP-219). So a request that is handled needs no permission, and nothing is asked before it.

Requests on the shortest way of Produce are counted once for each read; their responses do not have the time in them, but the connection
is muted as for others, and its next Produce request goes the general way.
"""

from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.security import Channel

if TYPE_CHECKING:

    class Quotas(Protocol):
        """Keeps the rate of each client."""

        def throttle_ms(self, channel: Channel, api_key: int, requests: int) -> int:
            """Count answered requests of one API; the milliseconds for which their client is to be muted, 0 within its quota."""


class NoQuotas:
    """Every client may ask for as much as it can."""

    __slots__ = ()

    def throttle_ms(self, channel: Channel, api_key: int, requests: int) -> int:
        """0."""
        return 0


NO_QUOTAS: Final = NoQuotas()
"""The only one: on the shortest way it is not even asked."""
