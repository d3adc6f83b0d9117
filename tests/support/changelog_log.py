"""Reading what a changelog has in the log, and checking that each commit is there once, in order, and whole."""

from collections import Counter
from typing import NamedTuple

from moldau.changelog.committed import CommittedRecords
from moldau.changelog.envelope import ChangeRecord, CommitRecord, TableRecord, Tombstone, decode_change, decode_commit
from moldau.changelog.naming import commits_topic
from moldau.changelog.values import Change, Op, Table
from moldau.client.cluster import Cluster
from moldau.model.identity import TopicPartition


class ChangelogLog(NamedTuple):
    """Of one shard, in the order of the log."""

    commits: list[CommitRecord]
    tables: dict[str, Table]
    changes: dict[str, list[ChangeRecord]]
    """By table."""
    tombstones: int

    def of_commit(self, number: int) -> list[Change]:
        """The changes of a commit in their order."""
        found = [each for changes in self.changes.values() for each in changes if each.commit == number]
        return [each.change for each in sorted(found, key=lambda each: each.index)]

    def all_changes(self) -> list[Change]:
        """Of all commits, in order."""
        found = [each for changes in self.changes.values() for each in changes]
        return [each.change for each in sorted(found, key=lambda each: (each.commit, each.index))]

    def check(self) -> None:
        """AssertionError unless each commit is there once, in order, and whole, and no change is of none."""
        numbers = [each.commit for each in self.commits]
        assert numbers == [*range(1, len(numbers) + 1)]
        epochs = [each.epoch for each in self.commits]
        assert epochs == sorted(epochs)
        counts: dict[int, Counter[str]] = {each.commit: Counter() for each in self.commits}
        places: dict[int, list[int]] = {number: [] for number in numbers}
        for changes in self.changes.values():
            order = [(each.commit, each.index) for each in changes]
            assert order == sorted(order)
            for each in changes:
                counts[each.commit][each.change.table] += 1
                places[each.commit].append(each.index)
        for commit in self.commits:
            assert dict(counts[commit.commit]) == dict(commit.counts), commit
            assert sorted(places[commit.commit]) == [*range(len(places[commit.commit]))], commit
        deletions = sum(each.change.op is Op.DELETE for changes in self.changes.values() for each in changes)
        assert self.tombstones == deletions


def read_log(bootstrap_servers: str, changelog: str, *tables: str, shard: int = 0) -> ChangelogLog:
    """All of it."""
    commits: list[CommitRecord] = []
    known: dict[str, Table] = {}
    changes: dict[str, list[ChangeRecord]] = {name: [] for name in tables}
    tombstones = 0
    with Cluster(bootstrap_servers) as cluster:
        where = TopicPartition(commits_topic(changelog), shard)
        records = CommittedRecords(cluster, where)
        for record in records.between(*records.bounds()):
            match decode_commit(*where, record.offset, record.key, record.value):
                case CommitRecord() as commit:
                    commits.append(commit)
                case TableRecord(_, table):
                    known[table.name] = table
        for name in tables:
            where = TopicPartition(f"{changelog}.{name}", shard)
            records = CommittedRecords(cluster, where)
            for record in records.between(*records.bounds()):
                match decode_change(*where, record.offset, record.key, record.value):
                    case ChangeRecord() as change:
                        changes[name].append(change)
                    case Tombstone():
                        tombstones += 1
    return ChangelogLog(commits, known, changes, tombstones)
