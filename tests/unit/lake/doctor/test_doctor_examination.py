"""What an examination sees of a table on disk: each planted fault is a fact, and nothing else is."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.lake.counts import COUNTS_KEY
from moldau.lake.doctor.examination import examine
from moldau.lake.doctor.facts import Limits, TableFacts
from moldau.lake.doctor.findings import Check
from moldau.lake.doctor.footers import sampled
from moldau.lake.doctor.log_files import first_unpublished, list_log
from moldau.lake.doctor.rules import findings
from moldau.lake.tables import delta
from moldau.lake.tables.data_files import DAY, DataFile
from moldau.lake.tables.delta import make_checkpoint
from moldau.lake.tables.format import TableChange, TableError
from moldau.lake.tables.opening import FORMATS
from moldau.lake.tables.places.local import LocalPlace
from moldau.lake.tables.rewriting import compact_table
from support.number_table import NumberTable

NOW = datetime.now(UTC)
LATER = NOW + timedelta(days=60)
"""As if the files had been made long ago: what asks the clock itself is `remove_orphans`, for which files get an old time."""


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> NumberTable:
    return NumberTable(request.param, tmp_path / "a täble")


def checks(facts: TableFacts, limits: Limits | None = None) -> list[Check]:
    return [each.check for each in findings(facts, limits or Limits())]


def grow_old(path: Path, days: int = 60) -> None:
    then = NOW.timestamp() - days * 86_400
    os.utime(path, (then, then))


def test_a_table_that_is_well(table: NumberTable) -> None:
    table.load(1, 2)
    table.load(3, day=1)
    facts = examine(table.path)
    assert (facts.format, facts.version, facts.files, facts.rows, facts.partitions) == (table.tables.name, 2, 2, 3, 2)
    assert facts.bytes == sum(each.size for each in table.now().files())
    assert (facts.footers.read, facts.unneeded.kept, checks(facts)) == (2, 0, [])


def test_missing_and_changed_files_are_named(table: NumberTable) -> None:
    for day in range(4):
        table.load(day, day=day)
    missing, cut, damaged = (table.file(number) for number in range(3))
    missing.unlink()
    os.truncate(cut, 100)
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    facts = examine(table.path)
    assert [each.path for each in facts.missing] == [str(missing.relative_to(table.path))]
    assert [(file.path, size) for file, size in facts.resized] == [(str(cut.relative_to(table.path)), 100)]
    assert set(facts.footers.damaged) == {str(each.relative_to(table.path)) for each in (cut, damaged)}
    assert checks(facts) == [Check.MISSING_FILES, Check.FILE_SIZES, Check.DAMAGED_FILES]


def test_a_file_that_was_replaced_has_other_rows_or_columns(table: NumberTable) -> None:
    """Another program has written them, into files that the table names."""
    whole = pa.table({"n": pa.array([1, 2], pa.int64()), "more": ["a", "b"]})
    text = pa.table({"n": ["a"]})
    for number, replaced in enumerate((whole, text)):
        name = f"{DAY}=1970-01-01/{number}.parquet"
        place = Path(table.path, name)
        place.parent.mkdir(exist_ok=True)
        pq.write_table(replaced, place)
        file = DataFile(name, {DAY: "1970-01-01"}, place.stat().st_size, 1, '{"numRecords":1}')
        table.commit(TableChange("LOAD", [file]))
    facts = examine(table.path)
    assert facts.footers.row_counts == {f"{DAY}=1970-01-01/0.parquet": (2, 1)}
    assert facts.footers.unfit == {f"{DAY}=1970-01-01/1.parquet": "column n is int64 in the table and string in the file"}
    assert facts.footers.beyond == {"more": 1}


def test_a_column_that_is_wider_in_a_file_is_named_and_a_narrower_one_is_well(tmp_path: Path) -> None:
    table = NumberTable("delta", tmp_path / "table", [("n", pa.int32())])
    narrow, wide = pa.table({"n": pa.array([1], pa.int16())}), pa.table({"n": pa.array([1], pa.int64())})
    table.commit(TableChange("LOAD", table.write(narrow)))
    assert checks(examine(table.path)) == []
    table.commit(TableChange("LOAD", table.write(wide)))
    assert list(examine(table.path).footers.unfit.values()) == ["column n is wider in the file than in the table"]


def test_of_many_files_some_are_read_spread_over_all() -> None:
    files = [DataFile(str(number), {}, 1, 1, "") for number in range(100)]
    assert [each.path for each in sampled(files, 4)] == ["0", "33", "66", "99"]
    assert [each.path for each in sampled(files, 1)] == ["0"]
    assert (sampled(files, 0), len(sampled(files, 200))) == ([], 100)


def test_small_files_of_days_that_are_over_are_counted(table: NumberTable) -> None:
    today = (NOW.date() - datetime(1970, 1, 1, tzinfo=UTC).date()).days
    for number in range(3):
        table.load(number)
        table.load(number, day=today)
    table.load(9, day=1)
    small = examine(table.path, Limits(small_files_min=3)).small
    assert small is not None
    assert (small.files, small.becoming, small.partitions, small.most, small.most_files) == (3, 1, 1, f"{DAY}=1970-01-01", 3)
    assert examine(table.path, Limits(small_files_min=4)).small is None


def test_files_that_no_version_needs_are_counted_once_they_are_old(table: NumberTable) -> None:
    table.load(1)
    (young,), (old,) = table.write([2]), table.write([3])
    grow_old(Path(table.path, old.path))
    unneeded = examine(table.path).unneeded
    assert (unneeded.expired, unneeded.expired_bytes) == (1, old.size)
    assert (unneeded.kept, unneeded.kept_bytes) == (1, young.size)


def test_what_a_compaction_has_just_replaced_is_kept(table: NumberTable) -> None:
    for number in range(3):
        table.load(number)
        grow_old(table.file(0))
    compact_table(table.path)
    unneeded = examine(table.path).unneeded
    assert (unneeded.expired, unneeded.kept) == (0, 3)


def test_what_dead_writers_left_in_the_log_is_counted_once_it_is_old(table: NumberTable) -> None:
    name = "_delta_log" if table.tables.name == "delta" else "_manifests"
    folder = Path(table.path, name)
    for number in range(2):
        (folder / f"_moldau_{number:032x}.tmp").write_text("half")
    grow_old(folder / f"_moldau_{1:032x}.tmp", 1)
    log = examine(table.path).log
    assert (log.leftovers, log.leftover_bytes) == ((f"{name}/_moldau_{1:032x}.tmp",), 4)


def test_versions_and_tombstones_of_a_delta_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions before the newest checkpoint that is old enough are not needed; removed files are entries until a checkpoint drops them."""
    table = NumberTable("delta", tmp_path / "table")
    for number in range(4):
        table.load(number)
    compact_table(table.path)  # version 5
    make_checkpoint(table.path)
    table.load(4)  # version 6
    log = examine(table.path).log
    assert (log.checkpoint, log.old_versions, log.tombstones, log.expired_tombstones) == (5, 0, 4, 0)
    log = examine(table.path, now=LATER).log
    assert (log.old_versions, log.tombstones, log.expired_tombstones) == (5, 4, 4), "versions 0 to 4"
    folder = Path(table.path, "_delta_log")
    for version in range(4):
        grow_old(folder / f"{version:020d}.json")
    assert examine(table.path).log.old_versions == 0, "version 3 was the newest a day ago, and has no checkpoint"
    for version in range(6):
        grow_old(folder / f"{version:020d}.json")
    log = examine(table.path).log
    assert (log.old_versions, log.old_bytes) == (5, sum((folder / f"{version:020d}.json").stat().st_size for version in range(5)))


def test_tombstones_after_the_checkpoint_count_too(tmp_path: Path) -> None:
    table = NumberTable("delta", tmp_path / "table")
    for number in range(2):
        table.load(number)
    compact_table(table.path)
    assert examine(table.path).log.tombstones == 2


def test_versions_whose_counts_the_audit_lacks_are_kept(tmp_path: Path) -> None:
    """They stand in the words of the version, and nowhere else."""
    table = NumberTable("delta", tmp_path / "table")
    words = {"moldau.job": "job", "moldau.topic": "t", COUNTS_KEY: {"x": 1}}
    for number in range(5):
        table.commit(TableChange("LOAD", table.write([number]), metadata=words))
    make_checkpoint(table.path)
    assert examine(table.path, now=LATER).log.old_versions == 5, "there is no tier, so nothing is published"
    notes = Path(table.path, "_moldau")
    notes.mkdir()
    note = {"job": "job", "topic": "t", "tier": "lake", "table": table.now().id}
    (notes / "tier-1.json").write_text(json.dumps({**note, "epoch": "", "audit": "", "positions": {}}))
    log = examine(table.path, now=LATER).log
    assert (log.old_versions, log.unpublished) == (1, 1), "version 0 has no counts"
    (notes / "published-1.json").write_text(json.dumps({**note, "version": 3}))
    log = examine(table.path, now=LATER).log
    assert (log.old_versions, log.unpublished) == (4, 4)


@pytest.mark.parametrize("part", ["_moldau/", "_delta_log/"])
def test_what_the_audit_has_is_not_guessed_where_it_cannot_be_read(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer for a moment is no reason to delete counts."""
    table = NumberTable("delta", tmp_path / "table")
    table.commit(TableChange("LOAD", table.write([1]), metadata={"moldau.job": "job", "moldau.topic": "t", COUNTS_KEY: {"x": 1}}))
    notes = Path(table.path, "_moldau")
    notes.mkdir()
    (notes / "tier-1.json").write_text(json.dumps({"job": "job", "topic": "t", "table": table.now().id}))
    listing, real = list_log(table.path, "_delta_log"), LocalPlace.read
    assert first_unpublished(table.path, table.now().id, listing, [1]) == 1

    def read(place: LocalPlace, name: str) -> bytes:
        if name.startswith(part):
            raise OSError("timed out")
        return real(place, name)

    monkeypatch.setattr(LocalPlace, "read", read)
    with pytest.raises(OSError, match="timed out"):
        first_unpublished(table.path, table.now().id, listing, [1])


def test_a_table_without_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 1_000)
    table = NumberTable("delta", tmp_path / "table")
    for number in range(6):
        table.load(number)
    assert checks(examine(table.path), Limits(since_checkpoint_max=6)) == [Check.CHECKPOINT]
    assert checks(examine(table.path), Limits(since_checkpoint_max=7)) == []


def test_where_there_is_no_table_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no table"):
        examine(str(tmp_path))
    with pytest.raises(TableError, match="tables lie in directories of this machine"):
        examine("gs://bucket/table")
