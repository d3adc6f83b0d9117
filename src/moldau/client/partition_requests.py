"""Requests about many partitions of one leader, and their answers by partition: ListOffsets, Fetch, DeleteRecords. No I/O.

The classes of a request are loaded when the first one is made.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from moldau.client.errors import RequestFailedError, TruncationError, failure
from moldau.model.errors import ProtocolError
from moldau.model.identity import Offset, TimestampMs, TopicPartition

if TYPE_CHECKING:
    from moldau.protocol.messages.fetch import FetchRequest
    from moldau.protocol.messages.offset_lookups import ListOffsetsRequest
    from moldau.protocol.messages.topics import DeleteRecordsRequest

T = TypeVar("T")

Answers = dict[TopicPartition, T | RequestFailedError]

LATEST = -1
"""Asks ListOffsets for the offset after the last record (that readers may see)."""
EARLIEST = -2
"""Asks ListOffsets for the first offset."""
MAX_TIMESTAMP = -3
"""Asks ListOffsets for the record with the highest timestamp."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

END_OF_LOG = Offset(-1)
"""Asks DeleteRecords to delete everything that readers may see."""


class ListedOffset(NamedTuple):
    """What a look-up found. `offset` is -1 when no record is that young."""

    offset: Offset
    timestamp: TimestampMs
    leader_epoch: int


class AbortedRecords(NamedTuple):
    """A transaction that was aborted and has records in what was fetched, from `first_offset` on."""

    producer_id: int
    first_offset: int


class LastRead:
    """Where reading of a partition has come to, and the leader epoch of the record before that; -1 for one that is not known."""

    __slots__ = ("epoch", "offset")

    def __init__(self) -> None:
        self.offset = -1
        self.epoch = -1


class FetchedBatches(NamedTuple):
    """Record batches as they lie in the log, not decoded; the first may begin before the offset asked for, the last may be cut off.

    `records` is a view into the response, which lives as long as the view does.
    """

    records: memoryview
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: tuple[AbortedRecords, ...] = ()
    """Only for readers of committed records."""
    last_read: LastRead | None = None
    """Noted by who reads the batches (`checked_batches`), for the next fetch."""


class FetchLimits(NamedTuple):
    """How much to fetch and how long the broker may wait for it: for `min_bytes` at most `max_wait_ms`."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    isolation_level: int = READ_UNCOMMITTED


def list_offsets_request(wanted: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int) -> "ListOffsetsRequest":
    """Ask for an offset per partition: by timestamp, or EARLIEST, LATEST, MAX_TIMESTAMP."""
    from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    topics = [
        ListOffsetsTopic(name, [ListOffsetsPartition(tp.partition, timestamp=wanted[tp]) for tp in partitions])
        for name, partitions in _by_topic(wanted).items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics, timeout_ms=timeout_ms)


def read_list_offsets(response: Any) -> Answers[ListedOffset]:
    """Answers to a ListOffsetsRequest."""
    answers: Answers[ListedOffset] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            answers[where] = (
                failure(partition.error_code, where)
                if partition.error_code
                else ListedOffset(Offset(partition.offset), TimestampMs(partition.timestamp), partition.leader_epoch)
            )
    return answers


def fetch_request(
    positions: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, bytes],
    limits: FetchLimits,
    epochs: Mapping[TopicPartition, int],
    last_read: Mapping[TopicPartition, LastRead],
) -> "FetchRequest":
    """Ask for records from an offset per partition. Topics carry name and id; the version decides which of them travels. `epochs`: those
    of the leaders that are asked; with them, and with what was read last, a leader finds out whether the log is another one now (KIP-320).
    """

    from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    def wanted(where: TopicPartition) -> FetchPartition:
        before = last_read.get(where)
        return FetchPartition(
            where.partition,
            current_leader_epoch=epochs.get(where, -1),
            fetch_offset=positions[where],
            last_fetched_epoch=before.epoch if before is not None and before.offset == positions[where] else -1,
            partition_max_bytes=limits.partition_max_bytes,
        )

    topics = [FetchTopic(name, topic_ids[name], [wanted(tp) for tp in partitions]) for name, partitions in _by_topic(positions).items()]
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=topics,
    )


def read_fetch(
    response: Any, positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes], last_read: Mapping[TopicPartition, LastRead]
) -> Answers[FetchedBatches]:
    """Answers to a FetchRequest. TruncationError for a partition whose log no longer has what was read. Another error names the offset that
    was asked for. RequestFailedError when the whole request failed.
    """
    if response.error_code:
        raise failure(response.error_code, "fetch")
    names = {topic_ids[name]: name for name in _by_topic(positions)}
    answers: Answers[FetchedBatches] = {}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id)
        if name is None:
            raise ProtocolError(f"fetch: an answer for topic id {topic.topic_id.hex()}, which was not asked for")
        for partition in topic.partitions:
            where = TopicPartition(name, partition.partition_index)
            if partition.error_code:
                answers[where] = _fetch_failure(partition.error_code, where, positions.get(where))
                continue
            diverging = partition.diverging_epoch
            if diverging is not None and diverging.end_offset >= 0:
                answers[where] = TruncationError(where, positions[where], min(diverging.end_offset, positions[where]))
                continue
            answers[where] = FetchedBatches(
                memoryview(partition.records or b""),
                Offset(partition.high_watermark),
                Offset(partition.last_stable_offset),
                Offset(partition.log_start_offset),
                tuple(AbortedRecords(each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()),
                last_read.get(where),
            )
    return answers


def _fetch_failure(code: int, where: TopicPartition, offset: int | None) -> RequestFailedError:
    error = failure(code, where)
    return RequestFailedError(error.code, f"{error.message} (fetching from offset {offset})", where)


def delete_records_request(before: Mapping[TopicPartition, int], timeout_ms: int) -> "DeleteRecordsRequest":
    """Ask to delete all records before an offset per partition, or before END_OF_LOG."""
    from moldau.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

    topics = [
        DeleteRecordsTopic(name, [DeleteRecordsPartition(tp.partition, before[tp]) for tp in partitions])
        for name, partitions in _by_topic(before).items()
    ]
    return DeleteRecordsRequest(topics, timeout_ms)


def read_delete_records(response: Any) -> Answers[Offset]:
    """Answers to a DeleteRecordsRequest: the first offset left."""
    answers: Answers[Offset] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            answers[where] = failure(partition.error_code, where) if partition.error_code else Offset(partition.low_watermark)
    return answers


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for where in partitions:
        topics.setdefault(where.topic, []).append(where)
    return topics
