"""The cluster as requests see it: an immutable snapshot, replaced as a whole after each change.

A request takes one snapshot and answers from it alone, so it never sees half of a change. Replacing it costs a copy of the dictionaries,
not of the topics (2,000 topics: about a tenth of a millisecond).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import LogCut
from moldau.model.value import Value

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
LISTED_S = 3.0
"""Clients that look for leaders still find a departed broker for so long. librdkafka (2.16) that learns by one answer that a partition has
a new leader and that the earlier leader's broker is not listed any more takes the partition from both, and looks again a second later.
"""
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Endpoint(NamedTuple):
    """The address that clients of one listener use."""

    listener: str
    host: str
    port: int


class BrokerInfo(Value):
    """A live broker and where it is reached.

    Invariant: at most one endpoint per listener, at least one in all; the first is the one that other brokers use.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where clients of a listener reach the broker; None if it does not have that listener."""
        return next((each for each in self.endpoints if each.listener == listener), None)


class PartitionInfo(NamedTuple):
    """One partition: its leader (-1 where there is none), its in-sync replicas, all its replicas (the preferred leader first)."""

    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    state_version: int
    """Version of the partition's state node, for conditional writes."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas, as of `moldau.cluster.znodes.PartitionState`."""
    last_known_elr: tuple[int, ...] = ()
    is_mirror: bool = False
    cut: LogCut | None = None


class TopicInfo:
    """One topic. Invariant: ``partitions[i].partition == i``."""

    __slots__ = ("built", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: tuple[PartitionInfo, ...]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.built: object = None
        """What the Metadata handler made of this topic, kept for its next answer: it depends on nothing else."""

    @property
    def internal(self) -> bool:
        """Whether the topic is one of the system's own."""
        return self.name in INTERNAL_TOPICS

    def __repr__(self) -> str:
        return f"TopicInfo({self.name}, {len(self.partitions)} partitions)"


class MetadataSnapshot:
    """All that is known of the cluster at one moment."""

    __slots__ = ("broker_configs", "brokers", "cluster_id", "controller_id", "partition_count", "topic_configs", "topics", "topics_by_id")

    def __init__(
        self,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: Mapping[int, BrokerInfo] = MappingProxyType({}),
        topics: Mapping[str, TopicInfo] = MappingProxyType({}),
        topic_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        broker_configs: Mapping[int | None, Mapping[str, str]] = MappingProxyType({}),
        like: "MetadataSnapshot | None" = None,
    ) -> None:
        """`like`: one of the same topics, if there is one."""
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers = brokers
        self.topics = topics
        self.topics_by_id: Mapping[bytes, TopicInfo]
        if like is None:
            self.topics_by_id = {topic.topic_id: topic for topic in topics.values()}
            self.partition_count = sum(len(topic.partitions) for topic in topics.values())
        else:
            self.topics_by_id, self.partition_count = like.topics_by_id, like.partition_count
        self.topic_configs = topic_configs
        """What topics set themselves; a topic without any may be missing."""
        self.broker_configs = broker_configs
        """Dynamic configurations by broker, those of all brokers under None."""

    def find(self, topic: bytes, *, by_id: bool) -> "TopicInfo | None":
        """A topic as requests name it: by the UTF-8 bytes of its name, or by its id."""
        return self.topics_by_id.get(topic) if by_id else self.topics.get(topic.decode())

    def topic_config(self, name: str) -> Mapping[str, str]:
        """What a topic sets itself."""
        return self.topic_configs.get(name, _NOTHING)

    def broker_config(self, broker_id: int | None) -> Mapping[str, str]:
        """What is set for a broker, or for all (None), while it runs."""
        return self.broker_configs.get(broker_id, _NOTHING)

    def updated(
        self,
        brokers: Iterable[BrokerInfo],
        controller_id: int,
        changed: Iterable[TopicInfo],
        deleted: Iterable[str],
        configs: Mapping[str, Mapping[str, str]],
    ) -> "MetadataSnapshot":
        """The same with these live brokers, topics added or replaced, and without some; and the configurations of some topics."""
        by_id = {broker.broker_id: broker for broker in brokers}
        topics, topic_configs = {**self.topics, **{topic.name: topic for topic in changed}}, {**self.topic_configs, **configs}
        for name in deleted:
            topics.pop(name, None)
            topic_configs.pop(name, None)
        return MetadataSnapshot(self.cluster_id, controller_id, by_id, topics, topic_configs, self.broker_configs)

    def with_topic_config(self, name: str, values: Mapping[str, str]) -> "MetadataSnapshot":
        """The same where a topic sets `values` itself."""
        configs = {**self.topic_configs, name: values}
        return MetadataSnapshot(self.cluster_id, self.controller_id, self.brokers, self.topics, configs, self.broker_configs, self)

    def with_broker_config(self, broker_id: int | None, values: Mapping[str, str]) -> "MetadataSnapshot":
        """The same with other dynamic configurations of a broker, or of all."""
        configs = {**self.broker_configs, broker_id: values}
        return MetadataSnapshot(self.cluster_id, self.controller_id, self.brokers, self.topics, self.topic_configs, configs, self)


class MetadataCache:
    """The cluster as this broker knows it."""

    def __init__(self) -> None:
        self.snapshot = MetadataSnapshot()
        self.new_configs: dict[str, Mapping[str, str]] = {}
        """Configurations of topics that are not in the snapshot yet, because they are being opened first."""
        self.is_complete = False
        """Whether the snapshot has had all of the cluster: before, a topic that it lacks may exist."""
        self.on_complete: dict[Callable[[], object], None] = {}
        """Called once it has."""
        self._learned: dict[bytes, dict[int, PartitionInfo]] = {}
        """By topic id, states of partitions that the controller may not have sent yet."""
        self._departed: dict[int, tuple[BrokerInfo, float]] = {}
        """Brokers that were live lately, and until when clients find them in Metadata."""

    def note_departed(self, live: Sequence[BrokerInfo], now: float) -> None:
        """Compare the brokers that the snapshot will have with those it has. `now`: seconds of a monotonic clock."""
        until = now + LISTED_S
        self._departed |= {broker_id: (info, until) for broker_id, info in self.snapshot.brokers.items()}
        for each in live:
            self._departed.pop(each.broker_id, None)

    def departed(self, now: float) -> list[BrokerInfo]:
        """Brokers that were live less than `LISTED_S` ago."""
        return [info for info, until in self._departed.values() if now < until]

    def config_of(self, topic: str) -> Mapping[str, str]:
        """What a topic sets itself."""
        return self.new_configs[topic] if topic in self.new_configs else self.snapshot.topic_config(topic)

    def learn(self, topic_id: bytes, index: int, leader: int, leader_epoch: int, isr: tuple[int, ...], state_version: int) -> None:
        """Take a later state of a partition that this broker has read in the tree: what the controller sends may not reach it."""
        topic = self.snapshot.topics_by_id.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            return
        known = topic.partitions[index]
        read = known._replace(leader=leader, leader_epoch=leader_epoch, isr=isr, state_version=state_version)
        if _age(read) > _age(known):
            self._learned.setdefault(topic_id, {})[index] = read
            partitions = (read if each is known else each for each in topic.partitions)
            changed = [TopicInfo(topic.name, topic.topic_id, tuple(partitions))]
            self.snapshot = self.snapshot.updated(self.snapshot.brokers.values(), self.snapshot.controller_id, changed, (), {})

    def with_learned(self, topic: TopicInfo) -> TopicInfo:
        """A topic that the controller has sent, with what was learned of its partitions where that is later."""
        learned = self._learned.pop(topic.topic_id, None)
        if learned is None:
            return topic
        sent = topic.partitions
        later = {index: each for index, each in learned.items() if index < len(sent) and _age(each) > _age(sent[index])}
        if not later:
            return topic
        self._learned[topic.topic_id] = later
        partitions = (later[each.partition]._replace(replicas=each.replicas) if each.partition in later else each for each in sent)
        return TopicInfo(topic.name, topic.topic_id, tuple(partitions))

    def forget(self, topics: Iterable[str]) -> None:
        """Topics that the snapshot still has are deleted: what was learned of them is of no use any more."""
        for name in topics:
            topic = self.snapshot.topics.get(name)
            if topic is not None:
                self._learned.pop(topic.topic_id, None)

    def complete(self) -> None:
        """The snapshot has all of the cluster."""
        self.is_complete = True
        calls, self.on_complete = self.on_complete, {}
        for call in calls:
            call()


def _age(partition: PartitionInfo) -> tuple[int, int]:
    return partition.leader_epoch, partition.state_version


def unknown_topic(name: str) -> PeerError:
    """The error for a topic that does not exist."""
    return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")


def twice(name: str) -> PeerError:
    """The error for a topic that one request names more than once."""
    return PeerError(ErrorCode.INVALID_REQUEST, f"topic '{name}' is named twice in one request")
