"""The other end of a connection, as handlers see it."""

from typing import Final

from moldau.cluster.snapshot import Endpoint

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, as Kafka names it."""


class Channel:
    """One client's connection: where it comes from, and as whom. It does not change."""

    __slots__ = ("advertised", "listener", "number", "peer", "principal")

    def __init__(self, listener: str, peer: tuple[str, int], advertised: Endpoint, number: int = 0, principal: str = ANONYMOUS) -> None:
        self.listener = listener
        """Name of the listener that the client connected to."""
        self.peer = peer
        """Address of the client."""
        self.advertised = advertised
        """Where clients of this listener reach this broker."""
        self.number = number
        """Number of the connection; one that was made later has a higher number."""
        self.principal = principal
