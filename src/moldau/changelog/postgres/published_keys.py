"""The rows of a table that are in a changelog now, by their keys: read from the table's topic, whose only writer is the caller."""

import time
from typing import TYPE_CHECKING, Final

from moldau.changelog.envelope import Tombstone, decode_change
from moldau.changelog.naming import table_topic
from moldau.changelog.values import Key, Op
from moldau.client.fetched_batches import VisibleBatches, checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchLimits
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

_BYTES_MAX: Final = 64 << 20
_STABLE_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.05


class PublishedKeys:
    """Of one shard. The keys of a table are held in memory."""

    def __init__(self, bootstrap_servers: str, changelog: str, shard: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._changelog = changelog
        self._shard = shard

    def of(self, table: str) -> set[Key]:
        """Keys of the rows that are not deleted. None are there without the topic. RecordError, WorldError, PeerError."""
        from moldau.client.cluster import Cluster

        where = TopicPartition(table_topic(self._changelog, table), self._shard)
        with Cluster(self._bootstrap_servers, client_id=f"changelog-{self._changelog}") as cluster:
            if where.topic not in {topic.name for topic in cluster.metadata().topics}:
                return set()
            return _keys(cluster, where)


def _keys(cluster: "Cluster", where: TopicPartition) -> set[Key]:
    found: set[Key] = set()
    offset = cluster.list_offsets({where: EARLIEST})[where].offset
    end = cluster.list_offsets({where: LATEST})[where].offset
    limits, deadline = FetchLimits(isolation_level=READ_COMMITTED), time.monotonic() + _STABLE_WAIT_S
    while offset < end:
        fetched = cluster.fetch(*where, offset, limits)
        visible, after = VisibleBatches(fetched.aborted), offset
        for header, batch in checked_batches(where, fetched, offset):
            after = header.last_offset + 1
            if visible.shows(header, batch):
                for record in iterate(batch, max_decompressed_bytes=_BYTES_MAX, with_headers=False):
                    if record.offset >= offset:
                        _take(found, where, record.offset, record.key, record.value)
        if after > offset:
            offset, deadline = after, time.monotonic() + _STABLE_WAIT_S
        elif fetched.last_stable_offset >= end:  # compaction left nothing up to the end
            break
        elif time.monotonic() > deadline:
            raise WorldError(f"partition {where}: its leader shows nothing from offset {offset} to {end}", retriable=True)
        else:
            time.sleep(_PAUSE_S)
    return found


def _take(found: set[Key], where: TopicPartition, offset: int, key: bytes | None, value: bytes | None) -> None:
    record = decode_change(*where, offset, key, value)
    if isinstance(record, Tombstone):
        found.discard(record.key)
    elif record.change.op is Op.DELETE:
        found.discard(record.change.key)
    else:
        found.add(record.change.key)
