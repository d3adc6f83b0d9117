"""PostgreSQL as the source of a changelog: rows that are there, then each transaction, from a replication slot.

::

    CONNECTING ──slot continues where the log ends──────────────────────────────────────▶ STREAMING
        ▲  │                                                                                  │
        │  └──the log is empty or unfinished, or `republish`──▶ PUBLISHING READING ──complete──▶ │
        └──────── the server or the brokers are away: again, after a pause ◀──────────────────┘

Rules that hold here:

* A place in the server's log (LSN) is confirmed to the server only after the changelog has the commit that ends there. So the slot never
  begins after the changelog's last commit; where it does, changes are lost, which is an error with a name (`SlotLostError`).
* A commit is published once: its LSN is in its record in the log, and reading continues after the last one.
* The publisher is started before the slot is used, so an older publisher of the changelog can write no more when its connection is ended.
"""

import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from moldau.changelog.envelope import CommitRecord
from moldau.changelog.errors import PublisherFencedError
from moldau.changelog.naming import ADDRESS
from moldau.changelog.postgres.batch import Batch
from moldau.changelog.postgres.errors import RefusedError, SlotLostError, SlotState, TableError, UnreachableServerError
from moldau.changelog.postgres.lsn import lsn_of, lsn_text
from moldau.changelog.postgres.pgoutput import Relation, decode
from moldau.changelog.postgres.publication import Publication, Renumbered
from moldau.changelog.postgres.replication import Received, ReplicationConnection
from moldau.changelog.postgres.retries import Retries
from moldau.changelog.postgres.sessions import Server
from moldau.changelog.postgres.slots import ALL, LSN, READING, Standing, slot_name
from moldau.changelog.postgres.snapshot import Snapshot
from moldau.changelog.postgres.tables import TableName, TableView, name_of
from moldau.changelog.postgres.transactions import NewView, Transaction, Transactions, Truncated
from moldau.changelog.values import Change, Commit, Key, Op, Row, Table
from moldau.client.errors import may_pass
from moldau.client.failures import ClientError, FencedError
from moldau.model.errors import MoldauError, PeerError, WorldError

_LOG = logging.getLogger(__name__)

DELETIONS_MAX: Final = 2_000
"""In a commit that removes rows which are not there any more."""
MARK_BYTES: Final = 16 << 20
"""A commit without changes is published when the server's log has grown by so much with no change of the tables: the server keeps the log
from the last commit on."""
RECEIVE_S: Final = 0.2
_NAME: Final = re.compile(r"[a-z0-9_]{1,56}")


class LogPublisher(Protocol):
    """What is needed of `moldau.changelog.publisher.Publisher`."""

    changelog: str
    shard: int
    last: CommitRecord | None

    @property
    def divided_over(self) -> int:
        """How many shards rows are divided over."""
        ...

    def look(self) -> CommitRecord | None:
        """The last commit in the log; nothing is fenced."""
        ...

    def start(self) -> CommitRecord | None:
        """Fence the publisher before, and find the last commit in the log."""
        ...

    def publish(self, commits: Sequence[Commit], tables: Mapping[str, Table]) -> None:
        """Write whole commits; they are in the log when it returns."""
        ...


class LogKeys(Protocol):
    """See `moldau.changelog.postgres.published_keys.PublishedKeys`."""

    def of(self, table: str) -> Mapping[str, Key]:
        """Keys of the rows that the log has of a table, by the text of their records' keys."""
        ...

    def misplaced(self, table: str) -> Mapping[int, Sequence[Key]]:
        """Keys of rows that are in another shard than rows are divided to, by the shard that they are in."""
        ...


class SourceState(Enum):
    """What a source does."""

    CONNECTING = "connecting"
    PUBLISHING_ROWS = "publishing rows"
    STREAMING = "streaming"
    STOPPED = "stopped"


class Republish(Enum):
    """When a changelog that was complete is published again as a whole."""

    NEVER = "never"
    """Where changes are lost the source ends with an error."""
    LOST = "lost"
    """Where changes are lost, unless the last commit is of another database."""
    NOW = "now"
    """At the start, once."""


class Choices(NamedTuple):
    """How a source works, where it can be chosen."""

    slot: str = ""
    """Of the replication slot and the publication; by default `moldau_CHANGELOG`."""
    republish: Republish = Republish.NEVER
    """Whether the changelog is published again as a whole; rows that are not there any more are deleted from it."""
    before_images: bool = True
    """Set REPLICA IDENTITY FULL for the tables, so that changes come with the row before them."""
    as_text: Sequence[str] = ()
    """TABLE.COLUMN of columns whose values are published as text, whatever their type is."""
    address: str = ""
    """Where the database is reached: commits have it, and `moldau.changelog.masters` finds it."""


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Since the source was made."""

    state: SourceState
    commit: int
    """The last one in the log."""
    lsn: str
    """Up to where the server's log is published."""
    commits: int
    changes: int
    connections_lost: int


class PostgresSource:
    """Publishes the tables of one database as one shard, or with a publisher of all shards divided over them. Used by one thread;
    `statistics` by any.

    RefusedError for a name that a slot cannot have, and for another text than a connection string of libpq.
    """

    def __init__(
        self, conninfo: str, tables: Iterable[str], publisher: LogPublisher, keys: LogKeys, choices: Choices | None = None
    ) -> None:
        self._choices = choices or Choices()
        self._server = Server(conninfo)
        self._publisher = publisher
        self._keys = keys
        self._slot = self._choices.slot or slot_name(publisher.changelog)
        if not _NAME.fullmatch(self._slot):
            raise RefusedError(
                f"{self._server.name}: a replication slot cannot be named {self._slot}: it has a to z, 0 to 9 and '_', at most 56;"
                " choose another name (slot)"
            )
        names = [name_of(each) for each in tables]
        self._publication = Publication(self._server, self._slot, names, _columns_by_table(names, self._choices.as_text))
        self._republish = self._choices.republish
        self._is_started = False
        self._retries = Retries(self._server.name, threading.Event())
        self._transactions = Transactions({}, {})
        self._changed: dict[str, TableView] = {}
        """Tables that the open transaction has described."""
        self._renumbered: dict[str, tuple[TableView, Renumbered]] = {}
        """Tables that are published again when the stream is there."""
        self._rekeyed: dict[TableName, int] = {}
        """Tables whose key was altered again, and from where on the stream has the rows of the last keys."""
        self._state = SourceState.CONNECTING
        self._lsn = 0
        self._origin: Mapping[str, str | int] = {}
        self._epoch = 1
        """At least; that of the log, or the next one where another store was promoted."""
        self._commits = self._changes = self._lost = 0

    def statistics(self) -> SourceStatistics:
        """A moment of it."""
        last = self._publisher.last
        return SourceStatistics(
            self._state, 0 if last is None else last.commit, lsn_text(self._lsn), self._commits, self._changes, self._lost
        )

    def run(self, stop: threading.Event) -> None:
        """Publish until `stop`. While the server or the brokers are away it tries again; the first connection has to succeed.

        SlotLostError, TableError, RefusedError, PublisherFencedError, ValueRefusedError, UnreachableServerError.
        """
        retries = self._retries = Retries(self._server.name, stop)
        try:
            while not stop.is_set():
                try:
                    self._run_connected(stop)
                except (ClientError, PeerError, WorldError) as error:
                    if not _may_pass(error):
                        raise
                    self._is_started = self._is_started and isinstance(error, UnreachableServerError)
                    self._state, self._lost = SourceState.CONNECTING, self._lost + 1
                    retries.pause(error)
                except PublisherFencedError:
                    raise  # for good: another start would fence the one that has taken over
                except BaseException:  # an interruption, after which it is not known whether a commit is in the log
                    self._is_started = False
                    raise
        finally:
            self._state = SourceState.STOPPED

    def _run_connected(self, stop: threading.Event) -> None:
        with self._publication.opened() as publication:
            found = self._publisher.look()
            self._retries.connected()  # the server and the brokers are there: from here on either may be away
            if not self._is_started:
                self._check_place(publication, found)  # before it fences the publisher that may be the right one
                self._publisher.start()
                self._is_started = True
            last = self._publisher.last
            if found is not None and (found.epoch, found.commit) > ((0, 0) if last is None else (last.epoch, last.commit)):
                raise PublisherFencedError(self._publisher.changelog, self._publisher.shard, 0 if last is None else last.commit)
            standing = self._check_place(publication, last)
            self._origin = {**publication.origin(), **({ADDRESS: self._choices.address} if self._choices.address else {})}
            if standing.state is SlotState.READY:
                assert last is not None
                self._lsn = lsn_of(str(last.source[LSN]))
                publication.check()
                publication.release()
            else:
                _LOG.warning(
                    "changelog of PostgreSQL is published as a whole: server=%r slot=%s state=%s reason=%r",
                    self._server.name, self._slot, standing.state.value, standing.detail,
                )  # fmt: skip
                if standing.state is SlotState.REPLACED and last is not None:
                    self._epoch = last.epoch + 1
                self._publish_all(publication)
            keys = publication.keys()
            self._rekeyed = dict(publication.with_other_keys())
        self._retries.connected()
        self._end_publishing_again()
        connection = ReplicationConnection(self._server, self._slot)
        try:
            self._check_ready()
            connection.start(self._slot, self._slot, self._lsn)
            _LOG.info("changelog of PostgreSQL continues: server=%r slot=%s lsn=%s", self._server.name, self._slot, lsn_text(self._lsn))
            self._transactions = Transactions(keys, self._publication.as_text)
            self._changed.clear()
            self._renumbered.clear()
            self._state = SourceState.STREAMING
            self._stream(connection, stop)
        finally:
            connection.close()
            self._transactions.close()

    def _check_place(self, publication: Publication, last: CommitRecord | None) -> Standing:
        """How the slot stands to the log. SlotLostError where nothing may be published."""
        standing = publication.standing(None if last is None else last.source, self._publisher.divided_over)
        match standing.state:
            case SlotState.FOREIGN | SlotState.DIVIDED:
                pass
            case SlotState.REPLACED if self._republish is not Republish.NOW:  # the rows of the one that was promoted would be lost
                pass
            case SlotState.READY if self._republish is Republish.NOW:
                return Standing(SlotState.UNFINISHED, "it is to be published again")
            case SlotState.READY | SlotState.UNFINISHED:
                return standing
            case _ if self._republish is not Republish.NEVER:
                return standing
        raise SlotLostError(self._server.name, self._slot, standing.state, standing.detail)

    def _check_ready(self) -> None:
        """Right before the stream is started: if the slot was advanced or made again since it was looked at, the server would begin
        after the log's last commit, without an error.
        """
        with self._publication.opened() as publication:
            standing = self._check_place(publication, self._publisher.last)
        if standing.state is not SlotState.READY:
            raise UnreachableServerError(self._server.name, f"replication slot {self._slot} is {standing.state.value}: {standing.detail}")

    # Rows that are there

    def _publish_all(self, publication: Publication) -> None:
        """A new slot, and all rows of its snapshot; what the log has of other rows is deleted."""
        self._state = SourceState.PUBLISHING_ROWS
        is_first = self._publisher.last is None
        publication.make_anew(before_images=self._choices.before_images, is_first=is_first)
        snapshot = self._first_snapshot(publication)
        views = publication.views()
        tables = {view.table.name: view.table for view in views}
        self._publish_in_all({READING: ALL})
        for view in views:
            name = view.table.name
            stale = {} if is_first else dict(self._keys.of(name))
            for shard, keys in () if is_first else self._keys.misplaced(name).items():
                self._publish_deletions(name, keys, tables, ALL, shard)  # before the rows, whose keys stores may take for the same
            self._publish_rows(snapshot, view, tables, ALL, stale)
        snapshot.close()
        publication.remember_anew(views)
        self._publish_commit([], tables, {})
        if self._republish is Republish.NOW:
            self._republish = Republish.NEVER

    def _first_snapshot(self, publication: Publication) -> Snapshot:
        """That of a new slot. The slot is made first: it waits for the transactions that are open, which may wait for a lock on a table."""
        while True:
            connection = ReplicationConnection(self._server, self._slot)
            try:
                exported = connection.create_slot(self._slot)
                snapshot = publication.snapshot()
                snapshot.take(exported.snapshot)
            finally:
                connection.close()
            if publication.is_as_in_snapshot():
                self._lsn = exported.lsn
                return snapshot
            _LOG.info("a table was altered or truncated, beginning again: server=%r slot=%s", self._server.name, self._slot)
            snapshot.close()
            publication.drop_slot()

    def _publish_rows(self, snapshot: Snapshot, view: TableView, tables: Mapping[str, Table], what: str, stale: dict[str, Key]) -> None:
        """The rows of one table; what is left of `stale` without them, keys that the log has, is deleted there."""
        equal: dict[Key, str] = {}
        doubled = [text for text, key in stale.items() if equal.setdefault(key, text) is not text]
        self._publish_deletions(view.table.name, [stale.pop(text) for text in doubled], tables, what)
        for rows in snapshot.rows(view):
            changes: list[Change] = []
            for change in map(partial(_read, view), rows):
                if equal:
                    text, former = view.record_key(change.key), equal.get(change.key)
                    stale.pop(text, None)
                    if former is not None and former != text and (key := stale.pop(former, None)) is not None:
                        # 1.0 is 1.00 now: one row in a store of numbers, so the deletion comes first
                        changes.append(Change(change.table, Op.DELETE, key, None, None))
                changes.append(change)
            self._publish_commit(changes, tables, {READING: what})
        self._publish_deletions(view.table.name, list(stale.values()), tables, what)

    def _publish_deletions(self, table: str, keys: Sequence[Key], tables: Mapping[str, Table], what: str, shard: int | None = None) -> None:
        """Of rows that the log has and the table has not; with `shard` of those that are there by mistake."""
        for start in range(0, len(keys), DELETIONS_MAX):
            changes = [Change(table, Op.DELETE, key, None, None) for key in keys[start : start + DELETIONS_MAX]]
            self._publish_commit(changes, tables, {READING: what}, shard)

    def _publish_in_all(self, source: Mapping[str, str]) -> None:
        """A commit without changes in each of several shards, whose next one may be far: replicas see by it whether rows are missing."""
        if self._publisher.divided_over > 1:
            self._publish_commit([], {}, source)

    def _publish_again(self, view: TableView, renumbered: Renumbered | None = None) -> None:
        """The rows of a table whose columns have changed, as they are now. Changes that come later in the stream may be older than these
        rows: they are repeated in their order, so the last one of each row is right again. Where the key's columns are others, rows may
        have other keys, and the log has rows of the former ones.
        """
        with self._publication.opened() as publication:
            if publication.view_of(view.name) is not None and (renumbered is not None or publication.has_other_values(view)):
                _LOG.info("table is published again, its columns have changed: server=%r table=%s", self._server.name, view.table.name)
                snapshot = publication.snapshot([view.name])
                snapshot.take(None)
                now = publication.view_of(view.name)
                assert now is not None, "it is locked"
                stale = dict(self._keys.of(view.table.name)) if publication.has_other_keys(view, renumbered) else {}
                self._publish_rows(snapshot, now, {now.table.name: now.table}, view.table.name, stale)
                self._publish_in_all({})
                snapshot.close()
            publication.remember([view], renumbered)
            self._rekeyed = dict(publication.with_other_keys())

    def _end_publishing_again(self) -> None:
        """If the source before has ended in the rows of a table whose columns have changed: some of them are in the log as they were."""
        last = self._publisher.last
        if last is None or READING not in last.source:
            return
        with self._publication.opened() as publication:
            view = publication.view_of(name_of(str(last.source[READING])))
            renumbered = None if view is None else publication.renumbered(view.name)
        if view is not None:
            self._publish_again(view, renumbered)

    # Transactions

    def _stream(self, connection: ReplicationConnection, stop: threading.Event) -> None:
        batch = Batch()
        while not stop.is_set():
            received = connection.receive(0 if batch.transactions else RECEIVE_S)
            if received is None:
                self._retries.lasts()
            if received is not None:
                self._take(received, batch)
            if batch.transactions and (received is None or batch.is_due()):
                self._publish(batch)
                connection.confirm(self._lsn)
            elif received is not None and received.data is None and self._mark(received, batch):
                connection.confirm(self._lsn)

    def _take(self, received: Received, batch: Batch) -> None:
        message = None if received.data is None else decode(received.data)
        if isinstance(message, Relation):
            self._publish(batch)  # with the tables as they were
        match self._transactions.take(message, 0 if received.data is None else len(received.data)):
            case Transaction() as transaction:
                if transaction.changes and transaction.end_lsn > self._lsn:
                    batch.add(transaction)
                else:
                    transaction.close()
                self._follow(batch, transaction.end_lsn)
            case NewView(view):
                with self._publication.opened() as publication:
                    publication.check_now(view.name)
                    renumbered = publication.renumbered(view.name)
                self._changed[view.table.name] = view
                renumbered = renumbered or self._renumbered.get(view.table.name, (view, None))[1]
                if renumbered is not None:
                    self._renumbered[view.table.name] = (view, renumbered)
            case Truncated(views):
                self._publish(batch)
                for view in views:
                    self._transactions.delete_rows(view, self._keys.of(view.table.name))
            case None if received.data is None and not self._transactions.is_open:
                self._follow(batch, received.wal_end)
            case _:
                pass

    def _follow(self, batch: Batch, lsn: int) -> None:
        """Publish tables again whose columns have changed, after the transaction in which the stream has said so: that transaction may have
        changed rows before it altered the table, which would come after the rows of now, without their new values. Where the stream does
        not say it, after all that was committed when it was noticed; so are those whose key was altered again since: the changes in between
        are of rows with the keys before.
        """
        changed = [view for view in self._changed.values() if not self._publication.knows(view)]
        self._changed.clear()
        due = [name for name, (_, renumbered) in self._renumbered.items() if renumbered.lsn <= lsn]
        if changed or due:
            self._publish(batch)
        for view in changed:
            self._publish_again(view)
        for name in due:
            self._publish_again(*self._renumbered.pop(name))
        for table in [table for table, at in self._rekeyed.items() if at <= lsn]:
            self._publish(batch)
            del self._rekeyed[table]
            with self._publication.opened() as publication:
                now = publication.view_of(table)
            if now is not None and not self._publication.knows(now):
                self._publish_again(now)

    def _publish(self, batch: Batch) -> None:
        transactions = batch.take()
        if not transactions:
            return
        number, epoch = self._next()
        commits = [
            Commit(self._publisher.shard, epoch, number + index, each.time_ms, each.changes, self._place(each.end_lsn))
            for index, each in enumerate(transactions)
        ]
        self._publisher.publish(commits, self._transactions.tables())
        self._count(commits)
        self._lsn = transactions[-1].end_lsn
        for transaction in transactions:
            transaction.close()

    def _mark(self, received: Received, batch: Batch) -> bool:
        """Publish a commit without changes, so that the server need not keep its log from the last one on, nor wait for it to shut down."""
        if received.wal_end - self._lsn < (1 if received.wants_reply else MARK_BYTES) or batch.transactions or self._transactions.is_open:
            return False
        self._lsn = received.wal_end
        self._publish_commit([], {}, {})
        return True

    def _publish_commit(
        self, changes: Sequence[Change], tables: Mapping[str, Table], source: Mapping[str, str], shard: int | None = None
    ) -> None:
        number, epoch = self._next()
        where, now_ms = self._publisher.shard if shard is None else shard, time.time_ns() // 1_000_000
        commit = Commit(where, epoch, number, now_ms, changes, {**self._place(self._lsn), **source})
        self._publisher.publish([commit], tables)
        self._count([commit])

    def _place(self, lsn: int) -> Mapping[str, str | int]:
        return {LSN: lsn_text(lsn), **self._origin}

    def _next(self) -> tuple[int, int]:
        """Number and epoch of the next commit."""
        last = self._publisher.last
        return (1, 1) if last is None else (last.commit + 1, max(last.epoch, self._epoch))

    def _count(self, commits: Sequence[Commit]) -> None:
        self._commits += len(commits)
        self._changes += sum(len(commit.changes) for commit in commits)


def _may_pass(error: MoldauError) -> bool:
    if isinstance(error, ClientError):  # a transaction whose end is unknown, too: the next start finds out
        return not isinstance(error, FencedError)
    return may_pass(error)


def _read(view: TableView, row: Row) -> Change:
    return Change(view.table.name, Op.READ, view.key_of(row), None, row)


def _columns_by_table(names: Sequence[TableName], as_text: Sequence[str]) -> Mapping[TableName, set[str]]:
    found: dict[TableName, set[str]] = {}
    for each in as_text:
        table, _, column = each.rpartition(".")
        if (name := name_of(table)) not in names:
            raise TableError(f"as_text = {each}: {table or 'a column without a table'} is none of the published tables")
        found.setdefault(name, set()).add(column)
    return found
