"""The partitions that this broker leads, by name and by the ids and bytes that requests carry."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from moldau.broker.metrics.counters import TopicTraffic
from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.identity import TopicPartition

_NONE: Mapping[int, HostedPartition] = MappingProxyType({})


class PartitionTable:
    """Invariant: the three dictionaries hold the same partitions, and no topic without any."""

    __slots__ = ("_all", "_by_id", "_by_name")

    def __init__(self) -> None:
        self._all: dict[TopicPartition, HostedPartition] = {}
        self._by_name: dict[bytes, dict[int, HostedPartition]] = {}
        self._by_id: dict[bytes, dict[int, HostedPartition]] = {}

    def of_topic(self, topic: bytes, *, by_id: bool) -> Mapping[int, HostedPartition]:
        """Partitions of a topic by index. `topic`: the UTF-8 bytes of its name, or its id."""
        return (self._by_id if by_id else self._by_name).get(topic, _NONE)

    def traffic_of(self, topic: bytes, *, by_id: bool) -> TopicTraffic | None:
        """The counters of a topic, None if no partition of it is led here. `topic` as for `of_topic`."""
        for partition in self.of_topic(topic, by_id=by_id).values():
            return partition.traffic
        return None

    def get(self, topic_partition: TopicPartition) -> HostedPartition | None:
        """The partition of that name, if it is led here."""
        return self._all.get(topic_partition)

    def add(self, partition: HostedPartition) -> None:
        """Take in a partition that is not here yet."""
        assert partition.topic_partition not in self._all
        self._all[partition.topic_partition] = partition
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._by_id.setdefault(partition.topic_id, {})[partition.index] = partition

    def remove(self, topic_partition: TopicPartition) -> HostedPartition | None:
        """Forget a partition; None if it is not here."""
        partition = self._all.pop(topic_partition, None)
        if partition is not None:
            for table, key in ((self._by_name, partition.topic), (self._by_id, partition.topic_id)):
                del table[key][partition.index]
                if not table[key]:
                    del table[key]
        return partition

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)
