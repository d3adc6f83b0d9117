"""The rows of a table that are in a changelog now, by their keys: read from the table's topic, whose only writer is the caller."""

from collections.abc import Iterator, Mapping, Sequence

from moldau.changelog.all_shards import shard_of
from moldau.changelog.columns import key_text
from moldau.changelog.committed import CommittedRecords
from moldau.changelog.envelope import Tombstone, decode_change, encoded
from moldau.changelog.naming import table_topic
from moldau.changelog.values import ALL_SHARDS, Key, Op
from moldau.model.identity import TopicPartition


class PublishedKeys:
    """Of one shard, or of `ALL_SHARDS`. The keys of a table are held in memory."""

    def __init__(self, bootstrap_servers: str, changelog: str, shard: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._changelog = changelog
        self._shard = shard

    def of(self, table: str) -> dict[str, Key]:
        """Keys of the rows that are not deleted, by the text of their records' keys; none without the topic. Of all shards those of rows
        that are in the shard which the hash of their key names.

        RecordError, WorldError, PeerError.
        """
        found: dict[str, Key] = {}
        for shard, shards, keys in self._shards(table):
            found |= keys if shards is None else {text: key for text, key in keys.items() if shard_of(encoded(text), shards) == shard}
        return found

    def misplaced(self, table: str) -> Mapping[int, Sequence[Key]]:
        """Of all shards: keys of rows that are in another shard than the hash of their key names, by the shard that they are in. Masters of
        single shards may have written them. Errors as for `of`.
        """
        found: dict[int, Sequence[Key]] = {}
        for shard, shards, keys in self._shards(table):
            there = [] if shards is None else [key for text, key in keys.items() if shard_of(encoded(text), shards) != shard]
            if there:
                found[shard] = there
        return found

    def _shards(self, table: str) -> Iterator[tuple[int, int | None, dict[str, Key]]]:
        """Each shard, how many there are if it is one of all, and its keys by their texts."""
        from moldau.client.cluster import Cluster

        topic = table_topic(self._changelog, table)
        with Cluster(self._bootstrap_servers, client_id=f"changelog-{self._changelog}") as cluster:
            if topic not in cluster.metadata().topics:
                return
            if self._shard != ALL_SHARDS:
                yield self._shard, None, _keys(CommittedRecords(cluster, TopicPartition(topic, self._shard)), topic, self._shard)
                return
            shards = len(cluster.topic(topic).partitions)
            for shard in range(shards):
                yield shard, shards, _keys(CommittedRecords(cluster, TopicPartition(topic, shard)), topic, shard)


def _keys(records: CommittedRecords, topic: str, shard: int) -> dict[str, Key]:
    found: dict[str, Key] = {}
    for record in records.between(*records.bounds()):
        change = decode_change(topic, shard, record.offset, record.key, record.value)
        key = change.key if isinstance(change, Tombstone) else change.change.key
        text = key_text(change.key_columns, key)
        if isinstance(change, Tombstone) or change.change.op is Op.DELETE:
            found.pop(text, None)
        else:
            found[text] = key
    return found
