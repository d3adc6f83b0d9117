"""Makes connections to other brokers, each with the name of its purpose."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.peers.connection import FRAME_BYTES_MAX, PeerConnection

if TYPE_CHECKING:
    from typing import Protocol

    from moldau.cluster.snapshot import BrokerInfo
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network

    class Connect(Protocol):
        """Makes connections to brokers."""

        def __call__(
            self, broker: "BrokerInfo", purpose: str, *, in_flight_max: int = 1, frame_bytes_max: int | None = None
        ) -> PeerConnection:
            """See `PeerConnections.connect`."""


class PeerConnections:
    """The network as one broker uses it."""

    def __init__(self, broker_id: int, network: "Network", clock: "Clock", random_bytes: Callable[[int], bytes]) -> None:
        self._broker_id = broker_id
        self._network = network
        self._clock = clock
        self._random_bytes = random_bytes

    def connect(self, broker: "BrokerInfo", purpose: str, *, in_flight_max: int = 1, frame_bytes_max: int | None = None) -> PeerConnection:
        """A connection to a broker, by the listener that brokers use; its client id is ``broker-ID-PURPOSE``."""
        _, host, port = broker.endpoints[0]
        return PeerConnection(
            self._network,
            self._clock,
            (host, port),
            f"broker-{self._broker_id}-{purpose}",
            in_flight_max=in_flight_max,
            random_bytes=self._random_bytes,
            frame_bytes_max=FRAME_BYTES_MAX if frame_bytes_max is None else frame_bytes_max,
        )
