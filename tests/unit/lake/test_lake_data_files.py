"""A writer leaves one file for each UTC day, with bounds that are never tighter than its rows."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.lake import data_files
from moldau.lake.data_files import DayWriter, statistics

DAY_MS = 86_400_000


def test_rows_go_to_the_file_of_their_day(tmp_path: Path) -> None:
    writer = DayWriter(str(tmp_path), "job")
    writer.add(pa.table({"n": [1, 2, 3]}), np.array([DAY_MS, 0, 2 * DAY_MS - 1]))
    writer.add(pa.table({"n": [4]}), np.array([-1]))
    writer.add(pa.table({"n": pa.array([], pa.int64())}), np.array([], np.int64))
    files = writer.finish()
    found = {file.day: pq.read_table(tmp_path / file.path, partitioning=None)["n"].to_pylist() for file in files}
    assert found == {"1969-12-31": [4], "1970-01-01": [2], "1970-01-02": [1, 3]}
    for file in files:
        assert (tmp_path / file.path).stat().st_size == file.size
        assert file.path.startswith(f"event_day={file.day}/job-")
        assert json.loads(file.statistics)["numRecords"] == file.rows


def test_a_full_writer_writes_its_fullest_day_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 10_000)
    writer = DayWriter(str(tmp_path), "job")
    for round_ in range(4):
        writer.add(pa.table({"n": range(round_ * 1000, round_ * 1000 + 1000)}), np.zeros(1000, np.int64))
        assert len(list(tmp_path.glob("*/*.parquet"))) == (round_ + 1) // 2
    files = writer.finish()
    assert sorted(n for file in files for n in pq.read_table(tmp_path / file.path, partitioning=None)["n"].to_pylist()) == list(range(4000))


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
            "nested": [{"x": 1}, None, None],
        }
    )
    found = statistics(table)
    assert found["numRecords"] == 3
    assert found["minValues"] == {"i": -1, "f": 0.5, "s": "a", "long": "x" * 32, "t": "2013-01-01T10:00:00.123Z"}
    assert found["maxValues"] == {"i": 3, "f": 1.5, "s": "b", "long": "z", "t": "2013-01-01T10:00:00.124Z"}
    assert found["nullCount"] == {"i": 1, "f": 1, "nan": 0, "s": 1, "long": 0, "t": 1, "bool": 1, "nothing": 3}
    tight = statistics(pa.table({"long": ["a", "x" * 40]}))
    assert "long" not in tight["maxValues"], "a cut maximum would be too small"
