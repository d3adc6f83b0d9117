"""One contract for all formats of tables: rows, offsets, columns and properties become visible together or not at all (mission I1)."""

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.lake.table import IncompleteTableError, completion_watermark, remove_orphans, set_watermark, wait_until_complete
from moldau.lake.tables import delta, manifest
from moldau.lake.tables.committing import (
    LoadConflictError,
    LoadedOffset,
    LoadFencedError,
    OtherJobError,
    TableWriter,
    TopicOwner,
    application_id,
    commit,
    discard,
    jobs_of,
    progress,
    set_properties,
)
from moldau.lake.tables.data_files import DAY, TIME_FIELDS, DataFile, PartitionWriter
from moldau.lake.tables.format import Snapshot, TableChange, TableError, TableFormat, UnansweredCommitError, VersionTakenError
from moldau.lake.tables.opening import FORMATS, format_named, format_of, open_or_create, open_table, opened
from moldau.lake.tables.places.local import LocalPlace
from moldau.lake.tables.rewriting import compact_table, widen
from moldau.lake.tables.schemas import evolve
from moldau.tracking.clock import now_ms

SCHEMA = pa.schema([("n", pa.int64()), ("small", pa.int32()), *TIME_FIELDS])
IDS = [application_id("job", "00ff", partition) for partition in range(2)]
OWNER = TopicOwner("job", "orders", "00ff")
DAY_MS = 86_400_000


class Table:
    """A table under test: numbers go in as rows, and come out of its newest version."""

    def __init__(self, tables: TableFormat, path: str) -> None:
        self.tables, self.path = tables, path
        open_or_create(tables, path, SCHEMA, [DAY], "a table")

    def file(self, *numbers: int, day: int = 0) -> list[DataFile]:
        """A data file that no commit names yet."""
        writer = PartitionWriter(self.path, "job")
        writer.add(pa.table({"n": numbers, "small": pa.array(numbers, pa.int32())}), np.full(len(numbers), day * DAY_MS))
        return writer.finish()

    def load(self, *numbers: int, offset: int, day: int = 0, writer: TableWriter | None = None) -> int:
        change = TableChange("LOAD", self.file(*numbers, day=day), offsets={IDS[0]: offset}, metadata={"moldau.job": "job"})
        return commit(self.tables, self.path, change, before=self.before(), writer=writer)

    def parquet(self) -> set[str]:
        """All data files that lie there."""
        return {str(each.relative_to(self.path)) for each in Path(self.path).rglob("*.parquet")}

    def before(self) -> list[LoadedOffset]:
        return progress(self.now(), IDS)

    def offsets(self) -> list[int | None]:
        return [known.offset for known in self.before()]

    def now(self) -> Snapshot:
        return opened(self.path)

    def rows(self, column: str = "n") -> list[Any]:
        found: list[Any] = []
        for file in self.now().files():
            table = pq.read_table(Path(self.path, file.path), partitioning=None)
            found += table[column].to_pylist() if column in table.column_names else [None] * table.num_rows
        return sorted(found, key=lambda each: (each is not None, each))


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(format_named(request.param), str(tmp_path / "a täble"))


def test_where_nothing_is_there_is_no_table(tmp_path: Path) -> None:
    assert open_table(str(tmp_path / "none")) is None
    assert format_of(str(tmp_path)) is None
    assert progress(None, IDS) == [LoadedOffset(IDS[0], None), LoadedOffset(IDS[1], None)]
    with pytest.raises(TableError, match="there is no table"):
        opened(str(tmp_path))


def test_a_table_that_was_made_is_empty_and_knows_its_columns(table: Table) -> None:
    now = table.now()
    assert (now.version, now.schema, now.partition_columns, now.files(), dict(now.properties)) == (0, SCHEMA, (DAY,), [], {})
    assert format_of(table.path) == table.tables or format_of(table.path).name == table.tables.name  # type: ignore[union-attr]
    assert open_or_create(table.tables, table.path, SCHEMA, [DAY], "again").id == now.id
    with pytest.raises(VersionTakenError):
        table.tables.create(table.path, SCHEMA, [DAY], "again")


def test_a_commit_shows_rows_and_offsets_together(table: Table) -> None:
    files = table.file(1, 2, 3)
    assert table.rows() == [], "a file that no commit names is not there"
    change = TableChange("LOAD", files, offsets={IDS[0]: 3}, metadata={"moldau.job": "job", "moldau.ranges": {"0": [0, 3]}})
    assert commit(table.tables, table.path, change, before=table.before()) == 1
    assert (table.rows(), table.offsets()) == ([1, 2, 3], [3, None])
    change = TableChange("LOAD", table.file(4), offsets={IDS[0]: 4, IDS[1]: 9})
    assert commit(table.tables, table.path, change, before=table.before()) == 2
    assert (table.rows(), table.offsets()) == ([1, 2, 3, 4], [4, 9])
    words = {each.version: each.metadata for each in table.tables.commits(table.path, 0)}
    assert words[1]["moldau.ranges"] == {"0": [0, 3]}
    assert [each.version for each in table.tables.commits(table.path, 1)] == [2]
    old = table.tables.open(table.path, 1)
    assert old is not None
    assert (old.offset(IDS[0]), [file.rows for file in old.files()]) == (3, [3])
    for missing in (3, 99, -1):
        with pytest.raises(TableError) as refused:
            table.tables.open(table.path, missing)
        assert str(refused.value) == f"{table.path}: there is no version {missing}, the newest is 2"


def test_all_application_ids_are_known_also_those_that_only_a_checkpoint_has(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 3)
    table.load(1, offset=1, writer=TableWriter("job"))
    commit(table.tables, table.path, TableChange("LOAD", offsets={IDS[1]: 1}))
    commit(table.tables, table.path, TableChange("SET PROPERTIES", properties={"a": "b"}))
    for file in Path(table.path, delta.LOG).glob("*[012].json"):
        file.unlink()
    assert table.tables.application_ids(table.path) == {*IDS, "moldau:job:writer"}
    assert jobs_of(table.tables.application_ids(table.path), "00ff") == ["job"]
    assert jobs_of(table.tables.application_ids(table.path), "job") == [], "the id of a writer is not that of a topic"


def test_files_know_their_table_partition(table: Table) -> None:
    table.load(1, offset=1, day=15_887)
    (file,) = table.now().files()
    assert (dict(file.partition), file.rows) == ({DAY: "2013-07-01"}, 1)
    assert file.path.startswith("event_day=2013-07-01/job-")
    assert file.size == Path(table.path, file.path).stat().st_size


def test_the_second_of_two_loads_from_the_same_offsets_fails_and_changes_nothing(table: Table) -> None:
    both = table.before()
    change = TableChange("LOAD", table.file(1), offsets={IDS[0]: 1})
    commit(table.tables, table.path, change, before=both)
    with pytest.raises(LoadConflictError, match="another load has moved moldau:job:00ff:0 from offset None, where this one started, to 1"):
        commit(table.tables, table.path, change, before=both)
    assert (table.rows(), table.offsets()) == ([1], [1, None])


def test_an_offset_that_would_go_down_is_refused(table: Table) -> None:
    table.load(1, offset=7)
    with pytest.raises(LoadConflictError, match="moldau:job:00ff:0 would go down from 7 to 6: no load may do that"):
        commit(table.tables, table.path, TableChange("LOAD", table.file(2), offsets={IDS[0]: 6}))
    assert (table.rows(), table.offsets()) == ([1], [7, None])


@pytest.mark.parametrize("mine", [True, False])
def test_a_race_inside_the_commit_is_settled_by_the_version(table: Table, monkeypatch: pytest.MonkeyPatch, mine: bool) -> None:
    """Somebody commits between our look at the table and our own version: of this job, then we lose; of another topic, then we go on."""
    start, other = table.before(), application_id("other", "11ee", 0)
    kind = type(table.tables)
    raced: list[bool] = []
    real = kind.put

    def meet(self: Any, path: str, base: Snapshot, change: TableChange) -> int:
        if not raced:
            raced.append(True)
            real(self, path, base, TableChange("LOAD", table.file(7), offsets={IDS[0] if mine else other: 1}))
        return real(self, path, base, change)

    monkeypatch.setattr(kind, "put", meet)
    ours = TableChange("LOAD", table.file(8), offsets={IDS[0]: 1})
    if mine:
        with pytest.raises(LoadConflictError):
            commit(table.tables, table.path, ours, before=start, owner=OWNER)
    else:
        assert commit(table.tables, table.path, ours, before=start, owner=OWNER) == 2
    assert (table.rows(), table.offsets()) == ([7] if mine else [7, 8], [1, None])


@pytest.mark.parametrize("asleep", ["before its commit", "before its version"])
def test_of_two_jobs_whose_first_commits_meet_one_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch, asleep: str) -> None:
    """Both were planned on version 0, where no job had loaded the topic. The second would have the table hold each record twice."""
    base, start = table.now(), table.before()
    kind = type(table.tables)
    real, raced = kind.put, list[bool]()

    def other_job_commits() -> None:
        raced.append(True)
        change = TableChange("LOAD", table.file(7), offsets={application_id("other", "00ff", 1): 1})
        owner = TopicOwner("other", "orders", "00ff")
        commit(table.tables, table.path, change, base=base, before=[LoadedOffset(application_id("other", "00ff", 1), None)], owner=owner)

    def meet(self: Any, path: str, base: Snapshot, change: TableChange) -> int:
        if not raced:
            other_job_commits()
        return real(self, path, base, change)

    if asleep == "before its commit":
        other_job_commits()
    monkeypatch.setattr(kind, "put", meet)
    ours = TableChange("LOAD", table.file(8), offsets={IDS[0]: 1})
    with pytest.raises(OtherJobError) as refused:
        commit(table.tables, table.path, ours, base=base, before=start, writer=TableWriter("job"), owner=OWNER)
    assert str(refused.value) == (
        f"{table.path}: job other loads topic orders into this table, and job job would load each record a second time; "
        "load it under the name other, or into another directory"
    )
    assert (table.now().version, table.rows(), table.offsets()) == (1, [7], [None, None])


def test_a_table_that_two_jobs_have_shared_from_of_old_is_loaded_on_by_both(table: Table) -> None:
    """Also a partition that is new: neither is at its first commit."""
    for job in ("job", "other"):
        commit(table.tables, table.path, TableChange("LOAD", table.file(1), offsets={application_id(job, "00ff", 0): 1}))
    change = TableChange("LOAD", table.file(2), offsets={IDS[1]: 1})
    assert commit(table.tables, table.path, change, before=[LoadedOffset(IDS[1], None)], owner=OWNER) == 3
    assert jobs_of(table.tables.application_ids(table.path), "00ff") == ["job", "other"]


def test_a_claim_keeps_other_jobs_out_as_offsets_do(table: Table) -> None:
    assert not OWNER.is_known(table.tables, table.path)
    commit(table.tables, table.path, TableChange("CLAIM TOPIC", offsets={OWNER.claim_id: 1}), owner=OWNER)
    assert OWNER.is_known(table.tables, table.path)
    with pytest.raises(OtherJobError, match="job job loads topic orders"):
        TopicOwner("other", "orders", "00ff").is_known(table.tables, table.path)
    assert not TopicOwner("other", "orders", "11ee").is_known(table.tables, table.path), "made anew, it is another topic"


def test_the_older_of_two_processes_is_fenced_once_the_newer_has_committed(table: Table) -> None:
    """Two services load one job by mistake, turn by turn, so that no offset ever collides."""
    old, new = TableWriter("job", "process 1 on a"), TableWriter("job", "process 2 on b")
    table.load(1, offset=1, writer=old)
    table.load(2, offset=2, writer=old)
    table.load(3, offset=3, writer=new)
    taken_over = r"job job was taken over by process 2 on b \(version 3\); this is process 1 on a, which stops here"
    with pytest.raises(LoadFencedError, match=taken_over):
        table.load(4, offset=4, writer=old)
    table.load(5, offset=5, writer=new)
    table.load(6, offset=6, writer=TableWriter("job", "process 3 on c"))
    assert table.rows() == [1, 2, 3, 5, 6]
    assert TableWriter("other").claim(table.tables, table.path, table.now()) == 1, "another job is another matter"


def test_the_older_process_is_fenced_also_if_it_slept_between_its_look_and_its_version(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer one loads another partition meanwhile, so no offset tells of it; its version makes the older one look again."""
    old, new = TableWriter("job", "process 1"), TableWriter("job", "process 2")
    table.load(1, offset=1, writer=old)
    kind = type(table.tables)
    real, raced = kind.put, list[bool]()

    def meet(self: Any, path: str, base: Snapshot, change: TableChange) -> int:
        if not raced:
            raced.append(True)
            commit(table.tables, path, TableChange("LOAD", table.file(2), offsets={IDS[1]: 1}, metadata={"moldau.job": "job"}), writer=new)
        return real(self, path, base, change)

    monkeypatch.setattr(kind, "put", meet)
    with pytest.raises(LoadFencedError, match="taken over by process 2"):
        table.load(3, offset=2, writer=old)
    assert (table.rows(), table.offsets()) == ([1, 2], [1, 1])


def test_a_disk_that_does_not_take_the_commit_leaves_nothing_of_it(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    files = table.file(1)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("moldau.lake.tables.places.local.os.fsync", full)
        with pytest.raises(TableError, match=r"00000000000000000001\.json: cannot be written: no space left on device"):
            commit(table.tables, table.path, TableChange("LOAD", files, offsets={IDS[0]: 1}))
    assert (table.rows(), table.offsets()) == ([], [None, None])
    assert list(Path(table.path).rglob("*.tmp")) == []
    assert commit(table.tables, table.path, TableChange("LOAD", files, offsets={IDS[0]: 1})) == 1


def test_a_version_whose_name_is_not_brought_to_disk_is_not_said_to_be_none(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see it: its files must stay."""
    real = os.fsync

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        real(descriptor)

    files = table.file(1)
    with monkeypatch.context() as patched:
        patched.setattr("moldau.lake.tables.places.local.os.fsync", failing)
        with pytest.raises(UnansweredCommitError, match=r"version 1 was made: .*: it is there, and may not survive a power failure: Input"):
            commit(table.tables, table.path, TableChange("LOAD", files, offsets={IDS[0]: 1}))
    assert (table.rows(), table.offsets()) == ([1], [1, None])
    assert list(Path(table.path).rglob("*.tmp")) == []


def test_a_table_that_was_made_anew_under_a_load_takes_nothing_of_it(table: Table, tmp_path: Path) -> None:
    base = table.now()
    Path(table.path).rename(tmp_path / "away")
    open_or_create(table.tables, table.path, SCHEMA, [DAY], "another")
    with pytest.raises(LoadConflictError, match="the table was deleted and recreated meanwhile"):
        commit(table.tables, table.path, TableChange("LOAD"), base=base)


def test_properties_are_kept_until_they_are_set(table: Table) -> None:
    assert set_properties(table.tables, table.path, {"a": "1", "b": "2"}) == 1
    assert set_properties(table.tables, table.path, {"b": "2"}) is None, "no version for nothing"
    table.load(1, offset=1)
    set_properties(table.tables, table.path, {"b": "3"})
    assert dict(table.now().properties) == {"a": "1", "b": "3"}
    assert (table.rows(), table.offsets(), table.now().schema) == ([1], [1, None], SCHEMA)


def test_new_columns_come_with_the_load_that_needs_them(table: Table) -> None:
    table.load(1, offset=1)
    base = table.now()
    wanted = pa.schema([("extra", pa.struct([("x", pa.string())])), *SCHEMA])
    schema = evolve(table.path, base.schema, wanted).schema
    writer = PartitionWriter(table.path, "job")
    columns = pa.schema([each for each in schema if each.name not in {field.name for field in TIME_FIELDS}])
    row = {"n": 2, "small": None, "extra": {"x": "y"}}
    writer.add(pa.Table.from_pylist([row], schema=columns), np.zeros(1, np.int64))
    commit(table.tables, table.path, TableChange("LOAD", writer.finish(), schema=schema, offsets={IDS[0]: 2}), base=base)
    assert table.now().schema.names == ["n", "small", DAY, "event_hour", "extra"]
    assert table.rows("extra") == [None, {"x": "y"}]
    with pytest.raises(LoadConflictError, match="the columns of the table have changed since version 1"):
        commit(table.tables, table.path, TableChange("LOAD", schema=schema), base=base)


def test_a_wider_column_has_its_old_rows_written_anew(table: Table) -> None:
    table.load(1, 2, offset=2)
    table.load(3, offset=3, day=1)
    base = table.now()
    wider = evolve(table.path, base.schema, pa.schema([("small", pa.int64())]))
    assert wider.widened == ("small",)
    widen(table.tables, table.path, base, wider)
    assert table.now().schema.field("small").type == pa.int64()
    assert (table.rows(), table.rows("small"), table.offsets()) == ([1, 2, 3], [1, 2, 3], [3, None])
    for file in table.now().files():
        assert pq.read_schema(Path(table.path, file.path)).field("small").type == pa.int64()
    there = table.parquet()
    with pytest.raises(LoadConflictError):
        widen(table.tables, table.path, base, wider)
    assert table.parquet() == there, "the files that it wrote in vain are gone"


def test_files_of_a_refused_commit_are_removed_unless_a_version_names_them(table: Table) -> None:
    """A network file system may answer a link that it made with "is there already": then the version is there, and so stay its files."""
    table.load(1, offset=1)
    (kept,) = table.now().files()
    (left,) = table.file(2)
    discard(table.tables, table.path, [kept.path, left.path])
    assert (table.rows(), table.parquet()) == ([1], {kept.path})


def test_a_link_that_was_made_and_denied_is_a_version(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a network file system was lost, and its second try finds the name taken: by itself."""
    real = os.link

    def twice(*names: str) -> None:
        real(*names)
        real(*names)

    monkeypatch.setattr("moldau.lake.tables.places.local.os.link", twice)
    assert table.load(1, offset=1) == 1
    assert (table.rows(), table.offsets()) == ([1], [1, None])


def test_small_files_of_closed_days_become_one_and_offsets_stay(table: Table) -> None:
    for number in range(4):
        table.load(number, offset=number + 1, day=number % 2)
    now = datetime(1970, 1, 2, 12, tzinfo=UTC)
    done = compact_table(table.path, now=now)
    assert (done.partitions, done.files_before, done.files_after) == (1, 2, 1), "the day that is not over is left alone"
    assert sorted(file.partition[DAY] or "" for file in table.now().files()) == ["1970-01-01", "1970-01-02", "1970-01-02"]
    assert (table.rows(), table.offsets()) == ([0, 1, 2, 3], [4, None])
    assert compact_table(table.path, now=now).version is None, "once is enough"
    assert table.load(4, offset=5) == done.version + 1  # type: ignore[operator]
    assert compact_table(table.path, files_min=3).files_before == 0


def test_a_load_and_a_compaction_at_once_do_not_disturb_each_other(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        table.load(number, offset=number + 1)
    start, files = table.before(), table.file(3)
    kind = type(table.tables)
    raced: list[bool] = []
    real = kind.put

    def meet(self: Any, path: str, base: Snapshot, change: TableChange) -> int:
        if change.operation == "OPTIMIZE" and not raced:
            raced.append(True)
            commit(table.tables, path, TableChange("LOAD", files, offsets={IDS[0]: 4}), before=start)
        return real(self, path, base, change)

    monkeypatch.setattr(kind, "put", meet)
    assert compact_table(table.path).files_before == 3
    assert (table.rows(), table.offsets(), len(table.now().files())) == ([0, 1, 2, 3], [4, None], 2)


def test_the_second_of_two_compactions_at_once_gives_up_and_leaves_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        table.load(number, offset=number + 1)
    kind = type(table.tables)
    raced: list[bool] = []
    real = kind.put

    def meet(self: Any, path: str, base: Snapshot, change: TableChange) -> int:
        if not raced:
            raced.append(True)
            assert compact_table(table.path).files_before == 3
        return real(self, path, base, change)

    monkeypatch.setattr(kind, "put", meet)
    assert compact_table(table.path).files_before == 0
    assert (table.rows(), len(table.now().files())) == ([0, 1, 2], 1)
    assert len(table.parquet()) == 4, "three old ones, for readers of older versions, and the one of the first"


def test_orphans_are_removed_and_nothing_else(table: Table) -> None:
    table.load(1, offset=1)
    (orphan,) = table.file(2)
    assert remove_orphans(table.path) == [], "it is young: its load may still be at work"
    assert remove_orphans(table.path, older_than_h=0, dry_run=True) == [orphan.path]
    assert remove_orphans(table.path, older_than_h=0) == [orphan.path]
    assert not Path(table.path, orphan.path).exists()
    assert table.rows() == [1]


def test_what_a_compaction_has_just_replaced_is_left_to_readers_however_old_it_is(table: Table) -> None:
    """A query that began a moment ago reads the files of the version before; they were written weeks ago."""
    for number in range(2):
        table.load(number, offset=number + 1)
    old = {file.path for file in table.now().files()}
    for name in old:
        os.utime(Path(table.path, name), (0, 0))
    compact_table(table.path)
    (orphan,) = table.file(9)
    os.utime(Path(table.path, orphan.path), (0, 0))
    assert remove_orphans(table.path) == [orphan.path]
    assert table.parquet() == old | {file.path for file in table.now().files()}
    assert set(remove_orphans(table.path, older_than_h=0)) == old


def test_a_file_that_old_versions_name_stays_when_a_checkpoint_has_dropped_its_entry(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written 40 days ago and replaced 10 days ago: versions of the 20 days before that name it, and a checkpoint forgets it after 7."""

    def begin(days_ago: int) -> None:
        for module in (delta, manifest):
            monkeypatch.setattr(module, "now_ms", lambda: now_ms() - days_ago * DAY_MS)

    begin(40)
    for number in range(2):
        table.load(number, offset=number + 1)
    old = {file.path for file in table.now().files()}
    then_s = now_ms() / 1000 - 40 * 86_400
    for name in old:
        os.utime(Path(table.path, name), (then_s, then_s))
    begin(10)
    compact_table(table.path)
    if table.tables.name == "delta":
        delta.make_checkpoint(table.path)
    assert remove_orphans(table.path, 30 * 24) == []
    assert old < table.parquet()
    assert set(remove_orphans(table.path, 9 * 24)) == old
    assert table.rows() == [0, 1]


def test_where_no_version_can_be_read_nothing_is_an_orphan(table: Table) -> None:
    """Its files are what is left of the table."""
    table.load(1, offset=1)
    for file in Path(table.path).glob("_*/*.json"):
        file.unlink()
    before = table.parquet()
    with pytest.raises(TableError):
        remove_orphans(table.path, 0)
    assert table.parquet() == before


def test_readers_wait_until_a_table_is_complete(table: Table) -> None:
    """The wait asks again and again, and ends as soon as the property says so."""
    noon = datetime(2013, 7, 1, 12, tzinfo=UTC)
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        set_watermark(table.tables, table.path, int(noon.timestamp() * 1000) - 1_500 + int(clock[0] * 1000))

    assert completion_watermark(table.path) is None
    assert wait_until_complete(table.path, noon, 60, monotonic=lambda: clock[0], sleep=sleep) == noon
    assert clock[0] == 1.5
    assert table.now().properties["completionWatermark"] == "2013-07-01T12:00:00.000Z"
    with pytest.raises(IncompleteTableError, match=r"not complete up to 2013-07-02.* after 0 s; it is complete up to 2013-07-01T12:00:00"):
        wait_until_complete(table.path, noon.replace(day=2), 0)
    with pytest.raises(ValueError, match="has no time zone"):
        wait_until_complete(table.path, noon.replace(tzinfo=None), 0)


def test_a_table_of_another_format_or_with_other_partitions_is_refused(table: Table) -> None:
    other = next(format_named(name) for name in FORMATS if name != table.tables.name)
    with pytest.raises(TableError, match=f"there is a {table.tables.name} table already"):
        open_or_create(other, table.path, SCHEMA, [DAY], "")
    with pytest.raises(TableError, match="the table is partitioned by event_day, the load by event_day, event_hour"):
        open_or_create(table.tables, table.path, SCHEMA, [DAY, "event_hour"], "")


@pytest.mark.parametrize("name", ["50%20", "what?", "a#b", "back\\slash"])
def test_a_path_that_deltalake_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TableError, match="there can be no Delta table at a path with"):
        open_or_create(format_named("delta"), str(tmp_path / name), SCHEMA, [DAY], "")


def test_offsets_and_properties_outlive_the_versions_that_wrote_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta drops old versions once a checkpoint holds what they said."""
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 3)
    table = Table(format_named("delta"), str(tmp_path / "table"))
    table.load(1, offset=1)
    set_properties(table.tables, table.path, {"a": "1"})
    table.load(2, offset=2)
    assert (Path(table.path, "_delta_log", "_last_checkpoint")).exists()
    for file in Path(table.path, "_delta_log").glob("*.json"):
        file.unlink()
    assert (table.offsets(), dict(table.now().properties), table.rows()) == ([2, None], {"a": "1"}, [1, 2])
    assert list(table.tables.commits(table.path, -1)) == []


def test_a_manifest_keeps_the_newest_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "VERSIONS_KEPT", 3)
    table = Table(format_named("parquet"), str(tmp_path / "table"))
    for offset in range(1, 6):
        table.load(offset, offset=offset)
    assert [each.version for each in table.tables.commits(table.path, -1)] == [3, 4, 5]
    assert (table.rows(), table.offsets()) == ([1, 2, 3, 4, 5], [5, None])
    with pytest.raises(TableError, match="there is no version 1, the oldest is 3"):
        table.tables.open(table.path, 1)


@pytest.mark.parametrize("others", [4, 5, 6])
def test_a_writer_that_slept_while_versions_were_deleted_has_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Its version's name is free again, and nobody would ever read what it makes there; also right below the oldest that is kept."""
    monkeypatch.setattr(manifest, "VERSIONS_KEPT", 3)
    table = Table(format_named("parquet"), str(tmp_path / "table"))
    table.load(1, offset=1)
    asleep, last = table.now(), others + 1
    for offset in range(2, last + 1):
        table.load(offset, offset=offset)
    with pytest.raises(VersionTakenError):
        table.tables.put(table.path, asleep, TableChange("LOAD", table.file(9), offsets={IDS[0]: 2}, metadata={"moldau.job": "job"}))
    assert [each.version for each in table.tables.commits(table.path, -1)] == [last - 2, last - 1, last], "not its counts"
    assert (table.rows(), table.offsets()) == (list(range(1, last + 1)), [last, None])
    assert len(list(Path(table.path, manifest.FOLDER).iterdir())) == 3


def test_words_below_the_versions_that_are_kept_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that slept and died before it could look left them; the next version removes them."""
    monkeypatch.setattr(manifest, "VERSIONS_KEPT", 3)
    table = Table(format_named("parquet"), str(tmp_path / "table"))
    folder = Path(table.path, manifest.FOLDER)
    table.load(1, offset=1)
    left = (folder / f"{1:020d}.json").read_text()
    for offset in range(2, 5):
        table.load(offset, offset=offset)
    (folder / f"{1:020d}.json").write_text(left)
    assert [each.version for each in table.tables.commits(table.path, -1)] == [2, 3, 4]
    table.load(5, offset=5)
    assert sorted(int(each.stem) for each in folder.iterdir()) == [3, 4, 5]


def test_two_writers_delete_old_versions_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each deletes what the other one has deleted already: the commit is made all the same."""
    monkeypatch.setattr(manifest, "VERSIONS_KEPT", 1)
    table = Table(format_named("parquet"), str(tmp_path / "table"))
    real = os.unlink

    def late(path: str) -> None:
        real(path)
        if path.endswith(".json"):
            real(path)

    monkeypatch.setattr("moldau.lake.tables.places.local.os.unlink", late)
    assert [table.load(1, offset=1), table.load(2, offset=2)] == [1, 2]
    assert table.rows() == [1, 2]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, content: str) -> None:
    table = Table(format_named("parquet"), str(tmp_path / "table"))
    file = Path(table.path, "_manifests", "00000000000000000001.json")
    file.write_text(content)
    with pytest.raises(TableError, match=rf"{file}: no manifest: "):
        table.now()


def test_the_folders_of_a_new_table_are_brought_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that a power failure takes back is loaded again from the beginning, and its counts would be there twice."""
    synced: list[str] = []
    monkeypatch.setattr("moldau.lake.tables.places.local._sync", synced.append)
    (tmp_path / "there").mkdir()
    LocalPlace(str(tmp_path / "there" / "a" / "b")).prepare("_log")
    assert synced == [str(tmp_path / "there" / "a" / "b"), str(tmp_path / "there" / "a"), str(tmp_path / "there")]
    LocalPlace(str(tmp_path / "there" / "a" / "b")).prepare("_log")
    assert len(synced) == 3


def test_statistics_are_kept_with_the_file(table: Table) -> None:
    (file,) = table.file(1, 5)
    assert json.loads(file.statistics)["maxValues"] == {"n": 5, "small": 5, "event_hour": 0}
