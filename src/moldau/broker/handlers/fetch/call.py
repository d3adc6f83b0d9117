"""What a Fetch request comes with besides its body, and what Fetch uses of the broker."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from moldau.broker.admission.admission import Admission
    from moldau.broker.handlers.fetch.sessions import FetchSessions
    from moldau.broker.handlers.services import ConfigServices, Guards, MetadataServices, PartitionServices
    from moldau.broker.metrics.counters import Counters
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.replicas.purgatory import Purgatory
    from moldau.broker.request import RequestSource
    from moldau.ports.clock import Clock

    class Services(ConfigServices, MetadataServices, PartitionServices, Protocol):
        """What Fetch uses of the broker."""

        @property
        def admission(self) -> "Admission":
            """Bounds of requests, and turns for long ones."""

        @property
        def clock(self) -> "Clock":
            """Its time."""

        @property
        def counters(self) -> "Counters":
            """What is counted of requests."""

        @property
        def fetch_sessions(self) -> "FetchSessions":
            """The sessions of clients; loaded when first asked for."""

        @property
        def purgatory(self) -> "Purgatory":
            """Fetches that wait."""

        @property
        def pipeline(self) -> Guards:
            """Authoriser and quotas."""

        @property
        def replicas(self) -> "ReplicaManager":
            """Progress of followers, and the permit epoch."""


class ReadPermit:
    """Permission of a connection's client to read the topic that it read last, while the permit epoch is the same.

    Invariant: `partitions` are those of a topic that is led here, by name or by id, or None.
    """

    __slots__ = ("epoch", "partitions")

    def __init__(self) -> None:
        self.epoch = -1
        self.partitions: Mapping[int, HostedPartition] | None = None


class FetchCall(NamedTuple):
    """What a Fetch request comes with besides its body."""

    broker: "Services"
    source: "RequestSource"
    """The connection."""
    permit: ReadPermit
    """That of the connection, which consumers use."""
    version: int
    correlation_id: int
    received_s: float
