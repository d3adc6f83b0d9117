"""What another system's log directories hold, for a broker that takes them over (``--adopt``).

The folders say which topics there are, how many partitions they have and, by ``partition.metadata``, their ids; nothing in them says how
long their records are to be kept or whether they are compacted. So an adopted topic keeps everything until somebody says otherwise. Kafka's
own log of cluster metadata is not read and not touched.

The order: `cluster_id_of`, so that the broker becomes a member of the cluster that wrote the directories; then `LogManager.start` with
``adopt``; then `adopt_topics`, whose answer the broker registers.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moldau.log.directory import ForeignDirectoryError
from moldau.log.log_set import Placement
from moldau.log.meta_properties import read_meta_properties
from moldau.log.partition_metadata import write_topic_id
from moldau.model.errors import WorldError
from moldau.model.identity import ID_BYTES, format_id
from moldau.ports.filesystem import FileSystem

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog

_LOG = logging.getLogger(__name__)

KEEP_EVERYTHING = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""Topic configurations of an adopted topic: neither retention nor compaction."""


@dataclass(frozen=True, slots=True)
class AdoptedTopic:
    """A topic found in the folders, to be registered."""

    name: str
    topic_id: bytes
    partitions: int
    """One more than the highest number found: the folders between may be on other brokers."""
    configs: dict[str, str] = field(default_factory=lambda: dict(KEEP_EVERYTHING))
    first_epochs: dict[int, int] = field(default_factory=dict)
    """By partition the leader epoch to begin with, above those of the records that are there: recovery takes batches of a lower one for
    leftovers of an earlier leadership. Partitions without records of a known epoch are left out."""


class TopicIdConflictError(WorldError):
    """A partition's folder carries another topic's id than its siblings: it is left from an earlier topic of that name."""

    def __init__(self, placement: Placement, topic_id: bytes, found: bytes) -> None:
        message = f"{placement.folder}: is of the topic with the id {format_id(found)}, the other partitions of {format_id(topic_id)}"
        super().__init__(message, retriable=False)


def cluster_id_of(files: FileSystem, directories: Sequence[str]) -> str | None:
    """The id of the cluster that wrote these directories; None if they do not say. Reads only.

    ForeignDirectoryError if they are of different clusters. DamagedFileError, StorageError.
    """
    found: str | None = None
    for path in directories:
        properties = read_meta_properties(files, path)
        cluster_id = None if properties is None else properties.cluster_id
        if found is not None and cluster_id not in (None, found):
            raise ForeignDirectoryError(path, f"belongs to the cluster {cluster_id}, another of the directories to {found}")
        found = found or cluster_id
    return found


def adopt_topics(files: FileSystem, placements: Iterable[Placement], random_bytes: Callable[[int], bytes]) -> list[AdoptedTopic]:
    """The topics of all partitions found, by name. Folders without an id get their topic's, or a new one that is kept.

    A partition whose id differs from that of most of its topic's partitions goes offline. StorageError.
    """
    topics: defaultdict[str, list[Placement]] = defaultdict(list)
    for placement in placements:
        topics[placement.topic_partition.topic].append(placement)
    return [_adopt(files, name, topics[name], random_bytes) for name in sorted(topics)]


def _adopt(files: FileSystem, name: str, placements: list[Placement], random_bytes: Callable[[int], bytes]) -> AdoptedTopic:
    ids = Counter(placement.topic_id for placement in placements if placement.topic_id is not None)
    topic_id = ids.most_common(1)[0][0] if ids else random_bytes(ID_BYTES)
    for placement in placements:
        if placement.topic_id is None:
            if placement.directory.online:
                write_topic_id(files, placement.folder, topic_id)
                placement.topic_id = topic_id
        elif placement.topic_id != topic_id:
            conflict = TopicIdConflictError(placement, topic_id, placement.topic_id)
            _LOG.error("partition offline: partition=%s reason=%s", placement.topic_partition, conflict)
            placement.fail(conflict)
    count = 1 + max(placement.topic_partition.partition for placement in placements)
    _LOG.info("topic adopted: topic=%s id=%s partitions=%d", name, format_id(topic_id), count)
    latest = {each.topic_partition.partition: _latest_epoch(each.log) for each in placements if each.log is not None}
    return AdoptedTopic(name, topic_id, count, first_epochs={index: epoch + 1 for index, epoch in latest.items() if epoch >= 0})


def _latest_epoch(log: "PartitionLog") -> int:
    """The newest leader epoch of the log's records; where there is no checkpoint that says it, the batches do."""
    return max(log.latest_epoch, log.epoch_of_last_batch())
