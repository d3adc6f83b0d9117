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
COLUMNS = pa.schema([("name", pa.string()), ("count", pa.int64()), ("note", pa.string())])


def batch(*rows: tuple[str, int, int]) -> Any:
    names, counts, hours = zip(*rows, strict=True)
    return pa.record_batch(
        {"name": pa.array(names), "count": pa.array(counts, pa.int32()), "_partition_time": [hour * HOUR_MS for hour in hours]}
    )


def written(directory: Path, batches: Iterator[Any], by: str = "hour") -> list[dict[str, Any]]:
    made = write_rows(batches, directory=str(directory), prefix="job", by=by, load="ab", columns=COLUMNS)
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
