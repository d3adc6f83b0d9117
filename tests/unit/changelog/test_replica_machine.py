"""The machine of a replica as a dialogue: events in, effects out (docs/decisions/0029-changelog.md)."""

import re
from collections.abc import Sequence

import pytest

from moldau.changelog.arrivals import ChangeRecord, CommitRecord, CommitRecords, Ends, TableDefinition, TableRecords, Tombstone
from moldau.changelog.effects import Apply, AskEnds, Clear, Effect, Prepare, Reload, Spill
from moldau.changelog.errors import RecordError
from moldau.changelog.machine import Limits, ShardMachine, Stage
from moldau.changelog.replica_errors import (
    CommitCountError,
    CommitOrderError,
    CommitTooLargeError,
    RecreatedTopicError,
    ReplicaError,
    SlowLoadError,
    TableChangedError,
    TruncatedLogError,
)
from moldau.changelog.starting import decide_start
from moldau.changelog.store import Phase, Position
from moldau.changelog.values import Change, Op, Table

ITEMS = Table("items", {"id": "integer"}, ("id",))
NOTES = Table("notes", {"id": "integer"}, ("id",))
COMMITS, ITEMS_TOPIC, NOTES_TOPIC = "shop._commits", "shop.items", "shop.notes"
IDS = {COMMITS: "c0", ITEMS_TOPIC: "a0", NOTES_TOPIC: "b0"}
AT_5 = Position(Phase.FOLLOWING, 1, 5, 900, {COMMITS: 10, ITEMS_TOPIC: 20, NOTES_TOPIC: 30}, IDS, {ITEMS_TOPIC: ITEMS, NOTES_TOPIC: NOTES})
NEW = Position(Phase.LOADING, 0, 0, 1000, {COMMITS: 0}, {COMMITS: "c0"})


def put(offset: int, commit: int, key: int = 1, *, table: str = "items", epoch: int = 1) -> ChangeRecord:
    return ChangeRecord(offset, epoch, commit, Change(table, Op.UPDATE, (key,), None, {"id": key}))


def drop(offset: int, commit: int, key: int = 1) -> ChangeRecord:
    return ChangeRecord(offset, 1, commit, Change("items", Op.DELETE, (key,), None, None))


def items(*records: ChangeRecord | Tombstone, next_offset: int | None = None, at_end: bool = False) -> TableRecords:
    return TableRecords(ITEMS_TOPIC, records, records[-1].offset + 1 if next_offset is None else next_offset, at_end)


def notes(*records: ChangeRecord | Tombstone, next_offset: int | None = None, at_end: bool = False) -> TableRecords:
    return TableRecords(NOTES_TOPIC, records, records[-1].offset + 1 if next_offset is None else next_offset, at_end)


def commit(offset: int, number: int, *, epoch: int = 1, complete: bool = True, **changes: int) -> CommitRecord:
    return CommitRecord(offset, epoch, number, 1000 + number, changes, complete)


def commits(*records: CommitRecord | TableDefinition, next_offset: int | None = None, at_end: bool = False) -> CommitRecords:
    return CommitRecords(records, records[-1].offset + 1 if next_offset is None else next_offset, at_end)


def ends(retention_ms: int = 100, **offsets: int) -> Ends:
    topics = {f"shop.{name}": offset for name, offset in offsets.items()}
    return Ends(topics, dict.fromkeys(topics, 0), {topic: IDS[topic] for topic in topics}, retention_ms)


def following(position: Position = AT_5, **limits: int) -> ShardMachine:
    machine = ShardMachine("shop", 0, position, limits=Limits(**limits))
    assert machine.start() == [Prepare([ITEMS, NOTES])]
    return machine


def applied(effects: Sequence[Effect]) -> list[tuple[int, list[int]]]:
    """Commit and keys of each transaction."""
    return [(each.position.commit, [change.key[0] for change in each.changes]) for each in effects if isinstance(each, Apply)]  # type: ignore[misc]


def test_a_new_replica_finds_the_end_loads_confirms_and_follows() -> None:
    machine = ShardMachine("shop", 0, NEW, clear=True)
    assert machine.start() == [AskEnds([COMMITS])]
    assert machine.wanted() == {}
    assert machine.step(ends(_commits=9), 1000) == []
    assert machine.wanted() == {COMMITS: 0}
    found = machine.step(commits(TableDefinition(0, ITEMS), commit(5, 3, items=1), commit(8, 4, items=2), next_offset=9), 1000)
    assert found == [Prepare([ITEMS]), Clear(NEW), AskEnds([ITEMS_TOPIC])]
    assert (machine.stage, machine.commit) == (Stage.LOADING, 4)
    assert machine.step(ends(items=8), 1000) == []
    assert machine.wanted() == {ITEMS_TOPIC: 0}
    loading = machine.step(items(put(1, 1, 1), Tombstone(2, (2,)), put(4, 3, 3)), 1000)
    assert applied(loading) == [(4, [1, 2, 3])]
    assert isinstance(loading[0], Apply)
    expected = Position(Phase.LOADING, 1, 4, 1000, {COMMITS: 9, ITEMS_TOPIC: 5}, {COMMITS: "c0", ITEMS_TOPIC: "a0"}, {ITEMS_TOPIC: ITEMS})
    assert loading[0].position == expected
    done = machine.step(items(put(6, 4, 4), put(7, 5, 5), put(8, 6, 6)), 1000)
    assert applied(done) == [(4, [4])]
    assert done[-1] == AskEnds([COMMITS]), "what comes after the target is not loaded"
    assert machine.wanted()[ITEMS_TOPIC] == 7, "it is fetched again"
    assert machine.step(ends(_commits=11), 1000) == []
    assert machine.step(items(put(7, 5, 5), put(8, 6, 6)), 1000) == []
    confirmed = machine.step(commits(commit(10, 5, items=1), next_offset=11, at_end=True), 1000)
    assert applied(confirmed) == [(5, [5])]
    assert isinstance(confirmed[0], Apply)
    assert confirmed[0].position[:4] == (Phase.FOLLOWING, 1, 5, 1005)


def test_an_empty_changelog_is_followed_at_once() -> None:
    machine = ShardMachine("shop", 0, NEW, clear=True)
    machine.start()
    assert machine.step(ends(_commits=0), 1000) == [Clear(NEW), AskEnds([])]
    assert machine.step(ends(), 1000) == [AskEnds([COMMITS])]
    assert machine.step(ends(_commits=0), 1000) == []
    assert applied(machine.step(commits(next_offset=0, at_end=True), 1000)) == [(0, [])]
    assert machine.stage is Stage.FOLLOWING


def test_a_load_is_not_confirmed_by_an_end_before_which_commits_were_compacted() -> None:
    """Commit 5 was superseded by commit 6 while the replica loaded up to 4, and so may be rows that it has not seen."""
    machine = ShardMachine("shop", 0, AT_5._replace(phase=Phase.LOADING, commit=4))
    machine.start()
    machine.step(ends(_commits=10), 1000)
    machine.step(ends(items=20, notes=30), 1000)
    machine.step(ends(_commits=12), 1000)
    assert machine.step(commits(next_offset=12), 1000) == [], "there may be a commit after it"
    (reload,) = machine.step(commits(commit(12, 6), at_end=True), 1000)
    assert isinstance(reload, Reload)
    assert machine.stage is Stage.CONFIRMING


def test_a_commit_is_applied_when_all_its_changes_are_here() -> None:
    machine = following()
    assert machine.step(commits(commit(10, 6, items=2, notes=1)), 0) == []
    assert machine.step(items(put(20, 6, 1)), 0) == []
    assert machine.step(notes(put(30, 6, 3, table="notes"), put(31, 7, 4, table="notes")), 0) == []
    (effect,) = machine.step(items(put(21, 6, 2)), 0)
    assert applied([effect]) == [(6, [1, 2, 3])]
    assert isinstance(effect, Apply)
    assert effect.position == AT_5._replace(commit=6, commit_ms=1006, offsets={COMMITS: 11, ITEMS_TOPIC: 22, NOTES_TOPIC: 31})


def test_commits_are_applied_together_up_to_a_number_of_changes() -> None:
    machine = following(apply_changes_max=2)
    machine.step(items(*(put(20 + each, 6 + each, each) for each in range(5))), 0)
    effects = machine.step(commits(*(commit(10 + each, 6 + each, items=1) for each in range(5))), 0)
    assert applied(effects) == [(7, [0, 1]), (9, [2, 3]), (10, [4])]


def test_a_commit_of_no_change_and_one_of_other_tables_move_the_position() -> None:
    machine = ShardMachine("shop", 0, AT_5, only=["items", "notes"])
    assert applied(machine.step(commits(commit(10, 6), commit(11, 7, others=3)), 0)) == [(7, [])]


def test_a_deletion_is_its_envelope_and_the_tombstone_after_it_says_nothing_more() -> None:
    machine = following()
    machine.step(items(drop(20, 6), Tombstone(21, (1,)), drop(22, 6, 2)), 0)
    assert applied(machine.step(commits(commit(10, 6, items=2)), 0)) == [(6, [1, 2])]
    assert machine.step(items(Tombstone(23, (2,))), 0) == []


def test_a_tombstone_that_comes_first_is_kept_for_a_reload_until_a_commit_after_it_is_whole() -> None:
    machine = following()
    assert machine.step(items(Tombstone(20, (9,))), 0) == []
    (effect,) = machine.step(commits(commit(10, 6)), 0)
    assert isinstance(effect, Apply)
    assert effect.position.offsets[ITEMS_TOPIC] == 20, "its deletion may be compacted"
    machine.step(items(put(21, 7)), 0)
    (effect,) = machine.step(commits(commit(11, 7, items=1)), 0)
    assert isinstance(effect, Apply)
    assert effect.position.offsets[ITEMS_TOPIC] == 22


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([commits(commit(10, 7))], r"shop\._commits-0 at offset 10: commit 7 follows commit 5"),
        ([commits(commit(10, 6, items=2)), items(put(21, 6), put(22, 7))], "commit 6 has 2 changes, and the log has 1 of them"),
        ([commits(commit(10, 6, items=2)), items(put(21, 6), at_end=True)], "commit 6 has 2 changes, and the log has 1 of them"),
        ([items(put(20, 6), Tombstone(22, (3,)))], r"shop\.items-0 at offset 22: a tombstone without its deletion"),
        ([commits(commit(10, 6, others=1))], "table others of commit 6 is not in the store"),
        ([commits(TableDefinition(10, ITEMS._replace(name="others")))], "table others is new"),
    ],
)
def test_compaction_that_has_passed_is_seen(events: Sequence[TableRecords | CommitRecords], reason: str) -> None:
    machine = following()
    for event in events[:-1]:
        assert machine.step(event, 0) == []
    (effect,) = machine.step(events[-1], 0)
    assert isinstance(effect, Reload)
    assert re.search(reason, effect.reason)


def test_an_end_that_was_seen_before_the_commit_proves_nothing() -> None:
    machine = following()
    assert machine.step(items(next_offset=20, at_end=True), 0) == []
    assert machine.step(commits(commit(10, 6, items=1), commit(11, 7, items=1)), 0) == []
    assert applied(machine.step(items(put(20, 6), at_end=True), 0)) == [(6, [1])], "that was no proof for commit 7"
    assert applied(machine.step(items(put(21, 7), at_end=True), 0)) == [(7, [1])]


def test_a_commit_beyond_memory_is_spilled_and_only_what_it_lacks_is_read() -> None:
    machine = following(memory_changes_max=3)
    machine.step(commits(commit(10, 6, items=5)), 0)
    (spill,) = machine.step(items(put(20, 6, 1), put(21, 6, 2), put(22, 6, 3)), 0)
    assert isinstance(spill, Spill)
    assert (len(spill.changes), machine.held) == (3, 0)
    machine.step(notes(*(put(30 + each, 7, table="notes") for each in range(3))), 0)
    assert machine.wanted() == {COMMITS: 11, ITEMS_TOPIC: 23}
    (effect,) = machine.step(items(put(23, 6, 4), put(24, 6, 5)), 0)
    assert isinstance(effect, Apply)
    assert effect.spilled
    assert (applied([effect]), effect.position.offsets[ITEMS_TOPIC]) == ([(6, [4, 5])], 25)


def test_a_commit_whose_records_are_larger_than_memory_is_spilled() -> None:
    machine = following(memory_bytes_max=1000)
    machine.step(commits(commit(10, 6, items=3)), 0)
    assert machine.step(items(put(20, 6)._replace(size=999)), 0) == []
    assert machine.wanted() == {COMMITS: 11, ITEMS_TOPIC: 21, NOTES_TOPIC: 30}
    (spill,) = machine.step(items(put(21, 6)._replace(size=1)), 0)
    assert isinstance(spill, Spill)
    (effect,) = machine.step(items(put(22, 6)._replace(size=999)), 0)
    assert isinstance(effect, Apply)
    assert machine.step(notes(put(30, 7, table="notes")._replace(size=999)), 0) == [], "what was applied does not count"


def test_a_table_that_gets_a_column_is_prepared_before_its_commit() -> None:
    machine = following()
    wider = ITEMS._replace(columns={"id": "integer", "name": "text"})
    machine.step(items(put(20, 6), put(21, 7)), 0)
    effects = machine.step(commits(commit(10, 6, items=1), TableDefinition(11, wider), commit(12, 7, items=1)), 0)
    assert [type(each) for each in effects] == [Apply, Prepare, Apply]
    assert effects[1] == Prepare([wider])
    assert isinstance(effects[2], Apply)
    assert effects[2].position.tables[ITEMS_TOPIC] == wider
    assert machine.step(commits(TableDefinition(13, wider)), 0) == [], "a publisher that starts again says the same again"


def test_up_to_a_commit_that_is_not_complete_the_store_is_loading() -> None:
    """The source publishes rows that it had before: what the log has is not what the source is."""
    machine = following()
    (effect,) = machine.step(commits(commit(10, 6, complete=False)), 0)
    assert isinstance(effect, Apply)
    assert effect.position[:4] == (Phase.LOADING, 1, 6, 1006)
    assert effect.position.offsets[COMMITS] == 10, "after a start it is read again"
    again = ShardMachine("shop", 0, effect.position)
    again.start()
    again.step(ends(_commits=11), 0)
    again.step(commits(commit(10, 6, complete=False), at_end=True), 0)
    again.step(ends(items=20, notes=30), 0)
    again.step(ends(_commits=11), 0)
    (effect,) = again.step(commits(next_offset=11, at_end=True), 0)
    assert isinstance(effect, Apply)
    assert effect.position.phase is Phase.LOADING
    (effect,) = again.step(commits(commit(11, 7)), 0)
    assert isinstance(effect, Apply)
    assert effect.position.phase is Phase.FOLLOWING


@pytest.mark.parametrize(
    ("event", "error", "words"),
    [
        (commits(commit(10, 5)), CommitOrderError, r"partition shop\._commits-0 at offset 10: commit 5 comes after commit 5"),
        (commits(commit(10, 6, epoch=0)), CommitOrderError, "commit 6 has epoch 0, and the one before it has 1"),
        (items(put(20, 5)), CommitOrderError, r"partition shop\.items-0 at offset 20: a change of commit 5 comes after commit 5"),
        (items(put(20, 7), put(21, 6)), CommitOrderError, "offset 21: a change of commit 6 comes after commit 7"),
        (items(put(20, 6, epoch=0)), CommitOrderError, "a change of commit 6 has epoch 0, and what is before it has 1"),
        (commits(commit(10, 6, items=101)), CommitTooLargeError, r"commit 6 has 101 changes, more than 100 \(commit_changes_max\)"),
    ],
)
def test_a_log_that_cannot_be_stops_it(event: TableRecords | CommitRecords, error: type[RecordError], words: str) -> None:
    with pytest.raises(error, match=words):
        following(commit_changes_max=100).step(event, 0)


def test_more_changes_than_a_commit_says_stop_it() -> None:
    machine = following()
    machine.step(items(put(20, 6), put(21, 6)), 0)
    with pytest.raises(CommitCountError, match=r"commit 6 has 1 changes of shop\.items, and the log has 2"):
        machine.step(commits(commit(10, 6, items=1)), 0)


def test_another_primary_key_stops_it() -> None:
    with pytest.raises(TableChangedError, match="table items has the primary key id, name, and had id"):
        following().step(commits(TableDefinition(10, Table("items", {"id": "integer", "name": "text"}, ("id", "name")))), 0)


def test_a_load_that_takes_longer_than_deletions_are_kept_stops() -> None:
    machine = ShardMachine("shop", 0, AT_5._replace(phase=Phase.LOADING, commit_ms=1000))
    machine.start()
    machine.step(ends(_commits=10), 1050)
    with pytest.raises(SlowLoadError, match=r"shard 0: loading up to commit 5 has taken 0 s, longer .*delete.retention.ms=100"):
        machine.step(ends(items=20, notes=30), 1101)


# Where it starts.

LOG = Ends({COMMITS: 100, ITEMS_TOPIC: 100, NOTES_TOPIC: 100}, {COMMITS: 0, ITEMS_TOPIC: 0, NOTES_TOPIC: 0}, IDS, 500)


def test_a_replica_that_follows_continues_however_long_it_was_away() -> None:
    assert decide_start(0, AT_5, COMMITS, LOG, 10**9).position == AT_5


def test_a_new_one_begins_with_an_empty_store() -> None:
    start = decide_start(0, None, COMMITS, LOG, 1234)
    assert (start.clear, start.position) == (True, Position(Phase.LOADING, 0, 0, 1234, {COMMITS: 0}, {COMMITS: "c0"}))
    assert decide_start(0, AT_5, COMMITS, LOG, 1234, begin_again=True).position == start.position


def test_one_that_compaction_has_passed_loads_and_with_an_empty_store_if_deletions_may_be_forgotten() -> None:
    reload = Reload("commit 7 follows commit 5")
    start = decide_start(0, AT_5, COMMITS, LOG, 1400, reload=reload)
    assert (start.clear, start.position) == (False, AT_5._replace(phase=Phase.LOADING))
    assert decide_start(0, AT_5, COMMITS, LOG, 1401, reload=reload).clear
    assert not decide_start(0, AT_5, COMMITS, LOG, 1401, reload=reload, current_ms=1000).clear, "it had everything at 1000"


def test_tables_that_are_wanted_now_are_looked_for_from_the_beginning() -> None:
    start = decide_start(0, AT_5, COMMITS, LOG, 1000, only=["items", "notes", "more"])
    assert (start.position.phase, start.position.offsets[COMMITS], start.position.commit) == (Phase.LOADING, 0, 0)
    with pytest.raises(ReplicaError, match="table notes is in the store and is no longer wanted"):
        decide_start(0, AT_5, COMMITS, LOG, 1000, only=["items"])


def test_another_log_than_that_which_was_read_is_named() -> None:
    other = Ends(LOG.ends, LOG.starts, {**IDS, NOTES_TOPIC: "b1"}, 500)
    with pytest.raises(
        RecreatedTopicError, match=r"partition shop\.notes-0: .* the store has offset 30 of the topic with id b0, now it has id b1"
    ):
        decide_start(0, AT_5, COMMITS, other, 1000)
    with pytest.raises(TruncatedLogError, match=r"partition shop\.items-0: records from offset 20 up to 25 were deleted"):
        decide_start(0, AT_5, COMMITS, Ends(LOG.ends, {**LOG.starts, ITEMS_TOPIC: 25}, IDS, 500), 1000)
    with pytest.raises(TruncatedLogError, match=r"partition shop\.items-0: the log ends at offset 7, before 20, up to which it was read"):
        decide_start(0, AT_5, COMMITS, Ends({**LOG.ends, ITEMS_TOPIC: 7}, LOG.starts, IDS, 500), 1000)
