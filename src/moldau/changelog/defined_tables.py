"""Tables that the publisher of a shard has written to the log: their definitions stay in the topic of commits."""

from typing import TYPE_CHECKING

from moldau.changelog.committed import CommittedRecords
from moldau.changelog.envelope import TableRecord, decode_commit
from moldau.changelog.naming import commits_topic
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster


def defined_tables(cluster: "Cluster", changelog: str, shard: int) -> frozenset[str]:
    """Their names. It reads all that the partition has. RecordError, WorldError, PeerError."""
    where = TopicPartition(commits_topic(changelog), shard)
    records = CommittedRecords(cluster, where)
    found = (decode_commit(*where, record.offset, record.key, record.value) for record in records.between(*records.decided()))
    return frozenset(each.table.name for each in found if isinstance(each, TableRecord))
