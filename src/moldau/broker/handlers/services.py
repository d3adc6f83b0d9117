"""What handlers use of the broker, in small parts. Each module of handlers puts together its `Services` of them, and gets no more."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moldau.broker.admin_log import AdminLog
    from moldau.broker.groups.coordinator import GroupCoordinator
    from moldau.broker.local_coordinators import Coordinators
    from moldau.broker.quotas import Quotas
    from moldau.broker.replicas.hosted import HostedPartition, PartitionTable
    from moldau.broker.security import Authorizer
    from moldau.broker.transactions.coordinator import TransactionCoordinator
    from moldau.cluster.snapshot import MetadataSnapshot
    from moldau.model.config.store import BrokerConfig
    from moldau.model.errors import PeerError, StorageError


class Guards(Protocol):
    """What every request passes."""

    authorizer: "Authorizer"
    quotas: "Quotas"


class ConfigServices(Protocol):
    """The configuration of the broker."""

    @property
    def config(self) -> "BrokerConfig":
        """As it is now; values change at run time."""


class MetadataServices(Protocol):
    """The cluster as this broker knows it."""

    @property
    def broker_id(self) -> int:
        """Its own number."""

    @property
    def metadata(self) -> "MetadataSnapshot":
        """All of it, at this moment."""


class PartitionServices(Protocol):
    """The partitions that this broker leads."""

    @property
    def partitions(self) -> "PartitionTable":
        """All of them."""

    def partitions_of(self, topic: bytes, *, by_id: bool) -> "Mapping[int, HostedPartition]":
        """Those of a topic by index. `topic`: the UTF-8 bytes of its name, or its id."""

    def missing_partition(self, topic: bytes, index: int, *, by_id: bool) -> "PeerError":
        """Why a partition cannot be served here, for a client."""

    def storage_failed(self, partition: "HostedPartition", error: "StorageError") -> object:
        """The disk of its log failed."""


class GroupServices(Protocol):
    """Consumer groups."""

    @property
    def groups(self) -> "GroupCoordinator":
        """Loaded when first asked for."""


class TransactionServices(Protocol):
    """Transactions."""

    @property
    def transactions(self) -> "TransactionCoordinator":
        """Loaded when first asked for."""


class CoordinatorServices(Protocol):
    """Both coordinators with their topics."""

    @property
    def coordinators(self) -> "Coordinators":
        """Loaded when first asked for."""


class AdminServices(Protocol):
    """The log of what clients change."""

    @property
    def admin_log(self) -> "AdminLog":
        """One line for each change."""
