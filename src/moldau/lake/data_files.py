"""Rows to Parquet files by day, and what the table's log has to know of each file.

A task keeps the rows of a day together until it ends, so that it leaves one file for each day; only when it holds more than
`BUFFERED_BYTES_MAX` does it write its fullest day earlier. Files get names that nobody else has. They are synced, names included, before
the task reports them: after a power failure a table never knows a file that the disk does not. They are synced together, from several
threads, because a file system then settles many in one go. Until a commit names a file it is nobody's.
"""

import json
import math
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BUFFERED_BYTES_MAX = 256 << 20
DAY = "event_day"
"""The partition column: the UTC day of the record's timestamp."""
_MS_PER_DAY = 86_400_000
_SYNC_THREADS = 16
_STRING_STATISTICS_MAX = 32


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file, not yet part of a table."""

    path: str
    """Relative to the table."""
    day: str
    size: int
    rows: int
    statistics: str
    """Delta's JSON: numRecords, minValues, maxValues, nullCount."""


class DayWriter:
    """Collects rows by day and writes them under `directory`; `prefix` starts the names of the files."""

    def __init__(self, directory: str, prefix: str) -> None:
        self._directory = directory
        self._prefix = prefix
        self._tables: dict[int, list[Any]] = {}
        self._bytes: dict[int, int] = {}
        self._files: list[DataFile] = []

    def add(self, table: Any, timestamps_ms: Any) -> None:
        """Take rows, and the time of each."""
        if table.num_rows == 0:
            return
        days = np.floor_divide(timestamps_ms, _MS_PER_DAY)
        if (days[1:] < days[:-1]).any():
            order = np.argsort(days, kind="stable")
            table, days = table.take(pa.array(order)), days[order]
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        weight = table.nbytes / len(days)
        for start, stop in pairwise(cuts):
            day = int(days[start])
            self._tables.setdefault(day, []).append(table.slice(start, stop - start))
            self._bytes[day] = self._bytes.get(day, 0) + math.ceil(weight * (stop - start))
        while sum(self._bytes.values()) > BUFFERED_BYTES_MAX:
            self._write(max(self._bytes, key=lambda day: self._bytes[day]))

    def finish(self) -> list[DataFile]:
        """Write what is left; all files of this writer, on disk."""
        for day in sorted(self._tables):
            self._write(day)
        if self._files:
            folders = sorted({os.path.dirname(file.path) for file in self._files})
            with ThreadPoolExecutor(_SYNC_THREADS) as pool:
                for names in ([file.path for file in self._files], folders, [""]):
                    for _ in pool.map(_sync, [os.path.join(self._directory, name) for name in names]):
                        pass
        return self._files

    def _write(self, number: int) -> None:
        table = pa.concat_tables(self._tables.pop(number)).combine_chunks()
        del self._bytes[number]
        day = (date(1970, 1, 1) + timedelta(days=number)).isoformat()
        folder = f"{DAY}={day}"
        os.makedirs(os.path.join(self._directory, folder), exist_ok=True)
        path = f"{folder}/{self._prefix}-{uuid.uuid4().hex}.parquet"
        with open(os.path.join(self._directory, path), "xb") as file:
            pq.write_table(table, file, compression="zstd")
            size = file.tell()
        self._files.append(DataFile(path, day, size, table.num_rows, json.dumps(statistics(table))))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def statistics(table: Any) -> dict[str, Any]:
    """Delta's statistics of a file: counts, and least and greatest values where a reader may skip the file by them."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or _is_text_or_time(column.type)):
            continue
        bounds = pc.min_max(column).as_py()
        low, high = _least(bounds["min"]), _greatest(bounds["max"])
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {"numRecords": table.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _is_text_or_time(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_timestamp(kind))


def _least(value: Any) -> Any:
    """A value as Delta's JSON has it, times cut to the millisecond; None if it is no bound."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and len(value) > _STRING_STATISTICS_MAX:
        return value[:_STRING_STATISTICS_MAX]
    return value


def _greatest(value: Any) -> Any:
    """As `_least`, but never below the value: times are raised to the next millisecond, long strings give no bound."""
    if isinstance(value, datetime) and value.microsecond % 1000:
        return _least(value + timedelta(milliseconds=1))
    if isinstance(value, str) and len(value) > _STRING_STATISTICS_MAX:
        return None
    return _least(value)
