"""Connections to other brokers by their ids, for one purpose."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moldau.broker.peers.connection import PeerConnection
    from moldau.broker.peers.connections import Connect
    from moldau.cluster.snapshot import MetadataSnapshot

    class Services(Protocol):
        """What they use of the broker."""

        @property
        def connect(self) -> Connect:
            """The way to other brokers."""

        @property
        def metadata(self) -> MetadataSnapshot:
            """Which brokers live, and where."""


class ConnectionsByBroker:
    """One connection to each live broker that is asked for; one that has moved, or has ended, loses its connection at the next call."""

    def __init__(self, broker: "Services", purpose: str, in_flight_max: int) -> None:
        self._broker = broker
        self._purpose = purpose
        self._in_flight_max = in_flight_max
        self._connections: dict[int, PeerConnection] = {}

    def to(self, broker_id: int) -> "PeerConnection | None":
        """The connection to a broker; None if it does not live, as far as is known here."""
        live = self._broker.metadata.brokers
        gone = [self._connections.pop(each) for each in list(self._connections) if each not in live]
        for each in gone:  # what was out may ask for a connection
            each.close()
        info = live.get(broker_id)
        if info is None:
            return None
        connection = self._connections.get(broker_id)
        if connection is None or connection.address != info.endpoints[0][1:]:
            if connection is not None:
                connection.close()
            connection = self._connections[broker_id] = self._broker.connect(info, self._purpose, in_flight_max=self._in_flight_max)
        return connection

    def close(self) -> None:
        """The broker stops: requests that are out fail."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()
