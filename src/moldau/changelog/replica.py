"""A replica: reads a changelog and brings a store to what the source was, commit by commit.

    with Replica("localhost:9092", "bank", SqliteStore("copy.db")) as replica:
        replica.run()

One thread runs it; `position`, `lag`, `wait_for` and `stop` may be called by any. It reads committed records of the partitions of its
shards without a consumer group: the store has the offsets, in the transaction of the rows. For each shard a `ShardMachine` decides.

After an error every shard is opened again from its stored position, so nothing is missed and nothing half applied, whatever failed.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from moldau.changelog.arrivals import CommitRecords, Ends, TableRecords
from moldau.changelog.effects import Apply, AskEnds, Clear, Effect, Prepare, Reload, Spill
from moldau.changelog.machine import Limits, ShardMachine, Stage
from moldau.changelog.naming import commits_topic
from moldau.changelog.points import reached
from moldau.changelog.replica_errors import MissingTopicError, NoReplicaError, NotAppliedError, ReplicaError, TruncatedLogError
from moldau.changelog.spill import SpilledChanges
from moldau.changelog.starting import decide_start
from moldau.changelog.store import WHOLE, Phase, Position, ReplicaStore
from moldau.changelog.values import Table
from moldau.client.errors import RequestFailedError, TruncationError
from moldau.model.errors import ErrorCode, WorldError
from moldau.model.identity import TopicPartition

log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
"""After an error that may pass."""
_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_MOVED: Final = (*_MISSING, ErrorCode.OFFSET_OUT_OF_RANGE)


class Lag(NamedTuple):
    """How far a shard of a replica is behind what it knows of the log."""

    commits: int
    seconds: float
    """Since the source made the first commit that is not applied; 0 where there is none."""


class Log(Protocol):
    """What a replica reads: `moldau.changelog.log_reader.LogReader`."""

    def shards(self) -> int:
        """How many there are."""
        ...

    def ends(self, shard: int, topics: Collection[str]) -> Ends:
        """Where partitions begin and end."""
        ...

    def fetch(self, wanted: Mapping[TopicPartition, int]) -> Sequence[tuple[int, TableRecords | CommitRecords]]:
        """What comes next in each, with its shard; those of the topic of commits are last."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)
class _Shard:
    """A shard that is open."""

    machine: ShardMachine
    spilled: SpilledChanges | None = None
    current_ms: int = 0
    """Every deletion up to then has been read."""
    stored: dict[str, Table] = field(default_factory=dict)
    """Tables of which the store may have rows that are ours."""


class Replica:
    """Of `shards` (None: all) of a changelog, with its `tables` (None: all, also those that come), in `store`, which is closed with it.

    `begin_again` removes the rows of these shards once and loads them again: for a store whose topics were created again, or that had been
    something else. `wait_ms` bounds how late a commit is noticed where topics have several leaders. `log_of` is for tests.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        changelog: str,
        store: ReplicaStore,
        *,
        shards: Collection[int] | None = None,
        tables: Collection[str] | None = None,
        begin_again: bool = False,
        limits: Limits | None = None,
        wait_ms: int = 100,
        log_of: Log | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.changelog = changelog
        self._commits = commits_topic(changelog)
        self._store = store
        self._wanted_shards = None if shards is None else sorted(set(shards))
        self._only = None if tables is None else frozenset(tables)
        self._begin_again = begin_again
        self._limits = limits
        self._clock_ms = clock_ms
        if log_of is None:
            from moldau.changelog.log_reader import LogReader

            log_of = LogReader(bootstrap_servers, changelog, wait_ms=wait_ms)
        self._log = log_of
        self._shards: dict[int, _Shard] = {}
        self._begun: set[int] = set()
        """Shards that have begun again."""
        self._tables: dict[str, Table] = {}
        """As the store was prepared for them: columns of all shards."""
        self._changed = threading.Condition()
        """Guards what follows."""
        self._positions: dict[int, Position] = {}
        self._lags: dict[int, Lag] = {}
        self._running = False
        self._failure: Exception | None = None
        self._stopping = threading.Event()

    # For any thread

    def position(self, shard: int = 0) -> Position | None:
        """How far the store has the shard; None before it has anything of it."""
        with self._changed:
            return self._positions.get(shard)

    def lag(self, shard: int = 0) -> Lag:
        """How far it is behind, by what was read of the log."""
        with self._changed:
            return self._lags.get(shard, Lag(0, 0.0))

    def wait_for(self, shard: int, commit: int, timeout_s: float = 30.0) -> Position:
        """Return when the store is what the source was at `commit`, or at a later one. Where no thread runs the replica, this one does.

        NotAppliedError says how far it is.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                position = self._positions.get(shard)
                if position is not None and position.phase is Phase.FOLLOWING and position.commit >= commit:
                    return position
                what = f"{self._subject(shard)}: commit {commit}"
                if self._failure is not None:
                    raise NotAppliedError(f"{what} is not applied, the replica has stopped: {self._failure}") from self._failure
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    state = "nothing is there" if position is None else f"it is {position.phase.value}, at commit {position.commit}"
                    raise NotAppliedError(f"{what} was not applied within {timeout_s:g} s: {state}")
                if self._running:
                    self._changed.wait(left_s)
                    continue
            self.step()

    def stop(self) -> None:
        """Let `run` return after the step that it makes."""
        self._stopping.set()

    # For the thread that runs it

    def run(self) -> None:
        """Apply what comes, until `stop`. An error that may pass (a broker that is away) is logged, and tried again.

        RecordError, ReplicaError, StoreError, PeerError: what was applied is in the store as a whole.
        """
        with self._changed:
            self._running, self._failure = True, None
        try:
            while not self._stopping.is_set():
                try:
                    self.step()
                except WorldError as error:
                    if not error.retriable:
                        raise
                    log.warning("changelog replica: changelog=%s: %s; retrying in %g s", self.changelog, error, _PAUSE_S)
                    self._stopping.wait(_PAUSE_S)
        except Exception as error:
            with self._changed:
                self._failure = error
            raise
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()

    def step(self) -> None:
        """Fetch once, and apply what is whole then. Errors are those of `run`, and WorldError."""
        try:
            if not self._shards:
                self._open_all()
            self._fetch()
        except TruncationError as error:
            self._forget()
            topic, partition = error.subject if isinstance(error.subject, TopicPartition) else ("?", -1)
            raise TruncatedLogError(topic, partition, error.message) from error
        except RequestFailedError as error:
            self._forget()
            if error.code in _MOVED:
                self._open_all()  # names what has become of a topic that the store has a position of
                self._forget()
                raise MissingTopicError(f"changelog {self.changelog}: a topic has changed while it was loaded: {error.message}") from error
            raise
        except BaseException:
            self._forget()
            raise

    def _fetch(self) -> None:
        before_ms = self._clock_ms()
        opened = dict(self._shards)
        wanted = {TopicPartition(topic, shard): offset for shard, each in opened.items() for topic, offset in each.machine.wanted().items()}
        following = {shard for shard, each in opened.items() if each.machine.stage is Stage.FOLLOWING}
        at_end: set[TopicPartition] = set()
        fetched = self._log.fetch(wanted)
        reached("replica: fetched")
        for shard, event in fetched:
            if self._shards[shard] is not opened[shard]:
                continue  # it loads again, from other offsets
            if event.at_end:
                at_end.add(TopicPartition(event.topic if isinstance(event, TableRecords) else self._commits, shard))
            self._do(shard, self._shards[shard].machine.step(event, self._clock_ms()))
        for shard, each in self._shards.items():
            read = (
                shard in following
                and each is opened[shard]
                and all(TopicPartition(topic, shard) in at_end for topic in each.machine.topics)
            )
            if read and each.machine.is_current:
                each.current_ms = before_ms
        self._tell_lags()

    def _tell_lags(self) -> None:
        now_ms = self._clock_ms()
        with self._changed:
            for shard, each in self._shards.items():
                since_ms = each.machine.oldest_waiting_ms
                seconds = 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000
                self._lags[shard] = Lag(each.machine.known_commit - each.machine.commit, seconds)

    def _open_all(self) -> None:
        try:
            shards = self._wanted_shards if self._wanted_shards is not None else range(self._log.shards())
        except RequestFailedError as error:
            if error.code not in _MISSING:
                raise
            raise MissingTopicError(f"changelog {self.changelog}: nothing is published: {error.message}") from error
        self._store.prepare(self.changelog, list(self._tables.values()))
        stored = self._store.positions()
        every = sorted({*shards, *stored})
        if not self._store.sharded and len(every) > 1:
            theirs = ", ".join(map(str, every))
            raise ReplicaError(
                f"changelog {self.changelog}: the store has tables of one shard, and there are shards {theirs}: open it with sharded=True"
            )
        with self._changed:
            self._positions = dict(stored)
        for shard in shards:
            self._open(shard)

    def _open(self, shard: int, reload: Reload | None = None, current_ms: int = 0) -> None:
        stored = self.position(shard)
        begin_again = self._begins_again(shard)
        topics = [self._commits] if stored is None or begin_again else list(stored.offsets)
        start = decide_start(
            shard,
            stored,
            self._commits,
            self._ends(shard, topics),
            self._clock_ms(),
            begin_again=begin_again,
            only=self._only,
            reload=reload,
            current_ms=current_ms,
        )
        position = start.position
        log.log(
            logging.WARNING if reload else logging.INFO,
            "changelog replica opened: changelog=%s shard=%d phase=%s commit=%d clear=%s%s",
            self.changelog,
            shard,
            position.phase.value,
            position.commit,
            start.clear,
            f" reason={start.reason}" if start.reason else "",
        )
        machine = ShardMachine(self.changelog, shard, position, clear=start.clear, only=self._only, limits=self._limits)
        tables = {} if stored is None else {table.name: table for table in stored.tables.values()}
        self._shards[shard] = _Shard(machine, current_ms=current_ms, stored=tables)
        with self._changed:
            self._positions[shard] = position  # one that loads again is not believed from now on
        self._do(shard, machine.start())

    def _ends(self, shard: int, topics: Collection[str]) -> Ends:
        try:
            return self._log.ends(shard, topics)
        except RequestFailedError as error:
            if error.code not in _MISSING:
                raise
            raise MissingTopicError(f"{self._subject(shard)}: a topic of the changelog is missing: {error.message}") from error

    def _do(self, shard: int, effects: Sequence[Effect]) -> None:
        """Carry out effects, and those that follow from their answers."""
        here = self._shards[shard]
        for effect in effects:
            match effect:
                case AskEnds(topics):
                    self._do(shard, here.machine.step(self._ends(shard, topics), self._clock_ms()))
                case Prepare(tables):
                    self._prepare(shard, tables)
                case Clear(position):
                    self._clear(shard, position)
                case Spill(changes):
                    if here.spilled is None:
                        here.spilled = SpilledChanges()
                    here.spilled.extend(changes)
                    reached("replica: spilled")
                case Apply():
                    self._apply(shard, here, effect)
                case Reload():
                    self._drop_spilled(here)
                    self._open(shard, effect, here.current_ms)

    def _prepare(self, shard: int, tables: Sequence[Table]) -> None:
        for table in tables:
            known = self._tables.get(table.name)
            columns = {**known.columns, **table.columns} if known is not None else dict(table.columns)
            self._tables[table.name] = Table(table.name, columns, table.key)
        self._store.prepare(self.changelog, list(self._tables.values()))
        reached("replica: prepared")
        stored = self._shards[shard].stored
        for table in tables:
            if table.name not in stored and not self._begins_again(shard):
                self._check_empty(shard, table.name)
            stored[table.name] = table

    def _begins_again(self, shard: int) -> bool:
        return self._begin_again and shard not in self._begun

    def _check_empty(self, shard: int, table: str) -> None:
        rows = self._store.checksum(shard, table, WHOLE).rows
        if rows:
            raise NoReplicaError(
                f"{self._subject(shard)}: table {table} of the store has {rows} rows, and the store has no position of it in this "
                f"changelog: it may be something else than a replica; the replica stops. With begin_again its rows are removed"
            )

    def _clear(self, shard: int, position: Position) -> None:
        """Also tables that are no longer wanted, or no longer there."""
        stored = self._shards[shard].stored
        self._store.prepare(self.changelog, [*self._tables.values(), *(each for name, each in stored.items() if name not in self._tables)])
        self._store.clear(shard, position)
        reached("replica: cleared")
        self._store.prepare(self.changelog, list(self._tables.values()))
        self._begun.add(shard)
        self._stored(shard, position)

    def _apply(self, shard: int, here: _Shard, effect: Apply) -> None:
        changes = effect.changes
        if effect.spilled:
            assert here.spilled is not None
            here.spilled.extend(changes)
            changes = here.spilled
        self._store.apply(shard, changes, effect.position)
        reached("replica: applied")
        if effect.spilled:
            self._drop_spilled(here)
        before = self.position(shard)
        if before is not None and before.phase is Phase.LOADING:
            here.current_ms = max(here.current_ms, before.commit_ms)
        self._stored(shard, effect.position)

    def _stored(self, shard: int, position: Position) -> None:
        with self._changed:
            before = self._positions.get(shard)
            self._positions[shard] = position
            self._changed.notify_all()
        if position.phase is Phase.FOLLOWING and (before is None or before.phase is Phase.LOADING):
            log.info("changelog replica follows: changelog=%s shard=%d commit=%d", self.changelog, shard, position.commit)

    def _drop_spilled(self, here: _Shard) -> None:
        if here.spilled is not None:
            here.spilled.close()
            here.spilled = None

    def _forget(self) -> None:
        """Open every shard again at the next step, from what the store has."""
        for each in self._shards.values():
            self._drop_spilled(each)
        self._shards.clear()

    def _subject(self, shard: int) -> str:
        return f"changelog {self.changelog}, shard {shard}"

    def statistics(self) -> Mapping[int, Mapping[str, int | str]]:
        """By shard: its stage, the commit that is applied, the last one known, and changes in memory."""
        return {
            shard: {
                "stage": each.machine.stage.value,
                "commit": each.machine.commit,
                "known_commit": each.machine.known_commit,
                "held": each.machine.held,
            }
            for shard, each in self._shards.items()
        }

    def close(self) -> None:
        """Close the store and the connections. `run` has returned."""
        self._forget()
        self._log.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
