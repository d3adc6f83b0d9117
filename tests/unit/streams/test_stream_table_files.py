"""A task's rows become files by day or hour of their time, with all columns of the table; a task that fails leaves none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from moldau.streams.table_output import write_rows

HOUR_MS = 3_600_000
NONE_MS = 50 * HOUR_MS
COLUMNS = pa.schema([("name", pa.string()), ("count", pa.int64()), ("note", pa.string())])


def batch(*rows: tuple[str, int, int | None]) -> Any:
    names, counts, hours = zip(*rows, strict=True)
    times = pa.array([None if hour is None else hour * HOUR_MS for hour in hours], pa.int64())
    return pa.record_batch({"name": pa.array(names), "count": pa.array(counts, pa.int32()), "_partition_time": times})


def written(directory: Path, batches: Iterator[Any], by: str = "hour") -> list[dict[str, Any]]:
    made = write_rows(batches, directory=str(directory), prefix="job", by=by, load="ab", columns=COLUMNS, none_ms=NONE_MS)
    return [row for each in made for row in each.to_pylist()]


def test_files_by_hour(tmp_path: Path) -> None:
    """What comes out names each file; a column that these rows do not have is null."""
    found = written(tmp_path, iter([batch(("a", 1, 0), ("b", 2, 25)), batch(("c", 3, 0))]))
    assert [(each["rows"], json.loads(each["partition"])) for each in found] == [
        (2, {"event_day": "1970-01-01", "event_hour": "0"}),
        (1, {"event_day": "1970-01-02", "event_hour": "1"}),
    ]
    rows = parquet.ParquetFile(tmp_path / found[0]["path"]).read().to_pylist()
    assert rows == [{"name": "a", "count": 1, "note": None}, {"name": "c", "count": 3, "note": None}]
    assert json.loads(found[0]["statistics"])["numRecords"] == 2
    assert found[0]["size"] == (tmp_path / found[0]["path"]).stat().st_size


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, iter([])) == []
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_fails(tmp_path: Path) -> None:
    def failing() -> Iterator[Any]:
        yield batch(("a", 1, 0))
        raise RuntimeError("the broker is away")

    with pytest.raises(RuntimeError, match="is away"):
        written(tmp_path, failing())
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_times_that_have_no_day(tmp_path: Path) -> None:
    """A row without a time goes into the day of its batch, and so does one before the year 1 or after 9999: they have no partition."""
    first, last = -17_259_888, 70_389_527
    rows: list[tuple[str, int, int | None]] = [
        ("a", 1, None),
        ("b", 1, first - 1),
        ("c", 1, first),
        ("d", 1, last),
        ("e", 1, last + 1),
        ("f", 1, -(10**12)),
    ]
    found = written(tmp_path, iter([batch(*rows)]), by="day")
    assert {json.loads(each["partition"])["event_day"]: each["rows"] for each in found} == {
        "0001-01-01": 1,
        "1970-01-03": 4,
        "9999-12-31": 1,
    }
