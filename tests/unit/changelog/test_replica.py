"""A replica over a changelog in memory: what it does at its start, and what it says of itself."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from moldau.changelog import spill
from moldau.changelog.arrivals import ChangeRecord
from moldau.changelog.envelope import CommitRecord
from moldau.changelog.replica import Lag, Replica
from moldau.changelog.replica_errors import NoReplicaError, NotAppliedError, RecreatedTopicError, ReplicaError
from moldau.changelog.spill import SpilledChanges, SpillError
from moldau.changelog.sqlite.connecting import connect
from moldau.changelog.sqlite.installing import install
from moldau.changelog.store import WHOLE, Phase
from moldau.changelog.stores.dictionary import DictionaryStore
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import Change, Op, Table
from moldau.client.errors import UnreachableError
from moldau.model.identity import TopicPartition
from support.replica_stores import account, drop, put
from support.simulated_changelog import CHANGELOG, COMMITS, SimulatedChangelog

ACCOUNTS = Table("accounts", {"id": "integer", "owner": "text", "balance": "integer"}, ("id",))
OTHERS = ACCOUNTS._replace(name="others")


@pytest.fixture
def log() -> SimulatedChangelog:
    log = SimulatedChangelog(random=Random(1))
    log.define(ACCOUNTS)
    return log


def replica_of(log: SimulatedChangelog, store: DictionaryStore | SqliteStore, **options: object) -> Replica:
    return Replica("nowhere:1", CHANGELOG, store, log_of=log, clock_ms=lambda: log.now_ms, **options)  # type: ignore[arg-type]


def keys(store: DictionaryStore, table: str = "accounts") -> Sequence[object]:
    return [key[0] for key, _ in store.rows(0, table, WHOLE)]


def test_a_deletion_that_the_log_has_forgotten_does_not_leave_its_row(log: SimulatedChangelog) -> None:
    """The replica was away for longer than delete.retention.ms: it begins with an empty store."""
    store = DictionaryStore()
    log.publish(0, put(ACCOUNTS, account(1), account(2)))
    replica_of(log, store).wait_for(0, 1)
    log.publish(0, drop(ACCOUNTS, (1,)))
    log.publish(0, put(ACCOUNTS, account(3)))
    partition = log.partitions[TopicPartition("bank.accounts", 0)]
    while any(isinstance(each, ChangeRecord) and each.change.key == (1,) for each in partition.records):
        log.compact()
    log.forget_deletions()
    log.now_ms += log.delete_retention_ms + 1
    replica_of(log, store).wait_for(0, 3)
    assert keys(store) == [2, 3]


def test_an_old_position_is_good_where_nothing_was_committed_since(log: SimulatedChangelog) -> None:
    store = DictionaryStore()
    log.publish(0, put(ACCOUNTS, account(1)))
    replica_of(log, store).wait_for(0, 1)
    store.apply(0, put(ACCOUNTS, account(77)), store.positions()[0])  # to see whether it is emptied
    log.now_ms += 100 * log.delete_retention_ms
    log.publish(0, put(ACCOUNTS, account(2)))
    replica_of(log, store).wait_for(0, 2)
    assert keys(store) == [1, 2, 77]


def test_only_tables_that_are_wanted_are_taken_and_more_later(log: SimulatedChangelog) -> None:
    store = DictionaryStore()
    log.define(OTHERS)
    log.publish(0, put(ACCOUNTS, account(1)) + put(OTHERS, account(5)))
    replica_of(log, store, tables=["others"]).wait_for(0, 1)
    assert [*store.tables] == [(0, "others")]
    replica_of(log, store, tables=["others", "accounts"]).wait_for(0, 1)
    assert (keys(store), keys(store, "others")) == ([1], [5])
    with pytest.raises(ReplicaError, match="table others is in the store and is no longer wanted"):
        replica_of(log, store, tables=["accounts"]).step()


def test_all_tables_are_taken_after_only_some_were(tmp_path: Path, log: SimulatedChangelog) -> None:
    log.define(OTHERS)
    log.publish(0, put(ACCOUNTS, account(1)) + put(OTHERS, account(5)))
    with replica_of(log, SqliteStore(tmp_path / "a.db"), tables=["others"]) as replica:
        replica.wait_for(0, 1)
    store = SqliteStore(tmp_path / "a.db")
    with replica_of(log, store) as replica:
        replica.step()
        position = replica.position()
        assert position is not None
        assert position.phase is Phase.LOADING
        assert not replica.wait_for(0, 1).partial
        assert [key for key, _ in store.rows(0, "accounts", WHOLE)] == [(1,)]


def test_a_table_that_joins_later_is_not_taken_where_the_store_has_rows_of_something_else(log: SimulatedChangelog) -> None:
    store = DictionaryStore()
    log.publish(0, put(ACCOUNTS, account(1)))
    replica = replica_of(log, store)
    replica.wait_for(0, 1)
    store.tables[0, "others"] = {(9,): account(9)}
    log.define(OTHERS)
    log.publish(0, put(OTHERS, account(5)))
    with pytest.raises(NoReplicaError, match="shard 0: table others of the store has 1 rows"):
        replica.wait_for(0, 2)
    assert keys(store, "others") == [9]
    replica_of(log, store, begin_again=True).wait_for(0, 2)
    assert keys(store, "others") == [5]


def test_beginning_again_leaves_no_rows_of_tables_that_are_no_longer_wanted(tmp_path: Path, log: SimulatedChangelog) -> None:
    log.define(OTHERS)
    log.publish(0, put(ACCOUNTS, account(1)) + put(OTHERS, account(5)))
    with replica_of(log, SqliteStore(tmp_path / "a.db")) as replica:
        replica.wait_for(0, 1)
    with replica_of(log, SqliteStore(tmp_path / "a.db"), tables=["accounts"], begin_again=True) as replica:
        replica.wait_for(0, 1)
    store = SqliteStore(tmp_path / "a.db")
    store.prepare(CHANGELOG, [ACCOUNTS, OTHERS])
    assert [store.checksum(0, name, WHOLE).rows for name in ("accounts", "others")] == [1, 0]
    store.close()


def test_it_has_read_every_deletion_only_at_the_end_of_all_topics(log: SimulatedChangelog) -> None:
    """A table that it does not know yet may have some."""
    log.publish(0, put(ACCOUNTS, account(1)))
    replica, commits = replica_of(log, DictionaryStore()), log.partitions[TopicPartition(COMMITS, 0)]
    replica.wait_for(0, 1)
    replica.step()
    before_ms, stable = log.now_ms, commits.stable
    assert replica._shards[0].current_ms == before_ms
    log.define(OTHERS)
    log.publish(0, put(OTHERS, account(5)))
    commits.stable = stable
    log.now_ms += 1000
    for _ in range(5):
        replica.step()
    assert replica._shards[0].current_ms == before_ms
    log.show()
    replica.wait_for(0, 2)
    replica.step()
    assert replica._shards[0].current_ms == before_ms + 1000


def test_its_lag_is_what_is_known_and_not_applied(log: SimulatedChangelog) -> None:
    store = DictionaryStore()
    log.publish(0, put(ACCOUNTS, account(1)))
    replica = replica_of(log, store)
    assert (replica.position(), replica.lag()) == (None, Lag(0, 0.0))
    replica.wait_for(0, 1)
    log.publish(0, put(ACCOUNTS, account(2)), seen=False)
    log.partitions[TopicPartition(COMMITS, 0)].stable += 10
    log.now_ms += 2500
    replica.step()
    assert replica.lag() == Lag(1, 2.5)
    with pytest.raises(
        NotAppliedError, match=r"changelog bank, shard 0: commit 2 was not applied within 0 s: it is following, at commit 1"
    ):
        replica.wait_for(0, 2, 0)
    assert replica.statistics()[0] == {"stage": "following", "commit": 1, "known_commit": 2, "held": 0}
    log.show()
    assert replica.wait_for(0, 2).phase is Phase.FOLLOWING
    assert replica.lag() == Lag(0, 0.0)


def test_an_error_that_may_pass_is_retried_and_another_ends_the_run(log: SimulatedChangelog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.changelog.replica._PAUSE_S", 0.0)
    log.publish(0, put(ACCOUNTS, account(1)))
    replica, steps = replica_of(log, DictionaryStore()), 0
    step = replica.step

    def failing() -> None:
        nonlocal steps
        steps += 1
        log.failing = 1.0 if steps == 2 else 0.0
        if steps == 10:
            log.recreate("bank.accounts")
            replica._forget()
        step()

    monkeypatch.setattr(replica, "step", failing)
    with pytest.raises(RecreatedTopicError, match=r"partition bank\.accounts-0"):
        replica.run()
    assert steps == 10
    with pytest.raises(NotAppliedError, match=r"commit 2 is not applied, the replica has stopped: partition bank\.accounts-0"):
        replica.wait_for(0, 2)


def test_step_raises_what_may_pass_and_continues_after_that(log: SimulatedChangelog) -> None:
    replica = replica_of(log, store := DictionaryStore())
    log.publish(0, put(ACCOUNTS, account(1)))
    log.failing = 1.0
    with pytest.raises(UnreachableError):
        replica.step()
    log.failing = 0.0
    replica.wait_for(0, 1)
    assert keys(store) == [1]


def test_a_store_of_one_shard_takes_no_others(tmp_path: Path) -> None:
    log = SimulatedChangelog(3)
    log.define(ACCOUNTS)
    for shard in range(3):
        log.publish(shard, put(ACCOUNTS, account(shard)))
    with replica_of(log, SqliteStore(tmp_path / "a.db")) as replica, pytest.raises(ReplicaError, match=r"shards 0, 1, 2: .*sharded=True"):
        replica.step()
    with replica_of(log, SqliteStore(tmp_path / "a.db"), shards=[2]) as replica:
        replica.wait_for(2, 1)
    with replica_of(log, SqliteStore(tmp_path / "a.db"), shards=[1]) as replica, pytest.raises(ReplicaError, match=r"shards 1, 2: "):
        replica.step()


def test_rows_of_something_else_are_not_removed_unless_it_is_to_begin_again(log: SimulatedChangelog) -> None:
    log.publish(0, put(ACCOUNTS, account(1)))
    store = DictionaryStore()
    store.prepare(CHANGELOG, [ACCOUNTS])
    store.tables[0, "accounts"] = {(9,): account(9)}
    with pytest.raises(NoReplicaError, match="shard 0: table accounts of the store has 1 rows"):
        replica_of(log, store).step()
    assert keys(store) == [9]
    replica = replica_of(log, store, begin_again=True)
    replica.wait_for(0, 1)
    assert keys(store) == [1]
    log.publish(0, put(ACCOUNTS, account(2)))
    replica.wait_for(0, 2)
    assert keys(store) == [1, 2]


@pytest.mark.parametrize("promoted", [False, True], ids=["a source", "a promoted replica"])
def test_a_former_source_becomes_a_replica_that_writes_no_outbox_if_it_is_to_begin_again(
    tmp_path: Path, log: SimulatedChangelog, *, promoted: bool
) -> None:
    path = tmp_path / "a.db"
    log.publish(0, put(ACCOUNTS, account(1)))
    if promoted:
        with replica_of(log, SqliteStore(path)) as replica:
            replica.wait_for(0, 1)
    database = connect(path, 5.0)
    database.execute("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER)")
    install(database, CHANGELOG, 0, ["accounts"], promoted_after=CommitRecord(0, log.epoch, 1, 0, {}, {}) if promoted else None)
    database.execute("INSERT INTO accounts VALUES (9, 'never acknowledged', 1)")
    with replica_of(log, SqliteStore(path)) as replica, pytest.raises(NoReplicaError, match="table accounts of the store has"):
        replica.wait_for(0, 1)
    with replica_of(log, SqliteStore(path), begin_again=True) as replica:
        replica.wait_for(0, 1)
    assert database.execute("SELECT id FROM accounts").fetchall() == [(1,)]
    assert [name for (name,) in database.execute("SELECT name FROM sqlite_master") if name.startswith("_changelog")] == []
    database.close()
    with replica_of(log, SqliteStore(path)) as replica:
        assert replica.wait_for(0, 1).phase is Phase.FOLLOWING


def test_spilled_changes_are_a_sequence() -> None:
    changes = [Change("accounts", Op.UPDATE, (number,), None, account(number)) for number in range(2500)]
    spilled = SpilledChanges()
    spilled.extend(changes[:1700])
    spilled.extend([])
    spilled.extend(changes[1700:])
    assert (len(spilled), list(spilled)) == (2500, changes)
    assert (spilled[0], spilled[1700], spilled[-1], spilled[5:7]) == (changes[0], changes[1700], changes[-1], changes[5:7])
    with pytest.raises(IndexError):
        spilled[2500]
    spilled.close()


def test_a_file_that_cannot_be_written_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an OSError, which the command line would take for one of its output. /dev/full is a disk that is full."""
    changes = [Change("accounts", Op.UPDATE, (number,), None, account(number)) for number in range(2500)]
    with monkeypatch.context() as patched:
        patched.setattr(spill, "TemporaryFile", lambda: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
        spilled = SpilledChanges()
    with pytest.raises(SpillError, match=r"temporary file .*No space left.*TMPDIR"):
        spilled.extend(changes)
    spilled.close()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(SpillError, match="No such file"):
        SpilledChanges()
