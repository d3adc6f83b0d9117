"""The publisher of one shard, or of all: one transactional producer, which writes commits whole, once and in order.

Its start fences the publisher before and ends what that had open; the last commit in the log then says where to continue. Nothing else is
kept of it.

**A publisher of all shards** (`ALL_SHARDS`) divides commits by the hash of their rows' keys: what is published is a commit in each shard
that it has changes of, all in one transaction of the log. A commit without changes is one in each shard, and so is one before which tables
are described. It fences the publishers of single shards, and each of those fences it: whatever the order in which both start, at most one
can write to a shard, since each takes its own transactional id first, and those of the others after that.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from moldau.changelog.all_shards import last_transaction
from moldau.changelog.commit_parts import CommitParts, subject
from moldau.changelog.defined_tables import defined_tables
from moldau.changelog.envelope import CommitRecord, encode_table
from moldau.changelog.errors import ChangelogError, CommitTooLongError, PublisherFencedError, SequenceError
from moldau.changelog.last_commit import last_commit
from moldau.changelog.naming import check_changelog, check_shard, commits_topic, shard_text, table_topic, transactional_id
from moldau.changelog.points import reached
from moldau.changelog.topics import ensure_topics
from moldau.changelog.values import ALL_SHARDS, Commit, Table
from moldau.client.failures import ClientError, FencedError, SendError, TransactionAbortedError
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.producer import Producer

log = logging.getLogger(__name__)

QUEUE: Final[Mapping[str, Any]] = {"queue.buffering.max.kbytes": 64 << 10}
"""What librdkafka holds of a transaction before the brokers have it."""
_ATTEMPTS: Final = 3
"""Of a transaction that brokers abort."""
_REFUSALS: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.POLICY_VIOLATION)
"""Of a record, which the next attempt would meet again."""


class Publisher:
    """Of `shard` of a changelog with so many `shards`, or of `ALL_SHARDS`. `start` comes first; one thread uses it.

    A transaction of more than `transaction_timeout_ms` is aborted by the brokers. `topic_configs` are those of topics that are made;
    `settings` are librdkafka's own. ChangelogError for a name or a shard that cannot be.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        changelog: str,
        shard: int = 0,
        *,
        shards: int = 1,
        transaction_timeout_ms: int = 60_000,
        topic_configs: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.changelog = check_changelog(changelog)
        self.shard = check_shard(shard, shards)
        self._bootstrap_servers = bootstrap_servers
        self._shards = shards
        self._own = range(shards) if shard == ALL_SHARDS else range(shard, shard + 1)
        self._transaction_timeout_ms = transaction_timeout_ms
        self._topic_configs = topic_configs
        self._settings = settings
        self._commits = commits_topic(changelog)
        self._producer: Producer | None = None
        self._tables: dict[str, Table] = {}
        """As this publisher has written them."""
        self._topics: dict[str, str] = {}
        """By table; they exist."""
        self.last: CommitRecord | None = None
        """The last commit in the log; of all shards the last transaction, with its number."""
        self._last: dict[int, CommitRecord] = {}
        """By shard, of those that have one."""
        self._undecided: str | None = None
        """The commits of a transaction of which it is not known whether it is in the log."""

    @property
    def commit(self) -> int:
        """The number of the last commit in the log, or of the last transaction of all shards; 0 before the first."""
        return 0 if self.last is None else self.last.commit

    @property
    def divided_over(self) -> int:
        """How many shards rows are divided over; 1 for the publisher of a shard."""
        return self._shards if self.shard == ALL_SHARDS else 1

    def look(self) -> CommitRecord | None:
        """The last commit that is decided in the log, while another publisher may be at work: nothing is fenced. TopicError, WorldError."""
        self.make_topics(())
        return self._last_of(self._found(wait=False))

    def start(self) -> CommitRecord | None:
        """Fence the publisher before, and find the last commit in the log. It may be called again after an error.

        TopicError, WorldError, PeerError, ClientError. SequenceError where only some of the shards have commits of a source of all.
        """
        self.close()
        self.make_topics(())
        producer = self._producer_of(self.shard)
        try:
            producer.init_transactions()
            for other in self._rivals():
                self._fence(other)
            self._last = self._found(wait=True)
            self.last = self._last_of(self._last)
            self._check_shards()
        except BaseException:
            producer.close(0.0)
            raise
        self._producer = producer
        self._undecided = None
        self._tables.clear()
        reached("publisher: started")
        log.info("changelog publisher started: changelog=%s shard=%s commit=%d", self.changelog, self._shard_name(), self.commit)
        return self.last

    def _producer_of(self, shard: int) -> "Producer":
        from moldau.client.producer import Producer

        return Producer(
            self._bootstrap_servers,
            client_id=f"changelog-{self.changelog}",
            compression="lz4",
            transactional_id=transactional_id(self.changelog, shard),
            transaction_timeout_ms=self._transaction_timeout_ms,
            settings={**QUEUE, **(self._settings or {})},
        )

    def _rivals(self) -> Sequence[int]:
        """Those that may write to a shard of this publisher, too."""
        return self._own if self.shard == ALL_SHARDS else [ALL_SHARDS] if self._shards > 1 else ()

    def _fence(self, rival: int) -> None:
        producer = self._producer_of(rival)
        try:
            producer.init_transactions()
        finally:
            producer.close(0.0)

    def _found(self, *, wait: bool) -> dict[int, CommitRecord]:
        with self.cluster() as cluster:
            found = {shard: last_commit(cluster, self.changelog, shard, wait=wait) for shard in self._own}
        return {shard: record for shard, record in found.items() if record is not None}

    def _last_of(self, found: Mapping[int, CommitRecord]) -> CommitRecord | None:
        return last_transaction(found.values(), self._shards) if self.shard == ALL_SHARDS else found.get(self.shard)

    def _check_shards(self) -> None:
        """The first transaction of a source of all shards has a commit in each."""
        missing = [shard for shard in self._own if shard not in self._last]
        if missing and self._last and self.commit:
            raise SequenceError(
                f"changelog {self.changelog}, shard {missing[0]}: the log has no commit of it, and other shards have: its records were"
                " deleted; begin a new changelog"
            )

    def publish(self, commits: Sequence[Commit], tables: Mapping[str, Table]) -> None:
        """Write whole commits in one transaction; they are in the log when it returns. `tables` has all that they have changes of.

        PublisherFencedError. SequenceError for a commit that does not follow the last one, and for a table whose topic was deleted.
        ValueRefusedError, ChangelogError for one that cannot be written: nothing of it is. CommitTooLongError. TransactionError: whether it
        was committed is unknown, as it is after an interruption, and `start` finds out; RuntimeError before that.
        """
        if not commits:
            return
        if self._undecided is not None:
            raise RuntimeError(f"{self._undecided}: the transaction was interrupted, and may be in the log: start comes first")
        self._check_sequence(commits)
        self.make_topics(tables)
        for attempt in range(1, _ATTEMPTS + 1):
            begun = time.monotonic()
            try:
                last, written = self._write(commits, tables)
                break
            except FencedError as error:
                self._undecided = None  # this producer writes nothing more
                self._check_time(commits, time.monotonic() - begun, error)
                raise PublisherFencedError(self.changelog, self.shard, self.commit) from error
            except TransactionAbortedError as error:
                self._undecided = None
                refused = error.__cause__ if isinstance(error.__cause__, SendError) else error
                if error.code in _REFUSALS:
                    raise ChangelogError(f"{self._subject(commits)} cannot be published: {refused}") from error
                if attempt == _ATTEMPTS:
                    raise
                log.warning("changelog transaction aborted, publishing it again: %s reason=%s", self._subject(commits), error)
        self._last = last
        self.last = self._last_of(last)
        self._tables.update(written)
        self._undecided = None
        reached("commit: published")

    def _write(self, commits: Sequence[Commit], tables: Mapping[str, Table]) -> tuple[dict[int, CommitRecord], Mapping[str, Table]]:
        """One transaction: the last commits of all shards after it, and tables that it has described. The queue of the producer is bounded,
        so a commit of any size takes no more memory than that.
        """
        producer = self._producer
        assert producer is not None, "start comes first"
        written = {name: table for name, table in tables.items() if self._tables.get(name) != table}
        last = dict(self._last)
        with producer.transaction():
            for table in written.values():
                for shard in self._own:
                    producer.post(self._commits, shard, *encode_table(self.changelog, shard, table))
            for place, commit in enumerate(commits):
                last |= self._send(producer, commit, tables, last, in_all=not commit.changes or (bool(written) and place == 0))
            reached("commit: sent")
            self._undecided = self._subject(commits)
        return last, written

    def _send(
        self, producer: "Producer", commit: Commit, tables: Mapping[str, Table], last: Mapping[int, CommitRecord], *, in_all: bool
    ) -> dict[int, CommitRecord]:
        numbers = {shard: record.commit for shard, record in last.items()}
        parts = CommitParts(self.changelog, commit, self._shards, numbers, self._topics, tables, producer.post)
        if in_all:
            parts.open(self._own)
        elif commit.shard != ALL_SHARDS:
            parts.open([commit.shard])
        for index, change in enumerate(commit.changes):
            parts.send(change)
            if index == 1:
                reached("commit: half sent")
        records = parts.end(self._commits, commit.number if self.shard == ALL_SHARDS else None)
        return {record.shard: record for record in records}

    def _check_time(self, commits: Sequence[Commit], open_s: float, error: FencedError) -> None:
        """Brokers fence the producer of a transaction that they abort because it took too long."""
        if open_s * 1000 > self._transaction_timeout_ms:
            self.close()
            raise CommitTooLongError(
                f"{self._subject(commits)} cannot be published: the transaction was open for {open_s:.0f} s, and brokers abort it after"
                f" transaction_timeout_ms={self._transaction_timeout_ms}: raise it, up to transaction.max.timeout.ms of the brokers"
            ) from error

    def _check_sequence(self, commits: Sequence[Commit]) -> None:
        number, epoch = self.commit, 0 if self.last is None else self.last.epoch
        for commit in commits:
            here = f"changelog {self.changelog}, {shard_text(self.shard)}"
            if commit.shard != self.shard and (self.shard != ALL_SHARDS or commit.shard not in self._own):
                raise SequenceError(f"{here}: commit {commit.number} is of shard {commit.shard}")
            if commit.number != number + 1 or commit.epoch < epoch:
                raise SequenceError(
                    f"{here}: commit {commit.number} of epoch {commit.epoch} does not follow commit {number} of epoch {epoch}"
                )
            number, epoch = commit.number, commit.epoch

    def _subject(self, commits: Sequence[Commit]) -> str:
        return subject(self.changelog, commits[0], commits[-1])

    def make_topics(self, tables: Iterable[str]) -> None:
        """Make what is missing of the topics of the changelog and of these tables. TopicError, SequenceError, WorldError, PeerError."""
        missing = [name for name in tables if name not in self._topics]
        if missing or self._producer is None:
            with self.cluster() as cluster:
                defined = cache(partial(defined_tables, cluster, self.changelog, self._own[0]))
                ensure_topics(cluster, self.changelog, missing, self._shards, self._topic_configs, defined=defined)
            self._topics.update({name: table_topic(self.changelog, name) for name in missing})

    def cluster(self) -> "Cluster":
        """A client of the brokers, for look-ups."""
        from moldau.client.cluster import Cluster

        return Cluster(self._bootstrap_servers, client_id=f"changelog-{self.changelog}")

    def close(self) -> None:
        """End the producer, and the transaction that it may have open. `start` may follow."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(1.0)
        except (ClientError, TimeoutError) as error:
            log.warning("changelog publisher: changelog=%s shard=%s: while closing: %s", self.changelog, self._shard_name(), error)

    def _shard_name(self) -> str:
        return "all" if self.shard == ALL_SHARDS else str(self.shard)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
