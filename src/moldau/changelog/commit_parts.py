"""A commit on its way into the log: its changes become records, each in the partition of its shard, and then the record of the commit."""

from collections.abc import Callable, Iterable, Mapping

from moldau.changelog.all_shards import part_source, shard_of
from moldau.changelog.envelope import ChangeEncoder, CommitRecord, encode_commit
from moldau.changelog.errors import ChangelogError
from moldau.changelog.naming import shard_text
from moldau.changelog.values import ALL_SHARDS, Change, Commit, Op, Table

Post = Callable[[str, int, bytes | None, bytes | None], None]
"""Topic, partition, key, value."""


class CommitPart:
    """What one shard has of a commit: changes are counted, and their places are those in this shard."""

    def __init__(self, changelog: str, commit: Commit, post: Post) -> None:
        self._changelog = changelog
        self._commit = commit
        self._post = post
        self._counts: dict[str, int] = {}
        self._encoders: dict[str, ChangeEncoder] = {}
        self._index = 0

    def send(self, topic: str, table: Table, change: Change, key: bytes | None = None) -> None:
        """The records of a change; `key` if it is encoded already. ValueRefusedError."""
        name, shard = change.table, self._commit.shard
        encoder = self._encoders.get(name)
        if encoder is None:
            encoder = self._encoders[name] = ChangeEncoder(self._changelog, self._commit, table)
            self._counts[name] = 0
        key = encoder.key(change) if key is None else key
        self._post(topic, shard, key, encoder.value(self._index, change))
        if change.op is Op.DELETE:
            self._post(topic, shard, key, None)
        self._counts[name] += 1
        self._index += 1

    def end(self, topic: str, source: Mapping[str, str | int]) -> CommitRecord:
        """The record of the commit, to the topic of commits."""
        shard, epoch, number, time_ms, _, _ = commit = self._commit._replace(source=source)
        self._post(topic, shard, *encode_commit(self._changelog, commit, self._counts))
        return CommitRecord(shard, epoch, number, time_ms, self._counts, source)


class CommitParts:
    """Of a commit, in the shards that it has changes of; of all `shards` where it is one of `ALL_SHARDS`.

    `last` are the numbers of the shards' last commits, and `topics` the tables' topics.
    """

    def __init__(
        self,
        changelog: str,
        commit: Commit,
        shards: int,
        last: Mapping[int, int],
        topics: Mapping[str, str],
        tables: Mapping[str, Table],
        post: Post,
    ) -> None:
        self._changelog = changelog
        self._commit = commit
        self._shards = shards
        self._last = last
        self._topics = topics
        self._tables = tables
        self._post = post
        self._parts: dict[int, CommitPart] = {}
        self._keys: dict[str, ChangeEncoder] = {}

    def open(self, shards: Iterable[int]) -> None:
        """Have a commit in these, with changes or without."""
        for shard in shards:
            self._part(shard)

    def send(self, change: Change) -> None:
        """To the shard of the commit, or that of the row. ChangelogError for a table that is not known; ValueRefusedError."""
        table = self._tables.get(change.table)
        if table is None:
            raise ChangelogError(f"{subject(self._changelog, self._commit)}: a change of table {change.table}, which is not known")
        shard, key = self._commit.shard, None
        if shard == ALL_SHARDS:
            encoder = self._keys.get(change.table)
            if encoder is None:
                encoder = self._keys[change.table] = ChangeEncoder(self._changelog, self._commit, table)
            key = encoder.key(change)
            shard = shard_of(key, self._shards)
        (self._parts.get(shard) or self._part(shard)).send(self._topics[change.table], table, change, key)

    def end(self, topic: str, transaction: int | None) -> list[CommitRecord]:
        """The records of the commits, to the topic of commits; `transaction` is the number of one that may be in several shards."""
        source, parts = self._commit.source, [part for _, part in sorted(self._parts.items())]
        if transaction is not None:
            source = part_source(source, self._shards, transaction, len(parts))
        return [part.end(topic, source) for part in parts]

    def _part(self, shard: int) -> CommitPart:
        if shard not in self._parts:
            commit = self._commit._replace(shard=shard, number=self._last.get(shard, 0) + 1)
            self._parts[shard] = CommitPart(self._changelog, commit, self._post)
        return self._parts[shard]


def subject(changelog: str, first: Commit, last: Commit | None = None) -> str:
    """A commit, or those from `first` to `last`, for messages."""
    what = "transaction" if first.shard == ALL_SHARDS else "commit"
    numbers = f"{what} {first.number}" if last is None or last is first else f"{what}s {first.number} to {last.number}"
    return f"changelog {changelog}, {shard_text(first.shard)}, {numbers}"
