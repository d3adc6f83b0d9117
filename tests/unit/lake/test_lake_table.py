"""Data and offsets become visible together or not at all, and two loads from the same offsets cannot both commit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from moldau.lake import table as module
from moldau.lake.data_files import DAY, DataFile, DayWriter
from moldau.lake.table import (
    LoadConflictError,
    Progress,
    TableMismatchError,
    application_id,
    commit,
    open_or_create,
    open_table,
    progress,
    remove_orphans,
)

SCHEMA = pa.schema([("n", pa.int64()), (DAY, pa.date32())])
IDS = [application_id("job", "00ff", partition) for partition in range(2)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = str(tmp_path / "table")
    open_or_create(where, SCHEMA, "a table")
    return where


def write(path: str, *numbers: int) -> list[DataFile]:
    """A data file that no commit names yet."""
    writer = DayWriter(path, "job")
    writer.add(pa.table({"n": numbers}), np.zeros(len(numbers), np.int64))
    return writer.finish()


def offsets(path: str) -> list[int | None]:
    return [known.offset for known in progress(open_table(path), IDS)]


def rows(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist())


def before(path: str) -> list[Progress]:
    return progress(open_table(path), IDS)


def test_a_table_that_is_not_there_has_no_progress(tmp_path: Path) -> None:
    assert open_table(str(tmp_path / "none")) is None
    assert progress(None, IDS) == [Progress(IDS[0], None), Progress(IDS[1], None)]


def test_a_commit_shows_rows_and_offsets_together(path: str) -> None:
    files = write(path, 1, 2, 3)
    assert rows(path) == [], "a file that no commit names is not there"
    assert commit(path, files, before(path), {IDS[0]: 3}, {"moldau.job": "job"}) == 1
    assert (rows(path), offsets(path)) == ([1, 2, 3], [3, None])
    assert commit(path, write(path, 4), before(path), {IDS[0]: 4, IDS[1]: 9}, {}) == 2
    assert (rows(path), offsets(path)) == ([1, 2, 3, 4], [4, 9])
    assert DeltaTable(path).history()[1]["moldau.job"] == "job"


def test_the_second_of_two_loads_from_the_same_offsets_fails_and_changes_nothing(path: str) -> None:
    both = before(path)
    commit(path, write(path, 1), both, {IDS[0]: 1}, {})
    with pytest.raises(LoadConflictError, match="another load has moved moldau:job:00ff:0 from offset None, where this one started, to 1"):
        commit(path, write(path, 1), both, {IDS[0]: 1}, {})
    assert (rows(path), offsets(path)) == ([1], [1, None])


def test_a_race_inside_the_commit_is_lost_by_one(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other load commits between our look at the table and our commit."""
    start = before(path)
    real = module._check_unmoved
    raced: list[bool] = []

    def check_then_lose(where: str, table: DeltaTable, known: Any) -> None:
        real(where, table, known)
        if not raced:
            raced.append(True)
            commit(path, write(path, 7), start, {IDS[0]: 1}, {})

    monkeypatch.setattr(module, "_check_unmoved", check_then_lose)
    with pytest.raises(LoadConflictError):
        commit(path, write(path, 7), start, {IDS[0]: 1}, {})
    assert (rows(path), offsets(path)) == ([7], [1, None])


def test_a_commit_of_another_job_in_between_is_no_conflict(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start, other = before(path), application_id("other", "00ff", 0)
    real = module._check_unmoved
    raced: list[bool] = []

    def check_then_meet(where: str, table: DeltaTable, known: Any) -> None:
        real(where, table, known)
        if not raced:
            raced.append(True)
            commit(path, write(path, 7), [Progress(other, None)], {other: 1}, {})

    monkeypatch.setattr(module, "_check_unmoved", check_then_meet)
    commit(path, write(path, 8), start, {IDS[0]: 1}, {})
    assert (rows(path), offsets(path)) == ([7, 8], [1, None])


def test_an_error_after_the_commit_is_no_failure(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the commit, a checkpoint say, may fail; the rows are there, and must not be added again."""
    real = DeltaTable.create_write_transaction

    def commit_then_fail(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        raise DeltaError("no space for the checkpoint")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_then_fail)
    assert commit(path, write(path, 1), before(path), {IDS[0]: 1}, {}) == 1
    assert (rows(path), offsets(path)) == ([1], [1, None])


def test_an_error_before_the_commit_is_one(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        raise DeltaError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", fail)
        with pytest.raises(DeltaError, match="no space"):
            commit(path, write(path, 1), before(path), {IDS[0]: 1}, {})
    assert (rows(path), offsets(path)) == ([], [None, None])


def test_offsets_outlive_the_commits_that_wrote_them(path: str) -> None:
    """Delta drops old commits once a checkpoint holds what they said."""
    for offset in range(1, 4):
        commit(path, [], before(path), {IDS[0]: offset}, {})
    DeltaTable(path).create_checkpoint()
    for file in Path(path, "_delta_log").glob("*.json"):
        file.unlink()
    assert offsets(path) == [3, None]


@pytest.mark.parametrize("name", ["50%20", "what?", "a#b", "back\\slash"])
def test_a_path_that_deltalake_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="there can be no Delta table at a path with"):
        open_or_create(str(tmp_path / name), SCHEMA, "")


def test_a_table_with_other_columns_is_refused(path: str) -> None:
    with pytest.raises(TableMismatchError, match="column m is missing in the table and PrimitiveType"):
        open_or_create(path, pa.schema([("n", pa.int64()), ("m", pa.string()), (DAY, pa.date32())]), "")
    with pytest.raises(TableMismatchError, match="column n is PrimitiveType"):
        open_or_create(path, pa.schema([("n", pa.string()), (DAY, pa.date32())]), "")


def test_orphans_are_removed_and_nothing_else(path: str) -> None:
    kept = write(path, 1)
    commit(path, kept, before(path), {IDS[0]: 1}, {})
    (orphan,) = write(path, 2)
    assert remove_orphans(path) == [], "it is young: its load may still be at work"
    assert remove_orphans(path, older_than_h=0) == [orphan.path]
    assert not Path(path, orphan.path).exists()
    assert rows(path) == [1]
    assert json.loads(kept[0].statistics)["numRecords"] == 1
