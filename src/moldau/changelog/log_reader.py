"""Committed records of a changelog's topics, fetched and decoded.

The client of tools reads them, not librdkafka: it fetches by topic id and with the leader epoch of what it has read, so that a topic that
was created again, and a log that was truncated, are errors (RequestFailedError, TruncationError) and no jump. It also sees the end of a
partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moldau.changelog import envelope
from moldau.changelog.arrivals import CommitRecord, CommitRecords, Ends, TableDefinition, TableRecord, TableRecords
from moldau.changelog.naming import commits_topic, table_of
from moldau.changelog.row_records import table_record
from moldau.client.cluster import Cluster
from moldau.client.fetched_batches import VisibleBatches, checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchedBatches, FetchLimits
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate

if TYPE_CHECKING:
    from moldau.protocol.records.record import Record

_BATCH_BYTES_MAX: Final = 256 << 20
_FOREVER_MS: Final = (1 << 63) - 1


class LogReader:
    """Of one changelog. `wait_ms`: how long a fetch waits for records; `fetch_bytes`: about so much comes of each partition at once."""

    def __init__(
        self, bootstrap_servers: str, changelog: str, *, wait_ms: int = 100, fetch_bytes: int = 1 << 20, timeout_s: float = 30.0
    ) -> None:
        self._cluster = Cluster(bootstrap_servers, client_id=f"changelog-{changelog}-replica", timeout_s=timeout_s)
        self._commits = commits_topic(changelog)
        self._limits = FetchLimits(
            max_wait_ms=wait_ms, max_bytes=50 * fetch_bytes, partition_max_bytes=fetch_bytes, isolation_level=READ_COMMITTED
        )

    def shards(self) -> int:
        """How many there are. RequestFailedError if there is no such changelog."""
        return len(self._cluster.topic(self._commits).partitions)

    def ends(self, shard: int, topics: Iterable[str]) -> Ends:
        """Where partitions begin and end. RequestFailedError for a topic that does not exist; WorldError."""
        wanted = [TopicPartition(topic, shard) for topic in topics]
        ids = {}
        for where in wanted:
            found = self._cluster.topic(where.topic)
            if any(found.id):
                ids[where.topic] = found.id.hex()
        starts = self._cluster.list_offsets(dict.fromkeys(wanted, EARLIEST))
        ends = self._cluster.list_offsets(dict.fromkeys(wanted, LATEST))
        return Ends(
            {where.topic: ends[where].offset for where in wanted},
            {where.topic: starts[where].offset for where in wanted},
            ids,
            min((self._delete_retention_ms(where.topic) for where in wanted), default=_FOREVER_MS),
        )

    def _delete_retention_ms(self, topic: str) -> int:
        from moldau.client.admin import Admin, AdminResource, AdminResourceType

        entries = Admin(self._cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, topic))
        return int(next(entry.value for entry in entries if entry.name == "delete.retention.ms") or 0)

    def fetch(self, wanted: Mapping[TopicPartition, int]) -> Sequence[tuple[int, TableRecords | CommitRecords]]:
        """What comes next in each of these partitions, with its shard; those of the topic of commits are last, as the machine needs it.

        RecordError, CorruptBatchError; TruncationError, RequestFailedError, WorldError.
        """
        fetched = self._cluster.fetch_many(wanted, self._limits)
        tables = [
            (where.partition, self._table_records(where, batches, wanted[where]))
            for where, batches in fetched.items()
            if where.topic != self._commits
        ]
        commits = [
            (where.partition, self._commit_records(where, batches, wanted[where]))
            for where, batches in fetched.items()
            if where.topic == self._commits
        ]
        return [*tables, *commits]

    def _table_records(self, where: TopicPartition, fetched: FetchedBatches, offset: int) -> TableRecords:
        found: list[TableRecord] = []
        table, next_offset = table_of(where.topic).table, offset
        for records, after in _visible(where, fetched, offset):
            found += [table_record(where, table, record) for record in records if record.offset >= offset]
            next_offset = after
        return TableRecords(where.topic, found, next_offset, at_end=next_offset >= fetched.high_watermark)

    def _commit_records(self, where: TopicPartition, fetched: FetchedBatches, offset: int) -> CommitRecords:
        found: list[CommitRecord | TableDefinition] = []
        next_offset = offset
        for records, after in _visible(where, fetched, offset):
            found += [_commit_record(where, record) for record in records if record.offset >= offset]
            next_offset = after
        return CommitRecords(found, next_offset, at_end=next_offset >= fetched.high_watermark)

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()


def _visible(where: TopicPartition, fetched: FetchedBatches, offset: int) -> Iterator[tuple[Iterable["Record"], int]]:
    """Records of each batch, none of those that are not shown, and the offset after it."""
    visible = VisibleBatches(fetched.aborted)
    for header, batch in checked_batches(where, fetched, offset):
        shown = visible.shows(header, batch)
        yield iterate(batch, max_decompressed_bytes=_BATCH_BYTES_MAX, with_headers=False) if shown else (), header.last_offset + 1


def _commit_record(where: TopicPartition, record: "Record") -> CommitRecord | TableDefinition:
    found = envelope.decode_commit(*where, record.offset, record.key, record.value)
    if isinstance(found, envelope.TableRecord):
        return TableDefinition(record.offset, found.table)
    return CommitRecord(record.offset, found.epoch, found.commit, found.time_ms, found.counts, "reading" not in found.source)
