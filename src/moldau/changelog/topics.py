"""The topics of a changelog: made where they are missing, and checked before anything is written."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from moldau.changelog.errors import SequenceError, TopicError
from moldau.changelog.naming import commits_topic, table_topic
from moldau.client.errors import RequestFailedError
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(24 * _HOUR_MS),
    "delete.retention.ms": str(7 * 24 * _HOUR_MS),
}
"""Of topics that are made: a replica that was away for less than a day follows commit by commit, and one that was away for less than a week
finds every deletion."""


def ensure_topics(
    cluster: "Cluster",
    changelog: str,
    tables: Iterable[str],
    shards: int,
    configs: Mapping[str, str] | None = None,
    *,
    defined: Callable[[], Collection[str]],
) -> None:
    """Make what is missing of the topic of commits and those of tables, with `configs` beside `CONFIGS`.

    TopicError for one with other partitions than shards, or that is not compacted. SequenceError for one that is missing of a table that is
    among those which are `defined` in the log already. PeerError, WorldError.
    """
    for table in (None, *tables):
        topic = commits_topic(changelog) if table is None else table_topic(changelog, table)
        partitions = _partitions(cluster, topic)
        if partitions is None:
            if table is not None and table in defined():
                raise SequenceError(
                    f"topic {topic} does not exist, and the log has published table {table} in it: it was deleted, and its rows are missing"
                    f" in changelog {changelog}; begin a new changelog"
                )
            _create(cluster, topic, shards, {**CONFIGS, **(configs or {})})
            partitions = cluster.topic(topic).partitions
        if len(partitions) != shards:
            raise TopicError(
                f"topic {topic} has {len(partitions)} partitions, and changelog {changelog} has {shards} shards: each shard needs a"
                " partition of its own; publish with the number of shards that it was made with, or under another name"
            )
        _check_policy(cluster, topic)


def _partitions(cluster: "Cluster", topic: str) -> tuple[object, ...] | None:
    try:
        return cluster.topic(topic).partitions
    except RequestFailedError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


def _create(cluster: "Cluster", topic: str, shards: int, configs: Mapping[str, str]) -> None:
    from moldau.client.admin import Admin

    try:
        Admin(cluster).create_topic(topic, shards, configs=configs)
    except RequestFailedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # made by the publisher of another shard meanwhile
            raise
    else:
        log.info("topic of changelog created: topic=%s partitions=%d", topic, shards)


def _check_policy(cluster: "Cluster", topic: str) -> None:
    from moldau.client.admin import Admin, AdminResource, AdminResourceType

    entries = Admin(cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, topic))
    policy = next((entry.value for entry in entries if entry.name == "cleanup.policy"), None) or ""
    if policy != "compact":
        raise TopicError(
            f"topic {topic} has cleanup.policy={policy}, so rows would be deleted from it that the store has; set cleanup.policy=compact "
            f"(moldau topic alter {topic} -c cleanup.policy=compact)"
        )
