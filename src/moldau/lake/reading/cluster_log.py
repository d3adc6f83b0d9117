"""The brokers as reads and loads see them: topics, offsets, bytes. A thin layer over the blocking client."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from moldau.client.cluster import Cluster
from moldau.client.errors import failure
from moldau.client.metadata import TopicMetadata
from moldau.client.partition_requests import EARLIEST, LATEST, READ_UNCOMMITTED, FetchedBatches, FetchLimits
from moldau.model.errors import ErrorCode
from moldau.model.identity import Offset, TopicPartition


class KnownTopic(NamedTuple):
    """A topic as it is now; `id` in hexadecimal digits, its name where the broker is older than topic ids."""

    id: str
    partitions: int


class ClusterLog:
    """Asks the cluster that `bootstrap` belongs to. Raises the client's errors: WorldError, PeerError.

    For a reader of committed records (`isolation_level`) a partition ends before its first open transaction.
    """

    def __init__(self, bootstrap: str, client_id: str, timeout_s: float = 30.0, *, isolation_level: int = READ_UNCOMMITTED) -> None:
        self.cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s)
        self._isolation_level = isolation_level

    def topics(self, names: Sequence[str] | None) -> Mapping[str, KnownTopic]:
        """These topics, or all, internal ones too; an unknown one is left out."""
        known = {}
        for name, topic in self.cluster.metadata(names).topics.items():
            if topic.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                continue
            if topic.error:
                raise failure(topic.error, f"topic {name}")
            known[name] = KnownTopic(_id(topic), len(topic.partitions))
        return known

    def partition_counts(self, topics: Sequence[str] | None) -> Mapping[str, int]:
        """Number of partitions of each of these topics, or of all, internal ones too; an unknown one is left out."""
        return {name: known.partitions for name, known in self.topics(topics).items()}

    def topic_id(self, topic: str) -> str:
        """The topic's id in hexadecimal digits; its name where the broker is older than topic ids."""
        return _id(self.cluster.topic(topic))

    def offsets(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """For each partition the offset at a time in ms (or LATEST, EARLIEST); -1 where no record is that young."""
        found = self.cluster.list_offsets(times, isolation_level=self._isolation_level)
        return {partition: listed.offset for partition, listed in found.items()}

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """First offset of the log, and its end."""
        return self.offsets({partition: EARLIEST})[partition], self.offsets({partition: LATEST})[partition]

    def fetch(self, partition: TopicPartition, offset: int, bytes_max: int, wait_ms: int) -> FetchedBatches:
        """Batches from `offset` on, about `bytes_max` bytes, after at most `wait_ms` without any."""
        return self.fetch_many({partition: offset}, bytes_max, wait_ms)[partition]

    def fetch_many(self, positions: Mapping[TopicPartition, int], bytes_max: int, wait_ms: int) -> Mapping[TopicPartition, FetchedBatches]:
        """The same of many partitions: about `bytes_max` bytes of each leader, so that some may come without any."""
        limits = FetchLimits(max_wait_ms=wait_ms, max_bytes=bytes_max, partition_max_bytes=bytes_max, isolation_level=self._isolation_level)
        return self.cluster.fetch_many(positions, limits)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set where a group reads next. RequestFailedError: it has members, for one."""
        from moldau.client.groups import GroupOffset, Groups

        Groups(self.cluster).commit(group, {partition: GroupOffset(Offset(offset)) for partition, offset in offsets.items()})

    def close(self) -> None:
        """Close the connections."""
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _id(topic: TopicMetadata) -> str:
    return topic.id.hex() if any(topic.id) else topic.name
