"""The publishing end of a database: what its outbox has goes to the log, commit by commit."""

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from moldau.changelog.envelope import CommitRecord
from moldau.changelog.errors import PublisherFencedError, SequenceError
from moldau.changelog.naming import ADDRESS
from moldau.changelog.points import reached
from moldau.changelog.publisher import Publisher
from moldau.changelog.sqlite.connecting import connect, failures, schema_version, writing
from moldau.changelog.sqlite.errors import SourceError
from moldau.changelog.sqlite.installing import Registered, install, refresh, registered, reinstall
from moldau.changelog.sqlite.outbox import STORE, Sealed, changes_left, commit_of, forget, installed_state, seal, sealed_commits, unsealed
from moldau.changelog.sqlite.repairing import delete_missing, tables_to_repair
from moldau.changelog.sqlite.rows import is_reading, publish_next_rows
from moldau.changelog.values import ALL_SHARDS, Table
from moldau.client.failures import ClientError
from moldau.model.errors import MoldauError, PeerError, WorldError

if TYPE_CHECKING:
    from moldau.changelog.sqlite.layout import State

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S: Final = 30.0
_COMMITS_MAX: Final = 500
_ROWS_MAX: Final = 10_000
"""Of small commits that are written in one transaction."""
_FORGET_EVERY: Final = 200
"""Commits that are in the log stay in the outbox until there are so many, or `run` has nothing more to publish."""
_PAUSE_S: Final = 0.02
_RETRY_S: Final = 1.0


class Source:
    """The database at `path` as `shard` of a changelog with so many `shards`. Any thread may use it; calls wait for each other.

    `tables`: which are published, None: those that were named before, or else all whose names do not begin with an underscore. They are
    prepared at once, so that from then on
    the changes of all writers are in the outbox. `promoted_after`: of a replica, the log's last commit, which it has applied. `address` is
    where the database's service is reached: commits have it, and `moldau.changelog.masters` finds it. `options` are those of a `Publisher`.
    SourceError, ChangelogError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        bootstrap_servers: str,
        changelog: str,
        shard: int = 0,
        *,
        tables: Sequence[str] | None = None,
        promoted_after: CommitRecord | None = None,
        address: str = "",
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        **options: Any,
    ) -> None:
        if shard == ALL_SHARDS:
            raise SourceError(f"changelog {changelog}: a database in SQLite is one shard; rows of PostgreSQL can be divided over all")
        self._publisher = Publisher(bootstrap_servers, changelog, shard, **options)
        self._path = path
        self._database = connect(path, busy_timeout_s)
        self._address = {ADDRESS: address} if address else {}
        self._lock = threading.RLock()
        self._version = -1
        self._schemas: dict[int, Registered] = {}
        self._tables: dict[str, Table] = {}
        self._rows_sealed = 0
        """The last commit of rows that were there."""
        self._started = False
        self._fenced: PublisherFencedError | None = None
        try:
            with failures(path):
                self._state: State = install(self._database, changelog, shard, tables, promoted_after=promoted_after)
        except BaseException:
            self._database.close()
            raise

    @property
    def commit(self) -> int:
        """The number of the last commit that is in the log, as far as this source knows."""
        return self._publisher.commit

    def start(self) -> int:
        """Fence the publisher before, and find out what is in the log: the number of the last commit. Once is enough.

        SequenceError if the log has commits that the database does not have.
        """
        with self._locked():
            if self._fenced is not None:
                raise self._fenced
            if not self._started:
                self._state = installed_state(self._database)
                self._check(self._publisher.look())  # before it fences the publisher that may be the right one
                self._check(self._publisher.start())
                self._check_kept()
                self._forget()
                self._started = True
            return self.commit

    def _check(self, last: CommitRecord | None) -> None:
        """The database has all that the log has, and may add to it."""
        if last is None:
            return
        state, subject = self._state, f"changelog {self._state.changelog}, shard {self._state.shard}"
        if last.epoch > state.epoch:
            raise SequenceError(
                f"{subject}: the log is in epoch {last.epoch} and this database in epoch {state.epoch}: another replica was promoted;"
                " make this database again as a replica of it"
            )
        if last.epoch < state.epoch:
            first = self._first_kept(state)
            if last.commit != first - 1:
                raise SequenceError(
                    f"{subject}: the database was promoted after commit {first - 1}, and the log has commit {last.commit} of epoch"
                    f" {last.epoch}: fence the publisher before, apply all that the log has, and promote again"
                )
        if last.epoch == state.epoch and last.source.get(STORE, state.store) != state.store:
            raise SequenceError(f"{subject}: commit {last.commit} in the log is of another database: only a promotion changes the database")
        kept = next(iter(sealed_commits(self._database, last.commit - 1, 1)), None)
        if last.epoch == state.epoch and kept is not None and kept.number == last.commit and kept.time_ms != last.time_ms:
            raise SequenceError(
                f"{subject}: commit {last.commit} in the log is of {last.time_ms} ms since 1970, and that of this database of"
                f" {kept.time_ms}: it is older than the log (a copy, or it was restored) and was written since; make it again from the log"
            )
        if last.commit > state.sealed:
            raise SequenceError(
                f"{subject}: the log has commit {last.commit} and this database only commit {state.sealed}: it is older than the log (a"
                " copy, or it has lost what was written last); make it again from the log"
            )

    def _check_kept(self) -> None:
        """The log has all that is not in the outbox any more."""
        state = self._state
        expected = self._first_kept(state)
        if self.commit < expected - 1:
            raise SequenceError(
                f"changelog {state.changelog}, shard {state.shard}: the log ends with commit {self.commit}, and the database has deleted"
                f" commits up to {expected - 1} from its outbox, which the log had: it was truncated or deleted; begin a new changelog"
            )

    def _first_kept(self, state: "State") -> int:
        """The first commit that the outbox has, or will have."""
        kept = sealed_commits(self._database, 0, 1)
        return kept[0].number if kept else state.sealed + 1

    def publish(self, up_to: int | None = None) -> int:
        """Bring what is committed by now into the log, or only what the log lacks of commits up to a number; the log's last commit.

        PublisherFencedError. WorldError, PeerError, ClientError where the log cannot be written, or the database: the next call continues.
        """
        with self._locked():
            if up_to is not None and self._started and self.commit >= up_to:
                return self.commit
            with self._recovery():
                self.start()
                self._publish(up_to)
                self._end_repairs()
            return self.commit

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One thread at a time uses the database."""
        with self._lock, failures(self._path):
            yield

    @contextmanager
    def _recovery(self) -> Iterator[None]:
        """After an error, or an interruption, the next start finds out what is in the log."""
        try:
            yield
        except PublisherFencedError as error:
            self._fenced = error
            raise
        except BaseException:
            self._started = False
            raise

    def _publish(self, up_to: int | None = None) -> None:
        self._seal()
        target = installed_state(self._database).sealed if up_to is None else up_to
        while self._step():
            if up_to is None and self._rows_sealed:
                target = max(target, self._rows_sealed)
            if self.commit >= target and not (up_to is None and is_reading(self._database)):
                break
        self._forget(_FORGET_EVERY)

    def _end_repairs(self) -> int:
        """Also those that a process before has begun: how many rows were deleted in the log."""
        deleted = 0
        for table in tables_to_repair(self._database):
            self._publish()
            self._publisher.make_topics([table])
            with self._publisher.cluster() as cluster:
                deleted += delete_missing(self._database, cluster, self._state, table)
            self._publish()
        return deleted

    def _step(self) -> bool:
        """The next transaction; whether there was something to do."""
        self._seal()
        found = self._next_commits()
        self._follow_schema()
        if found:
            self._publisher.publish(
                [commit_of(self._database, self._state, each, self._schemas, self._address) for each in found], self._tables
            )
            if found[-1].last_id - found[0].after_id >= _ROWS_MAX:
                self._forget()
        rows = is_reading(self._database) and publish_next_rows(self._database)
        if rows:
            self._rows_sealed = installed_state(self._database).sealed
            reached("rows: chunk committed")
        return rows or bool(found)

    def _seal(self) -> None:
        if unsealed(self._database):
            with writing(self._database):
                if schema_version(self._database) != self._version:
                    refresh(self._database)
                seal(self._database)
            reached("seal: committed")

    def _next_commits(self) -> list[Sealed]:
        """Those that are published in one transaction: a large one, or several small ones."""
        found: list[Sealed] = []
        rows = 0
        for sealed in sealed_commits(self._database, self.commit, _COMMITS_MAX):
            rows += sealed.rows
            if found and rows > _ROWS_MAX:
                break
            found.append(sealed)
        return found

    def _forget(self, least: int = 1) -> None:
        """Delete what the log has from the outbox, if it is so many commits."""
        kept = sealed_commits(self._database, 0, 1)
        if kept and self.commit - kept[0].number + 1 >= least:
            with writing(self._database):
                forget(self._database, self.commit)
            reached("outbox: cleaned")

    def _follow_schema(self) -> None:
        if schema_version(self._database) == self._version:
            return
        with writing(self._database):
            refresh(self._database)
            version = schema_version(self._database)
            self._schemas = registered(self._database)
        self._version = version
        self._tables = {each.table.name: each.table for each in self._schemas.values() if each.current}

    def repair(self, table: str) -> int:
        """Publish all rows of a table again, after its triggers were missing, and delete rows that only the log has: how many.

        If it does not end, the next `publish` ends it. Until then commits are not complete, and replicas are loading.
        """
        with self._locked():
            with writing(self._database):
                reinstall(self._database, self._state.changelog, table)
            with self._recovery():
                self.start()
                return self._end_repairs()

    def run(self, stop: threading.Event, pause_s: float = _PAUSE_S) -> None:
        """Publish what writers commit, until `stop` is set. While the log cannot be written, it is tried again.

        PublisherFencedError and other errors that time does not heal.
        """
        while not stop.is_set():
            try:
                before = self.commit
                if self.publish() == before:
                    with self._locked():
                        self._forget()
                stop.wait(pause_s)
            except (ClientError, WorldError, PeerError) as error:
                if not _may_pass(error):
                    raise
                log.warning("changelog cannot be written, retrying: changelog=%s reason=%s", self._state.changelog, error)
                stop.wait(_RETRY_S)

    def statistics(self) -> dict[str, int]:
        """`commit`: the last one in the log, `sealed`: the last one in the database, `outbox`: changes in the outbox."""
        with self._locked():
            sealed, left = installed_state(self._database).sealed, changes_left(self._database)
            return {"commit": self.commit, "sealed": sealed, "outbox": left}

    def close(self) -> None:
        """End the producer and the connection."""
        with self._lock:
            self._publisher.close()
            self._started = False
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _may_pass(error: MoldauError) -> bool:
    match error:
        case ClientError():  # a transaction whose end is unknown, too: the next start finds out
            return True
        case WorldError():
            return error.retriable
        case PeerError():
            return error.code.retriable
        case _:
            return False
