"""A source of random commits over two shards, which a model has too."""

import time
from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Self

from moldau.changelog.committed import CommittedRecords
from moldau.changelog.publisher import Publisher
from moldau.changelog.store import Phase, Position
from moldau.changelog.stores.dictionary import DictionaryStore
from moldau.changelog.values import Change, Commit, Op, Table
from moldau.client.cluster import Cluster
from moldau.model.identity import TopicPartition
from support.simulated_changelog import random_changes

TABLES = [Table(name, {"id": "integer", "value": "integer"}, ("id",)) for name in ("accounts", "orders")]
BANK = Position(Phase.FOLLOWING, 0, 0, 0, {})
COMPACTING = {
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.flush.interval.ms": 100,
    "log.flush.scheduler.interval.ms": 100,
}
"""What is not on disk is not compacted."""
CONFIGS = {"segment.ms": "200", "min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "compact"}
SHARDS = 2
KEYS = 40


class RandomSource:
    """`numbers`: of the last commit of each shard."""

    def __init__(self, bootstrap_servers: str, changelog: str, seed: int = 0) -> None:
        self.bootstrap_servers, self.changelog = bootstrap_servers, changelog
        self.random = Random(seed)
        self.model = DictionaryStore()
        self.model.prepare(changelog, TABLES)
        self.numbers = dict.fromkeys(range(SHARDS), 0)
        self.publishers = [Publisher(bootstrap_servers, changelog, shard, shards=SHARDS, topic_configs=CONFIGS) for shard in range(SHARDS)]

    def fill(self) -> None:
        """A commit in each shard, with rows of each table."""
        for shard in range(SHARDS):
            self.large_commit(shard, 5)

    def commit(self) -> tuple[int, int]:
        """One more; its shard and its number."""
        shard = self.random.randrange(SHARDS)
        state = {table.name: self.model.tables.get((shard, table.name), {}) for table in TABLES}
        changes = random_changes(self.random, TABLES, KEYS, state, self.random.choice([1, 2, 5, 20]))
        return shard, self._publish(shard, changes)

    def large_commit(self, shard: int, count: int) -> int:
        """Of rows of one table, and some of another."""
        return self._publish(shard, [*self.changes_of_rows(count - 2), *self.changes_of_rows(2, "orders")])

    def changes_of_rows(self, count: int, table: str = "accounts") -> Sequence[Change]:
        """From the first key on."""
        return [Change(table, Op.CREATE, (key,), None, {"id": key, "value": self.random.randrange(1000)}) for key in range(count)]

    def _publish(self, shard: int, changes: Sequence[Change]) -> int:
        number = self.numbers[shard] + 1
        tables = {table.name: table for table in TABLES}
        self.publishers[shard].publish([Commit(shard, 0, number, time.time_ns() // 1_000_000, changes)], tables)
        self.model.apply(shard, changes, BANK)
        self.numbers[shard] = number
        return number

    def commit_until_compacted(self) -> None:
        """Until a record that is in the log now is gone, in each shard."""
        before = {shard: self._offsets(shard) for shard in range(SHARDS)}
        for _ in range(200):
            for _ in range(20):
                self.commit()
            if all(before[shard] - self._offsets(shard) for shard in range(SHARDS)):
                return
        raise AssertionError("nothing was compacted")

    def _offsets(self, shard: int) -> set[int]:
        """Of the records that are left of a table."""
        with Cluster(self.bootstrap_servers) as cluster:
            records = CommittedRecords(cluster, TopicPartition(f"{self.changelog}.accounts", shard))
            return {record.offset for record in records.between(*records.bounds())}

    def __enter__(self) -> Self:
        for publisher in self.publishers:
            publisher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for publisher in self.publishers:
            publisher.close()
