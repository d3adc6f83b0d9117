"""What the controller sends to brokers, as values. A channel to another process translates them into the protocol's requests."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from moldau.cluster.snapshot import BrokerInfo, PartitionInfo, TopicInfo
from moldau.model.identity import TopicPartition
from moldau.model.value import Value


class LedPartition(Value):
    """A partition in the state in which it is led from now on."""

    topic: str
    topic_id: bytes
    info: PartitionInfo
    is_new: bool
    """Whether no record of it exists anywhere yet."""


class LeaderAndIsr(Value):
    """States of partitions of which the receiver has a replica."""

    controller_epoch: int
    partitions: tuple[LedPartition, ...]


class AssignedTopic(NamedTuple):
    """A topic that exists, and those of its partitions of which the receiver has a replica."""

    topic_id: bytes
    partitions: tuple[int, ...]


class UpdateMetadata(Value):
    """What clients are answered: all live brokers, topics that changed, each whole, and topics that are deleted."""

    controller_epoch: int
    controller_id: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...] = ()
    deleted: tuple[str, ...] = ()
    everything: tuple[AssignedTopic, ...] | None = None
    """All topics that exist: to a broker that may have missed deletions and replicas that were removed from it."""


class StoppedTopic(Value):
    """A topic whose replicas are deleted; `topic_id` None for one of which nothing but its name is known."""

    name: str
    topic_id: bytes | None
    partitions: int
    only: tuple[int, ...] | None = None
    """Those of its partitions that are meant; None for all."""


class StopReplica(Value):
    """Topics of which the receiver serves nothing any more, and deletes what it has, or keeps it."""

    controller_epoch: int
    topics: tuple[StoppedTopic, ...]
    deletes: bool = True


Control = LeaderAndIsr | UpdateMetadata | StopReplica


class ControlReply(Value):
    """A broker has carried out what it could; what it could not is its own to report, but for epochs."""

    floors: Mapping[TopicPartition, int] = MappingProxyType({})
    """Partitions whose logs know a later leader epoch than the one sent: they need another election."""
    is_stale: bool = False
    """Not all of it is known to be done: the broker knows a later controller, was registered again, has refused it, or is yet to answer."""
    inconsistent: tuple[TopicPartition, ...] = ()
    """Partitions that the broker has of a topic with another id: nothing was done for them."""
    offline: tuple[tuple[bytes, int], ...] = ()
    """Topic ids and numbers of partitions whose logs are offline, as their directory has failed or a full disk keeps them closed."""
