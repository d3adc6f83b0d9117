"""A changelog in memory, as brokers show it to a replica: transactions whose ends are seen later in one partition than in another, fetches
of any size, and compaction at any time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from moldau.changelog.arrivals import ChangeRecord, CommitRecord, CommitRecords, Ends, TableDefinition, TableRecords, Tombstone
from moldau.changelog.naming import commits_topic, table_of, table_topic
from moldau.changelog.values import Change, Key, Op, Row, Table
from moldau.client.errors import UnreachableError
from moldau.model.host_port import Address
from moldau.model.identity import TopicPartition

CHANGELOG = "bank"
COMMITS = commits_topic(CHANGELOG)
Record = ChangeRecord | Tombstone | CommitRecord | TableDefinition
Rows = Mapping[str, Mapping[Key, Row]]


@dataclass
class Partition:
    """Records that are left, by offset; where it ends, and up to where its transactions are seen to have ended."""

    records: list[Record] = field(default_factory=list)
    end: int = 0
    start: int = 0
    stable: int = 0


class SimulatedChangelog:
    """`state` has what the source was, by shard and commit: a list that begins with the empty one."""

    def __init__(self, shards: int = 1, random: Random | None = None, *, delete_retention_ms: int = 1_000_000) -> None:
        self.random = random or Random(0)
        self.delete_retention_ms = delete_retention_ms
        self.now_ms = 1_000_000
        self.epoch = 0
        self.generation: dict[str, int] = {}
        self.partitions: dict[TopicPartition, Partition] = {TopicPartition(COMMITS, shard): Partition() for shard in range(shards)}
        self.tables: dict[str, Table] = {}
        self.states: dict[int, list[Rows]] = {shard: [{}] for shard in range(shards)}
        self.records_max = 10
        self.failing = 0.0
        """How likely a fetch fails."""
        self.incomplete: set[tuple[int, int]] = set()
        """Shards and commits at which the source has not published all its rows."""

    # The source

    def define(self, table: Table) -> None:
        self.tables[table.name] = table
        for shard in self.states:
            self.partitions.setdefault(TopicPartition(table_topic(CHANGELOG, table.name), shard), Partition())
            self._append(TopicPartition(COMMITS, shard), lambda offset: TableDefinition(offset, table))
            self._end(TopicPartition(COMMITS, shard))

    def publish(self, shard: int, changes: Sequence[Change], *, seen: bool = True, complete: bool = True) -> int:
        """One commit; its number. Its end is seen later unless `seen`."""
        number = len(self.states[shard])
        rows = {name: dict(each) for name, each in self.states[shard][-1].items()}
        counts: dict[str, int] = {}
        touched = {TopicPartition(COMMITS, shard)}
        for change in changes:
            where = TopicPartition(table_topic(CHANGELOG, change.table), shard)
            touched.add(where)
            self._append(where, lambda offset, change=change: ChangeRecord(offset, self.epoch, number, change))
            counts[change.table] = counts.get(change.table, 0) + 1
            if change.after is None:
                rows.get(change.table, {}).pop(change.key, None)
                self._append(where, lambda offset, key=change.key: Tombstone(offset, key))
            else:
                columns = self.tables[change.table].columns
                rows.setdefault(change.table, {})[change.key] = {name: change.after.get(name) for name in columns}
        time_ms = self.now_ms
        self._append(TopicPartition(COMMITS, shard), lambda offset: CommitRecord(offset, self.epoch, number, time_ms, counts, complete))
        for where in touched:
            self._end(where, seen=seen)
        if not complete:
            self.incomplete.add((shard, number))
        self.states[shard].append({name: each for name, each in rows.items() if each})
        return number

    def _append(self, where: TopicPartition, record: "object") -> None:
        partition = self.partitions[where]
        partition.records.append(record(partition.end))  # type: ignore[operator]
        partition.end += 1

    def _end(self, where: TopicPartition, *, seen: bool = True) -> None:
        """The marker of a transaction's end takes an offset."""
        partition = self.partitions[where]
        partition.end += 1
        if seen:
            partition.stable = partition.end

    def show(self, *, all_of_them: bool = True) -> None:
        """Ends of transactions are seen, of some partitions or of all."""
        for partition in self.partitions.values():
            if all_of_them or self.random.random() < 0.5:
                partition.stable = partition.end

    # The broker

    def compact(self, *, share: float = 1.0) -> None:
        """Remove a share of the records that are superseded, before an offset by chance in each partition; never the last of a key."""
        for partition in self.partitions.values():
            limit = self.random.randint(0, partition.stable)
            last = {self._key(record): record.offset for record in partition.records if record.offset < limit}
            partition.records = [
                record
                for record in partition.records
                if record.offset >= limit or last[self._key(record)] == record.offset or self.random.random() >= share
            ]

    def forget_deletions(self) -> None:
        """Remove tombstones: they are older than `delete.retention.ms`."""
        for partition in self.partitions.values():
            partition.records = [record for record in partition.records if not isinstance(record, Tombstone)]

    def recreate(self, topic: str) -> None:
        self.generation[topic] = self.generation.get(topic, 0) + 1
        for where in self.partitions:
            if where.topic == topic:
                self.partitions[where] = Partition()

    @staticmethod
    def _key(record: Record) -> object:
        match record:
            case ChangeRecord():
                return record.change.key
            case Tombstone():
                return record.key
            case CommitRecord():
                return "commit"
            case TableDefinition():
                return record.table.name

    # As a replica sees it

    def shards(self) -> int:
        return len(self.states)

    def ends(self, shard: int, topics: Collection[str]) -> Ends:
        here = {topic: self.partitions[TopicPartition(topic, shard)] for topic in topics}
        return Ends(
            {topic: partition.end for topic, partition in here.items()},
            {topic: partition.start for topic, partition in here.items()},
            {topic: f"{topic}#{self.generation.get(topic, 0)}" for topic in topics},
            self.delete_retention_ms if topics else 2**63 - 1,
        )

    def fetch(self, wanted: Mapping[TopicPartition, int]) -> Sequence[tuple[int, TableRecords | CommitRecords]]:
        if self.random.random() < self.failing:
            raise UnreachableError(Address("broker", 9092), "it is away")
        found: list[tuple[int, TableRecords | CommitRecords]] = []
        for where in sorted(wanted, key=lambda each: (each.topic == COMMITS, self.random.random())):
            partition = self.partitions[where]
            count = self.random.randint(1, self.records_max)
            visible = [record for record in partition.records if wanted[where] <= record.offset < partition.stable]
            records = visible[:count]
            next_offset = records[-1].offset + 1 if len(visible) > count else max(partition.stable, wanted[where])
            if where.topic == COMMITS:
                found.append((where.partition, CommitRecords(records, next_offset, at_end=next_offset >= partition.end)))  # type: ignore[arg-type]
            else:
                assert table_of(where.topic).changelog == CHANGELOG
                event = TableRecords(where.topic, records, next_offset, at_end=next_offset >= partition.end)  # type: ignore[arg-type]
                found.append((where.partition, event))
        return found

    def close(self) -> None:
        pass


def random_changes(random: Random, tables: Sequence[Table], keys: int, state: Rows, count: int) -> Sequence[Change]:
    """Of a commit: rows are made, changed and deleted, one of them perhaps several times."""
    changes = []
    there = {(name, key) for name, rows in state.items() for key in rows}
    for _ in range(count):
        table = random.choice(tables)
        key = (random.randrange(keys),)
        if (table.name, key) in there and random.random() < 0.4:
            there.discard((table.name, key))
            changes.append(Change(table.name, Op.DELETE, key, None, None))
        else:
            op = Op.UPDATE if (table.name, key) in there else Op.CREATE
            there.add((table.name, key))
            row = {name: key[0] if name in table.key else random.randrange(1000) for name in table.columns}
            changes.append(Change(table.name, op, key, None, row))
    return changes
