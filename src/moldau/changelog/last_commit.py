"""The last commit of a shard that the log has, found from the end of its partition of the topic of commits."""

from typing import TYPE_CHECKING, Final

from moldau.changelog.committed import CommittedRecords
from moldau.changelog.envelope import CommitRecord, decode_commit
from moldau.changelog.naming import commits_topic
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

_FIRST_LOOK: Final = 64
_GROWTH: Final = 8


def last_commit(cluster: "Cluster", changelog: str, shard: int, *, wait: bool = True) -> CommitRecord | None:
    """The record; None before the first commit.

    `wait` for transactions that are open: the producer of the shard has been initialised before, so what it had open ends soon.

    RecordError, WorldError, PeerError.
    """
    where = TopicPartition(commits_topic(changelog), shard)
    records = CommittedRecords(cluster, where)
    start, end = records.bounds() if wait else records.decided()
    count = _FIRST_LOOK
    while end > start:
        begin, found = max(start, end - count), None
        for record in records.between(begin, end):
            decoded = decode_commit(*where, record.offset, record.key, record.value)
            found = decoded if isinstance(decoded, CommitRecord) else found
        if found is not None or begin == start:
            return found
        count *= _GROWTH
    return None
