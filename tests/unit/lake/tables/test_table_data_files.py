"""A writer leaves one file for each UTC day or hour, with bounds that are never tighter than its rows."""

import json
import os
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.lake.tables import data_files
from moldau.lake.tables.data_files import FileError, FileStatistics, PartitionWriter, files_of

DAY_MS = 86_400_000


def test_rows_go_to_the_file_of_their_day(tmp_path: Path) -> None:
    writer = PartitionWriter(str(tmp_path), "job")
    writer.add(pa.table({"n": [1, 2, 3]}), np.array([DAY_MS, 0, 2 * DAY_MS - 1]))
    writer.add(pa.table({"n": [4]}), np.array([-1]))
    writer.add(pa.table({"n": pa.array([], pa.int64())}), np.array([], np.int64))
    files = writer.finish()
    found = {file.partition["event_day"]: pq.read_table(tmp_path / file.path, partitioning=None)["n"].to_pylist() for file in files}
    assert found == {"1969-12-31": [4], "1970-01-01": [2], "1970-01-02": [1, 3]}
    for file in files:
        assert (tmp_path / file.path).stat().st_size == file.size
        assert file.path.startswith(f"event_day={file.partition['event_day']}/job-")
        assert json.loads(file.statistics)["numRecords"] == file.rows


def test_rows_go_to_the_file_of_their_hour(tmp_path: Path) -> None:
    hour_ms = DAY_MS // 24
    writer = PartitionWriter(str(tmp_path), "a job: [1]", "hour")
    writer.add(pa.table({"n": [1, 2, 3, 4]}), np.array([0, hour_ms, 2 * hour_ms - 1, 25 * hour_ms]))
    files = writer.finish()
    assert [(dict(file.partition), file.rows) for file in files] == [
        ({"event_day": "1970-01-01", "event_hour": "0"}, 1),
        ({"event_day": "1970-01-01", "event_hour": "1"}, 2),
        ({"event_day": "1970-01-02", "event_hour": "1"}, 1),
    ]
    assert files[0].path.startswith("event_day=1970-01-01/event_hour=0/a-job-1-")
    assert pq.read_schema(tmp_path / files[0].path).names == ["n"]


def test_by_day_the_hour_is_a_column(tmp_path: Path) -> None:
    writer = PartitionWriter(str(tmp_path), "job")
    writer.add(pa.table({"n": [1, 2, 3]}), np.array([0, DAY_MS - 1, -1]))
    rows = [row for file in writer.finish() for row in pq.read_table(tmp_path / file.path, partitioning=None).to_pylist()]
    assert [(row["n"], row["event_hour"]) for row in rows] == [(3, 23), (1, 0), (2, 23)]


def test_a_full_writer_writes_a_part_of_a_file_early_and_still_leaves_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 20_000)
    writer = PartitionWriter(str(tmp_path), "job")
    for round_ in range(4):
        writer.add(pa.table({"n": range(round_ * 1000, round_ * 1000 + 1000)}), np.zeros(1000, np.int64))
        assert len(list(tmp_path.glob("*/*.parquet"))) == min(round_, 1)
    (file,) = writer.finish()
    with pq.ParquetFile(tmp_path / file.path) as whole:
        assert whole.num_row_groups > 1
        assert whole.read()["n"].to_pylist() == list(range(4000))
    found = json.loads(file.statistics)
    assert (found["numRecords"], found["minValues"]["n"], found["maxValues"]["n"]) == (4000, 0, 3999), "of all row groups"


def test_no_more_files_are_open_than_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of ten hours in turn: the file that was written to longest ago is ended, and its hour gets another one."""
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 1)
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 3)
    writer = PartitionWriter(str(tmp_path), "job", "hour")
    for number in range(40):
        writer.add(pa.table({"n": [number]}), np.array([number % 10 * (DAY_MS // 24)]))
        assert len(writer._open) <= 3
    files = writer.finish()
    found = sorted((int(file.partition["event_hour"] or 0), n) for file in files for n in rows_of(tmp_path, file.path))
    assert found == sorted((number % 10, number) for number in range(40))
    assert sorted(each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*.parquet")) == sorted(file.path for file in files)


def rows_of(directory: Path, path: str) -> list[int]:
    return pq.read_table(directory / path, partitioning=None)["n"].to_pylist()  # type: ignore[no-any-return]


def test_rows_that_were_written_early_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of fifty hours in each batch: writing one hour frees its rows, though those of others came with them."""
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 2 << 20)
    writer = PartitionWriter(str(tmp_path), "job", "hour")
    before, most = pa.total_allocated_bytes(), 0
    for _ in range(100):
        writer.add(pa.table({"n": np.random.default_rng(1).integers(0, 1 << 60, 65_536)}), np.arange(65_536) % 50 * (DAY_MS // 24))
        most = max(most, pa.total_allocated_bytes() - before)
    writer.discard()
    assert most < 32 << 20, f"{most} bytes of 50 MB; allowed are 2 MB of rows, a batch, and the last row group of each open file"


def test_rows_of_an_hour_each_take_no_more_memory_than_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row alone takes some kilobytes, which its own bytes do not show: fifty thousand of them took 300 MB for 3."""
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 1 << 20)
    writer = PartitionWriter(str(tmp_path), "job", "hour")
    for start in range(0, 400, 100):
        writer.add(pa.table({f"c{number}": range(100) for number in range(8)}), np.arange(start, start + 100) * (DAY_MS // 24))
        assert sum(map(len, writer._tables.values())) <= 128
    assert sum(file.rows for file in writer.finish()) == 400


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "event_day=1970-01-01").write_text("a file where a folder has to be")
    writer = PartitionWriter(str(tmp_path), "job")
    writer.add(pa.table({"n": [1]}), np.array([0]))
    with pytest.raises(FileError, match=r"event_day=1970-01-01/job-\w+\.parquet: cannot be written: (file exists|not a directory)"):
        writer.finish()


def test_a_load_of_many_hours_does_not_hold_a_file_open_for_each(tmp_path: Path) -> None:
    """Hours that were never open together are written one after the other: a year of hours is more than a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    writer = PartitionWriter(str(tmp_path), "job", "hour")
    writer.add(pa.table({"n": range(60)}), np.arange(60) * (DAY_MS // 24))
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    try:
        assert len(writer.finish()) == 60
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_of_a_writer_that_failed_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk each try again would leave its files, and the disk would stay full."""
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 1)
    writer = PartitionWriter(str(tmp_path), "job")
    writer.add(pa.table({"n": [1]}), np.array([0]))
    (tmp_path / "event_day=1970-01-02").write_text("a file where a folder has to be")
    with pytest.raises(FileError):
        writer.add(pa.table({"n": [1, 2]}), np.array([0, DAY_MS]))
    assert len(list(tmp_path.glob("*/*.parquet"))) == 1
    writer.discard()
    assert list(tmp_path.glob("*/*.parquet")) == []
    writer.discard()


def test_a_file_that_cannot_be_ended_either_hides_no_error_and_keeps_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet that broke off says so when it is ended, as it likes: what broke it is told, and the files go all the same."""
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 1)
    writer = PartitionWriter(str(tmp_path), "job")
    writer.add(pa.table({"n": [1, 2]}), np.array([0, DAY_MS]))
    assert len(list(tmp_path.glob("*/*.parquet"))) == 2

    def broken(_: pq.ParquetWriter) -> None:
        raise pa.ArrowInvalid("a column chunk is missing")

    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, "close", broken)
        writer.discard()
    assert list(tmp_path.glob("*/*.parquet")) == []


def test_a_file_that_cannot_be_begun_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("moldau.lake.tables.data_files.pq.ParquetWriter", full)
    writer = PartitionWriter(str(tmp_path), "job")
    writer.add(pa.table({"n": [1]}), np.array([0]))
    with pytest.raises(FileError, match="no space left on device"):
        writer.finish()
    assert list(tmp_path.glob("*/*.parquet")) == []


def statistics(*tables: pa.Table) -> dict[str, Any]:
    found = FileStatistics()
    for table in tables:
        found.add(table)
    return found.result()


def test_statistics_bound_what_is_there() -> None:
    moment = datetime(2013, 1, 1, 10, 0, 0, 123_456, tzinfo=UTC)
    table = pa.table(
        {
            "i": [3, None, -1],
            "f": [1.5, 0.5, None],
            "nan": [float("inf"), 1.0, 2.0],
            "s": ["b", "a", None],
            "long": ["x" * 40, "y", "z"],
            "t": pa.array([moment, None, moment], pa.timestamp("us", tz="UTC")),
            "bool": [True, False, None],
            "nothing": pa.array([None] * 3, pa.int64()),
            "nested": [{"x": 1, "l": [1]}, None, {"x": 3, "l": []}],
            "list": [[1], [], None],
        }
    )
    found = statistics(table)
    assert found["numRecords"] == 3
    assert found["minValues"] == {"i": -1, "f": 0.5, "s": "a", "long": "x" * 32, "t": "2013-01-01T10:00:00.123Z", "nested": {"x": 1}}
    assert found["maxValues"] == {"i": 3, "f": 1.5, "s": "b", "long": "z", "t": "2013-01-01T10:00:00.124Z", "nested": {"x": 3}}
    assert found["nullCount"] == {"i": 1, "f": 1, "nan": 0, "s": 1, "long": 0, "t": 1, "bool": 1, "nothing": 3, "nested": {"x": 1}}
    tight = statistics(pa.table({"long": ["a", "x" * 40]}))
    assert "long" not in tight["maxValues"], "a cut maximum would be too small"


def test_a_value_that_is_no_number_or_no_date_gives_no_bound() -> None:
    """A reader of Delta passes over a file by its bounds; NaN is above all numbers there. And no value ends the load."""
    centuries = pa.array([2**62, 0], pa.timestamp("us", tz="UTC"))
    found = statistics(pa.table({"f": [1.0, float("nan")], "t": centuries, "last": pa.array([253_402_300_799_999_999, 0], centuries.type)}))
    assert (found["minValues"], found["maxValues"]) == ({}, {})
    assert found["nullCount"] == {"f": 0, "t": 0, "last": 0}
    early = statistics(pa.table({"t": pa.array([-62_135_596_800_000_000], centuries.type)}))
    assert early["minValues"] == {"t": "0001-01-01T00:00:00.000Z"}, "a year has four digits"
    assert statistics(pa.table({"f": [1.0, float("nan")]}), pa.table({"f": [2.0]}))["maxValues"] == {}


def test_files_of_a_job_whose_name_begins_with_an_underscore_are_found(tmp_path: Path) -> None:
    writer = PartitionWriter(str(tmp_path), "_job", load="00ff")
    writer.add(pa.table({"n": [1]}), np.array([0]))
    (file,) = writer.finish()
    assert files_of(str(tmp_path), "_job", "00ff") == [file.path]
