"""How a replica of one shard takes what is in the log, decided without doing: an event in, effects out. No I/O, no clock.

============  ========================================================================================================================
stage         what happens
============  ========================================================================================================================
finding       the topic of commits is read to its end; the last commit there is the *target*
loading       tables are read up to the end that they had after that. Changes up to the target are applied row by row, in the order of
              the log, which is that of each row's changes: compaction has thinned them, and no commit can be counted
confirming    commits after the target are applied one by one, up to the end that the log had when loading had ended. Compaction may have
              been ahead of loading: a row that was not found then is in a commit of these at the latest
following     each commit is applied when all its changes are here. The store is what the source was at that commit
============  ========================================================================================================================

A source that publishes rows which it had before its changelog says in each commit up to their end that it is incomplete. Up to there a
store is loading, too, though it is at a commit.

A commit that lacks changes which the log does not have, a number that is left out, and a tombstone without its deletion show that
compaction has passed the replica: it has to load again (`Reload`), from its stored position on.

**Memory.** A shard holds about `memory_changes_max` changes, or records of `memory_bytes_max`. Then only topics are read that the next
commit lacks changes of, and what is here of that commit is spilled to a file. So a commit may be larger than memory, and have up to
`commit_changes_max` changes.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from moldau.changelog.arrivals import (
    ChangeRecord,
    CommitRecord,
    CommitRecords,
    Ends,
    Event,
    TableDefinition,
    TableRecord,
    TableRecords,
    Tombstone,
)
from moldau.changelog.effects import Apply, AskEnds, Clear, Effect, Prepare, Reload, Spill
from moldau.changelog.naming import commits_topic, table_topic
from moldau.changelog.replica_errors import CommitCountError, CommitOrderError, CommitTooLargeError, SlowLoadError, TableChangedError
from moldau.changelog.store import Phase, Position
from moldau.changelog.table_queue import TableQueue
from moldau.changelog.values import Change, Op, Table


class Stage(Enum):
    """See the module."""

    FINDING = "finding"
    LOADING = "loading"
    CONFIRMING = "confirming"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one shard."""

    memory_changes_max: int = 50_000
    memory_bytes_max: int = 64 << 20
    apply_changes_max: int = 5_000
    """Commits are applied together, in one transaction of the store, until they have so many changes."""
    commit_records_max: int = 10_000
    """Read before their changes are."""
    commit_changes_max: int = 100_000_000


class ShardMachine:
    """Of the shard `shard`, from `position` on; of the tables `only`, None: of all.

    With `clear` the store's rows of the shard are removed before others are loaded. After an effect that failed, and after
    Reload, it is not used any more.
    """

    def __init__(
        self,
        changelog: str,
        shard: int,
        position: Position,
        *,
        clear: bool = False,
        only: Collection[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.stage = Stage.FOLLOWING if position.phase is Phase.FOLLOWING else Stage.FINDING
        self._changelog = changelog
        self._shard = shard
        self._only = only
        self._commits = commits_topic(changelog)
        self._limits = limits or Limits()
        self._ids = dict(position.ids)
        self._tables = {topic: table for topic, table in position.tables.items() if self._takes(table.name)}
        self._queues = {topic: TableQueue(topic, table.name, position.offsets[topic]) for topic, table in self._tables.items()}
        self._commits_offset = position.offsets[self._commits]
        self._records: deque[CommitRecord | TableDefinition] = deque()
        """Commits that are not applied yet, and definitions of tables before them."""
        self._commits_at_end = False
        """Whether the last fetch of the topic of commits has shown that there is nothing more."""
        self._epoch, self._commit = position.epoch, position.commit
        """Of the last commit that was applied; while finding and loading, of the target."""
        self._commit_ms = position.commit_ms if self.stage is Stage.FOLLOWING else 0
        self._since_ms = position.commit_ms
        self._retention_ms = 0
        self._clear = Clear(position) if clear else None
        self._incomplete_at: int | None = None
        """Offset of the record of the last commit, if the source has not published all its rows up to that."""
        self._ends: Mapping[str, int] | None = None

    def start(self) -> Sequence[Effect]:
        """The first effects."""
        prepare = [Prepare(list(self._tables.values()))] if self._tables else []
        return [*prepare, AskEnds([self._commits])] if self.stage is Stage.FINDING else prepare

    def _takes(self, table: str) -> bool:
        return self._only is None or table in self._only

    # What it says of itself

    @property
    def commit(self) -> int:
        """Applied last, or loaded up to."""
        return self._commit

    @property
    def known_commit(self) -> int:
        """The last one of which a record was read."""
        return next((each.number for each in reversed(self._records) if isinstance(each, CommitRecord)), self._commit)

    @property
    def oldest_waiting_ms(self) -> int | None:
        """When the first commit that is not applied was made in the source; None where all that are known are."""
        return next((each.time_ms for each in self._records if isinstance(each, CommitRecord)), None)

    @property
    def held(self) -> int:
        """Changes in memory."""
        return sum(queue.held for queue in self._queues.values())

    @property
    def topics(self) -> Collection[str]:
        """That it reads while it follows."""
        return [self._commits, *self._queues]

    @property
    def is_current(self) -> bool:
        """Whether it follows, and has applied all that it has read."""
        applied = all(queue.position == queue.next_offset for queue in self._queues.values())
        return self.stage is Stage.FOLLOWING and not self._records and applied

    def wanted(self) -> Mapping[str, int]:
        """Topics to fetch of now, and from which offset each."""
        match self.stage:
            case Stage.FINDING:
                return {} if self._ends is None else {self._commits: self._commits_offset}
            case Stage.LOADING:
                return {} if self._ends is None else {topic: queue.next_offset for topic, queue in self._queues.items() if not queue.passed}
            case Stage.CONFIRMING | Stage.FOLLOWING:
                return self._wanted_commits() | {topic: self._queues[topic].next_offset for topic in self._wanted_tables()}

    def _wanted_tables(self) -> Iterable[str]:
        if not self._is_full():
            return self._queues
        record = self._records[0] if self._records else None
        return [queue.topic for queue in self._lacking(record)] if isinstance(record, CommitRecord) else ()

    def _is_full(self) -> bool:
        held_bytes = sum(queue.held_bytes for queue in self._queues.values())
        return self.held >= self._limits.memory_changes_max or held_bytes >= self._limits.memory_bytes_max

    def _wanted_commits(self) -> dict[str, int]:
        return {self._commits: self._commits_offset} if len(self._records) < self._limits.commit_records_max else {}

    # Events

    def step(self, event: Event, now_ms: int) -> Sequence[Effect]:
        """What follows from an event. RecordError; SlowLoadError, TableChangedError."""
        match event:
            case Ends():
                return self._ended(event, now_ms)
            case CommitRecords(records, next_offset, at_end):
                self._take_commits(records, next_offset)
                self._commits_at_end = at_end
                return self._find(now_ms) if self.stage is Stage.FINDING else self._follow()
            case TableRecords(topic, records, next_offset, at_end):
                queue = self._queues[topic]
                if self.stage is Stage.LOADING:
                    return self._load(queue, records, next_offset, now_ms)
                for record in records:
                    if not self._take(queue, record):
                        return [Reload(f"partition {topic}-{self._shard} at offset {record.offset}: a tombstone without its deletion")]
                queue.fetched(next_offset, at_end=at_end)
                return self._follow()

    def _ended(self, event: Ends, now_ms: int) -> Sequence[Effect]:
        self._ends = event.ends
        self._ids |= event.ids
        match self.stage:
            case Stage.FINDING:
                return self._find(now_ms)
            case Stage.LOADING:
                self._retention_ms = event.delete_retention_ms
                for topic, table in self._tables.items():
                    if topic not in self._queues:
                        self._queues[topic] = TableQueue(topic, table.name, event.starts[topic])
                return self._loaded(now_ms)
            case Stage.CONFIRMING | Stage.FOLLOWING:
                return self._follow()

    def _take_commits(self, records: Sequence[CommitRecord | TableDefinition], next_offset: int) -> None:
        for record in records:
            if isinstance(record, CommitRecord):
                self._check_commit(record)
            self._records.append(record)
        self._commits_offset = next_offset

    def _check_commit(self, record: CommitRecord) -> None:
        before = next((each for each in reversed(self._records) if isinstance(each, CommitRecord)), None)
        if before is None:
            self._expect_changes()
        known = self._commit - 1 if self.stage is Stage.FINDING else self._commit
        epoch, last = (self._epoch, known) if before is None else (before.epoch, before.number)
        if record.number <= last:
            raise CommitOrderError(self._commits, self._shard, record.offset, f"commit {record.number} comes after commit {last}")
        if record.epoch < epoch:
            reason = f"commit {record.number} has epoch {record.epoch}, and the one before it has {epoch}"
            raise CommitOrderError(self._commits, self._shard, record.offset, reason)

    def _expect_changes(self) -> None:
        """The next commit has become known: what fetches before that have shown of ends proves nothing about it."""
        for queue in self._queues.values():
            queue.at_end = False

    def _check_order(self, queue: TableQueue, record: ChangeRecord, *, epoch: int, commit: int) -> None:
        """It has to have this epoch and this commit, or later ones."""
        if record.commit < max(queue.last_commit, commit):
            last = max(queue.last_commit, commit - 1)
            raise CommitOrderError(queue.topic, self._shard, record.offset, f"a change of commit {record.commit} comes after commit {last}")
        if record.epoch < max(queue.last_epoch, epoch):
            reason = (
                f"a change of commit {record.commit} has epoch {record.epoch}, and what is before it has {max(queue.last_epoch, epoch)}"
            )
            raise CommitOrderError(queue.topic, self._shard, record.offset, reason)

    # Finding and loading

    def _find(self, now_ms: int) -> Sequence[Effect]:
        changed: list[Table] = []
        while self._records and (len(self._records) > 1 or self._at_commits_end()):
            record = self._records.popleft()
            if isinstance(record, TableDefinition):
                changed += self._define(record)
            else:
                self._reach(record)
        effects: list[Effect] = [Prepare(changed)] if changed else []
        if not self._at_commits_end():
            return effects
        self.stage, self._ends = Stage.LOADING, None
        if self._clear is not None:
            effects.append(self._clear)
        return [*effects, AskEnds(list(self._tables))]

    def _reach(self, record: CommitRecord) -> None:
        self._epoch, self._commit, self._commit_ms = record.epoch, record.number, record.time_ms
        self._incomplete_at = None if record.complete else record.offset

    def _at_commits_end(self) -> bool:
        return self._ends is not None and self._commits_offset >= self._ends[self._commits]

    def _define(self, record: TableDefinition) -> Sequence[Table]:
        """The table, if it has to be made or changed."""
        table = record.table
        if not self._takes(table.name):
            return []
        topic = table_topic(self._changelog, table.name)
        known = self._tables.get(topic)
        if known == table:
            return []
        if known is not None and tuple(known.key) != tuple(table.key):
            raise TableChangedError(
                f"partition {self._commits}-{self._shard} at offset {record.offset}: table {table.name} has the primary key "
                f"{', '.join(table.key)}, and had {', '.join(known.key)}; the replica stops. With begin_again it loads into a new table"
            )
        self._tables[topic] = table
        return [table]

    def _load(self, queue: TableQueue, records: Sequence[TableRecord], next_offset: int, now_ms: int) -> Sequence[Effect]:
        """Rows up to the target. What comes after it is fetched again when commits can be counted."""
        changes = self._rows_to_load(queue, records, next_offset)
        effects: list[Effect] = [Apply(changes, self._position())] if changes else []
        return [*effects, *self._loaded(now_ms)]

    def _loaded(self, now_ms: int) -> Sequence[Effect]:
        """Whether all rows are loaded."""
        if self._ends is None:
            return []
        for queue in self._queues.values():
            queue.passed = queue.passed or queue.next_offset >= self._ends[queue.topic]
        if not all(queue.passed for queue in self._queues.values()):
            return []
        if now_ms - self._since_ms > self._retention_ms:
            raise SlowLoadError(
                f"changelog {self._changelog}, shard {self._shard}: loading up to commit {self._commit} has taken "
                f"{(now_ms - self._since_ms) // 1000} s, longer than deletions stay in the log "
                f"(delete.retention.ms={self._retention_ms}), so deleted rows may be in the store; raise delete.retention.ms of the "
                f"changelog's topics and start the replica again: it will load into an empty store"
            )
        self.stage, self._ends, self._commits_at_end = Stage.CONFIRMING, None, False
        return [AskEnds([self._commits])]

    def _rows_to_load(self, queue: TableQueue, records: Sequence[TableRecord], next_offset: int) -> Sequence[Change]:
        changes = []
        for record in records:
            if isinstance(record, Tombstone):
                if not queue.ends_deletion(record):
                    changes.append(Change(queue.table, Op.DELETE, record.key, None, None))
            else:
                self._check_order(queue, record, epoch=0, commit=0)
                if record.commit > self._commit:
                    queue.next_offset, queue.passed = record.offset, True
                    return changes
                changes.append(record.change)
            queue.saw(record)
        queue.next_offset = next_offset
        return changes

    # Confirming and following

    def _take(self, queue: TableQueue, record: TableRecord) -> bool:
        """Queue a record. Whether compaction has left all before it."""
        if isinstance(record, Tombstone):
            return queue.ends_deletion(record) or queue.hold_first(record)
        self._check_order(queue, record, epoch=self._epoch, commit=self._commit + 1)
        queue.append(record)
        return True

    def _follow(self) -> Sequence[Effect]:
        effects: list[Effect] = []
        changes: list[Change] = []
        reload, unstored = None, False
        while self._records:
            record = self._records[0]
            if isinstance(record, TableDefinition):
                if self._is_new(record):
                    reload = Reload(f"table {record.table.name} is new")
                    break
                changed = self._define(record)
                self._records.popleft()
                if changed:
                    effects += [Apply(changes, self._position()), Prepare(changed)] if unstored else [Prepare(changed)]
                    changes, unstored = [], True
                continue
            self._check_size(record)
            reload = self._compacted(record)
            if reload or self._lacking(record):
                break
            self._check_counts(record)
            spilled = any(queue.spilled for queue in self._queues.values())
            assert not (spilled and changes), "only changes of the commit after the stored one are spilled"
            for queue in self._queues.values():
                changes += queue.take(record.number)
            self._records.popleft()
            self._reach(record)
            self._expect_changes()
            unstored = not spilled and len(changes) < self._limits.apply_changes_max
            if not unstored:
                effects.append(Apply(changes, self._position(), spilled))
                changes = []
        if self._confirm() or unstored:
            effects.append(Apply(changes, self._position()))
        return [*effects, reload] if reload else effects + self._spill()

    def _is_new(self, record: TableDefinition) -> bool:
        return self._takes(record.table.name) and table_topic(self._changelog, record.table.name) not in self._tables

    def _compacted(self, record: CommitRecord) -> Reload | None:
        """Why the next commit cannot be applied, if so."""
        if record.number > self._commit + 1:
            where = f"partition {self._commits}-{self._shard} at offset {record.offset}"
            return Reload(f"{where}: commit {record.number} follows commit {self._commit}: those between are compacted")
        for queue in self._lacking(record):
            if queue.last_commit > record.number or queue.at_end:
                return Reload(
                    f"partition {queue.topic}-{self._shard}: commit {record.number} has {record.changes[queue.table]} changes, and the log "
                    f"has {queue.count(record.number)} of them: the others are compacted"
                )
        for table in record.changes:
            if self._takes(table) and table_topic(self._changelog, table) not in self._queues:
                return Reload(f"table {table} of commit {record.number} is not in the store", find_tables=True)
        return None

    def _lacking(self, record: CommitRecord) -> Sequence[TableQueue]:
        """Tables of which changes of the commit are not here yet."""
        return [queue for queue in self._queues.values() if queue.count(record.number) < record.changes.get(queue.table, 0)]

    def _check_size(self, record: CommitRecord) -> None:
        size = sum(record.changes.get(queue.table, 0) for queue in self._queues.values())
        if size > self._limits.commit_changes_max:
            reason = f"commit {record.number} has {size} changes, more than {self._limits.commit_changes_max} (commit_changes_max)"
            raise CommitTooLargeError(self._commits, self._shard, record.offset, reason)

    def _check_counts(self, record: CommitRecord) -> None:
        for queue in self._queues.values():
            wanted, found = record.changes.get(queue.table, 0), queue.count(record.number)
            if found > wanted:
                reason = f"commit {record.number} has {wanted} changes of {queue.topic}, and the log has {found}"
                raise CommitCountError(self._commits, self._shard, record.offset, reason)

    def _spill(self) -> list[Effect]:
        record = self._records[0] if self._records else None
        if not isinstance(record, CommitRecord) or not self._is_full():
            return []
        spilled = [change for queue in self._queues.values() for change in queue.spill(record.number)]
        return [Spill(spilled)] if spilled else []

    def _confirm(self) -> bool:
        """Whether the store is from now on what the source was at a commit.

        That nothing more is found before the end that was asked for does not show it: records of commits are superseded by later ones. The
        commit after the applied one is there, or there is none in the whole log.
        """
        if self.stage is not Stage.CONFIRMING or self._ends is None:
            return False
        following = next((each for each in self._records if isinstance(each, CommitRecord)), None)
        if following is None:
            if not self._commits_at_end or self._commits_offset < self._ends[self._commits]:
                return False
        elif following.offset < self._ends[self._commits] or following.number != self._commit + 1:
            return False
        self.stage, self._ends = Stage.FOLLOWING, None
        return True

    def _position(self) -> Position:
        counted = self.stage is Stage.FOLLOWING
        offsets = {queue.topic: queue.position for queue in self._queues.values()}
        offsets[self._commits] = self._records[0].offset if self._records else self._commits_offset
        if self._incomplete_at is not None:
            offsets[self._commits] = self._incomplete_at  # it is read again, and says so again
        return Position(
            Phase.FOLLOWING if counted and self._incomplete_at is None else Phase.LOADING,
            self._epoch,
            self._commit,
            self._commit_ms if counted else self._since_ms,
            offsets,
            dict(self._ids),
            {topic: self._tables[topic] for topic in self._queues},
            self._only is not None,
        )
