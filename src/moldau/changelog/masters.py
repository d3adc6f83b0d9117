"""Who is the master of each shard: the store that has made the last commit in the log, and where it is reached.

    with Cluster("localhost:9092") as cluster:
        for master in masters(cluster, "bank"):
            print(master.shard, master.epoch, master.address)

A client that writes to a shard asks its master, and asks here again when that one refuses: a former master cannot publish any more, so
what it commits is never acknowledged, and its epoch is lower.
"""

from typing import TYPE_CHECKING, NamedTuple

from moldau.changelog.last_commit import last_commit
from moldau.changelog.naming import ADDRESS, commits_topic
from moldau.changelog.replica_errors import MissingTopicError
from moldau.client.errors import RequestFailedError
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster


class Master(NamedTuple):
    """Of a shard."""

    shard: int
    epoch: int
    """Each promotion raises it; 0 before the first commit."""
    commit: int
    """The last one in the log."""
    time_ms: int
    """When it was committed, since 1970."""
    address: str
    """As the store was opened with; empty where it was opened without one."""
    complete: bool = True
    """False while the source publishes the rows that it had before its changelog began."""


def masters(cluster: "Cluster", changelog: str) -> list[Master]:
    """Of all shards, in their order. MissingTopicError where there is no such changelog; RecordError, WorldError, PeerError."""
    try:
        shards = len(cluster.topic(commits_topic(changelog)).partitions)
    except RequestFailedError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise MissingTopicError(f"changelog {changelog}: nothing is published: topic {commits_topic(changelog)} does not exist") from error
    return [_master(cluster, changelog, shard) for shard in range(shards)]


def _master(cluster: "Cluster", changelog: str, shard: int) -> Master:
    last = last_commit(cluster, changelog, shard, wait=False)
    if last is None:
        return Master(shard, 0, 0, 0, "")
    return Master(shard, last.epoch, last.commit, last.time_ms, str(last.source.get(ADDRESS, "")), "reading" not in last.source)
