"""A cluster of one topic that comes, goes, is made anew, has no leader: for the tests of an auditor's reading."""

from typing import Any

from moldau.client.errors import Retry, failure
from moldau.client.metadata import NO_TOPIC_ID, ClusterMetadata, PartitionMetadata, TopicMetadata
from moldau.client.partition_requests import EARLIEST, FetchedBatches, ListedOffset
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId, Offset, TimestampMs, TopicPartition

T0 = TopicPartition("t", 0)
ME, NOBODY = BrokerId(1), BrokerId(-1)
FIRST, LAST = 3, 50


class Cluster:
    """One topic of one partition, or none; the log begins at offset 3 and ends at 50, unless it is told otherwise."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id: bytes | None = topic_id
        self.error = ErrorCode.NONE
        self.is_known = False
        self.fetch_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.leader = ME
        self.patience_s = 0.05
        self.batch = b""
        """What lies at any offset."""
        self.first, self.end = FIRST, LAST
        self.late = 0
        """So many times more nobody knows of the topic."""

    def topics(self, *, internal: bool = False) -> list[TopicMetadata]:
        self.late -= 1
        if self.topic_id is None or self.late >= 0:
            return []
        partition = PartitionMetadata(0, self.leader, 0, (ME,), (ME,), (), ErrorCode.NONE)
        return [TopicMetadata("t", self.topic_id, False, (partition,), self.error)]

    def metadata(self, names: list[str]) -> ClusterMetadata:
        found = {each.name: each for each in self.topics()}
        unknown = TopicMetadata("t", NO_TOPIC_ID, False, (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return ClusterMetadata(None, ME, {}, {}, {name: found.get(name, unknown) for name in names})

    def retry(self) -> Retry:
        return Retry(self.patience_s, sleep=lambda _: None)

    def list_offsets(self, wanted: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, ListedOffset]:
        return {where: ListedOffset(Offset(self.first if at == EARLIEST else self.end), TimestampMs(-1), 0) for where, at in wanted.items()}

    def fetch_many(self, positions: dict[TopicPartition, int], _: Any) -> dict[TopicPartition, FetchedBatches]:
        if self.is_known:
            at = positions[T0]
            if not self.first <= at <= self.end:
                raise failure(ErrorCode.OFFSET_OUT_OF_RANGE, T0)
            records = memoryview(self.batch if at < self.end else b"")
            return {T0: FetchedBatches(records, Offset(self.end), Offset(self.end), Offset(self.first))}
        raise failure(self.fetch_error, T0)

    def forget_topic(self, name: str) -> None:
        assert name.startswith("t")
