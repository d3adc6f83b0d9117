"""The rows of a table that are in a changelog now, by their keys: read from the table's topic, whose only writer is the caller."""

from moldau.changelog.columns import key_text
from moldau.changelog.committed import CommittedRecords
from moldau.changelog.envelope import Tombstone, decode_change
from moldau.changelog.naming import table_topic
from moldau.changelog.values import Key, Op
from moldau.model.identity import TopicPartition


class PublishedKeys:
    """Of one shard. The keys of a table are held in memory."""

    def __init__(self, bootstrap_servers: str, changelog: str, shard: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._changelog = changelog
        self._shard = shard

    def of(self, table: str) -> dict[str, Key]:
        """Keys of the rows that are not deleted, by the text of their records' keys; none without the topic.

        RecordError, WorldError, PeerError.
        """
        from moldau.client.cluster import Cluster

        found: dict[str, Key] = {}
        where = TopicPartition(table_topic(self._changelog, table), self._shard)
        with Cluster(self._bootstrap_servers, client_id=f"changelog-{self._changelog}") as cluster:
            if where.topic not in cluster.metadata().topics:
                return found
            records = CommittedRecords(cluster, where)
            for record in records.between(*records.bounds()):
                change = decode_change(*where, record.offset, record.key, record.value)
                key = change.key if isinstance(change, Tombstone) else change.change.key
                text = key_text(change.key_columns, key)
                if isinstance(change, Tombstone) or change.change.op is Op.DELETE:
                    found.pop(text, None)
                else:
                    found[text] = key
        return found
