"""What a handler knows of a request besides its body."""

from collections.abc import Callable

from moldau.cluster.snapshot import Endpoint


def _nothing(_abandoned: Callable[[], object] | None = None) -> None:
    """For requests without later frames to hold."""


class RequestContext:
    """Where a request comes from and how its answer is encoded."""

    __slots__ = ("advertised", "api_key", "api_version", "client_id", "connection", "correlation_id", "hold", "peer")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        peer: tuple[str, int],
        advertised: Endpoint,
        connection: int = 0,
        hold: Callable[[Callable[[], object] | None], object] = _nothing,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer
        """Address of the client."""
        self.advertised = advertised
        """The listener that this client came in by, and where clients of it reach this broker."""
        self.connection = connection
        """Number of the client's connection; one that was made later has a higher number."""
        self.hold = hold
        """Handle no later frame of the connection until this request is answered; for a handler whose answer comes later. What is handed to
        it is called when the connection is lost before.
        """
