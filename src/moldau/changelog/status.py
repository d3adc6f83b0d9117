"""How a changelog stands: of each shard its master and what the log has, and of replicas how far they are."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.changelog.masters import Master, masters
from moldau.changelog.naming import COMMITS, table_of
from moldau.changelog.places import StorePlace, open_store
from moldau.changelog.store import Phase, Position
from moldau.client.admin import Admin
from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster


class TableSize(NamedTuple):
    """Of a table's topic in one shard."""

    offsets: int
    """From the first to the end; compaction leaves gaps."""
    size_bytes: int | None
    """On the disk of the leader; None where brokers do not say it."""


class ShardStatus(NamedTuple):
    """Of a shard."""

    master: Master
    tables: Mapping[str, TableSize]


class ReplicaStatus(NamedTuple):
    """Of a shard in a store."""

    place: str
    shard: int
    position: Position
    commits: int | None
    """In the log and not applied; None while it is loading, and so at no commit."""
    seconds: float
    """Between the last commit that is applied and the last one in the log, as the source made them. While it is loading: since it began, or
    since the commit at which it was before.
    """


class StoreFailure(NamedTuple):
    """A store that cannot be looked at, or is no replica of the changelog."""

    place: str
    error: str


def shard_statuses(cluster: "Cluster", changelog: str) -> list[ShardStatus]:
    """Of all shards. MissingTopicError, WorldError, PeerError."""
    every = masters(cluster, changelog)
    topics = {
        table_of(topic.name).table: topic
        for topic in cluster.topics(internal=False)
        if topic.name.startswith(f"{changelog}.") and topic.name != f"{changelog}.{COMMITS}"
    }
    sizes = Admin(cluster).partition_sizes(topic.name for topic in topics.values())
    partitions = [
        TopicPartition(topic.name, number) for topic in topics.values() for number in range(min(len(every), len(topic.partitions)))
    ]
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST))

    def size(where: TopicPartition) -> TableSize:
        return TableSize(ends[where].offset - starts[where].offset, sizes.get(where))

    def tables(shard: int) -> dict[str, TableSize]:
        """Others may have made a topic of such a name, with fewer partitions."""
        wanted = {table: TopicPartition(topics[table].name, shard) for table in sorted(topics)}
        return {table: size(where) for table, where in wanted.items() if where in ends}

    return [ShardStatus(master, tables(master.shard)) for master in every]


def replica_statuses(
    changelog: str, every: Iterable[Master], place: StorePlace, *, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> list[ReplicaStatus] | StoreFailure:
    """Of the shards that a store has."""
    try:
        positions = stored_positions(changelog, place)
    except MoldauError as error:
        return StoreFailure(place.text, str(error))
    if not positions:
        return StoreFailure(place.text, f"no replica of changelog {changelog}: it has no position")
    known = {master.shard: master for master in every}
    now_ms = clock_ms()
    return [_replica_status(place.text, shard, position, known.get(shard), now_ms) for shard, position in sorted(positions.items())]


def stored_positions(changelog: str, place: StorePlace) -> Mapping[int, Position]:
    """Of the store, whether or not a replica runs; by shard. PlaceError, StoreError."""
    store = open_store(place, must_exist=True)
    try:
        return store.look(changelog)
    finally:
        store.close()


def _replica_status(place: str, shard: int, position: Position, master: Master | None, now_ms: int) -> ReplicaStatus:
    if position.phase is Phase.LOADING:
        return ReplicaStatus(place, shard, position, None, max(0, now_ms - position.commit_ms) / 1000)
    commits = 0 if master is None else max(0, master.commit - position.commit)
    seconds = max(0, master.time_ms - position.commit_ms) / 1000 if commits and master is not None else 0.0
    return ReplicaStatus(place, shard, position, commits, seconds)
