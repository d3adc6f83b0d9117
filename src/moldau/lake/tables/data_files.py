"""Rows to Parquet files by table partition (a UTC day, or an hour), and what the table's log has to know of each file.

A task keeps the rows of a table partition together until it ends, so that it leaves one file for each; when it holds more than
`BUFFERED_BYTES_MAX` it writes its fullest partitions, each as a row group, and keeps their files open. Of more than `OPEN_FILES_MAX` open
ones it ends the one that was written to longest ago: rows that come for that partition later get another file.

Files get unique names. They are durable, names included, before the task reports them: after a power failure a table never
knows a file that the disk, or the object store, does not. They are brought there together, many in one go.
Until a commit names a file it belongs to no table version; a writer that knows that none will removes it.
"""

import contextlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from moldau.lake.points import reached
from moldau.lake.tables.places.addresses import joined, place_of
from moldau.lake.tables.places.place import reason

_STRING_MAX = 32
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(milliseconds=1)


class FileStatistics:
    """Grows with the row groups of a file. Bounds are never tighter than the rows: times are cut to the millisecond, long strings too."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, _Column] = {}

    def add(self, table: Any) -> None:
        """Take rows into account."""
        self.rows += table.num_rows
        for name in table.column_names:
            column = table.column(name)
            if not pa.types.is_nested(column.type) or pa.types.is_struct(column.type):
                self._columns.setdefault(name, _Column()).add(column)

    def result(self) -> dict[str, Any]:
        """numRecords, minValues, maxValues, nullCount."""
        return {
            "numRecords": self.rows,
            "minValues": _present({name: column.least() for name, column in self._columns.items()}),
            "maxValues": _present({name: column.greatest() for name, column in self._columns.items()}),
            "nullCount": {name: column.null_counts() for name, column in self._columns.items()},
        }


class _Column:
    """Of one column, or of the fields of a struct."""

    def __init__(self) -> None:
        self._bounds: tuple[Any, Any] | None = None
        self._unbounded = False
        self._nulls = 0
        self._fields: dict[str, _Column] = {}

    def add(self, column: Any) -> None:
        if pa.types.is_struct(column.type):
            for number, each in enumerate(column.type):
                if not pa.types.is_nested(each.type) or pa.types.is_struct(each.type):
                    self._fields.setdefault(each.name, _Column()).add(pc.struct_field(column, [number]))
            return
        self._nulls += column.null_count
        if not _has_bounds(column.type):
            return
        found = pc.min_max(column)
        try:
            low, high = found["min"].as_py(), found["max"].as_py()
        except (OverflowError, ValueError):  # a time that is in no year up to 9999
            self._unbounded = True
            return
        if low is None:
            return
        if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():  # NaN is above all, and `min_max` leaves it out
            self._unbounded = True
        elif self._bounds is None:
            self._bounds = (low, high)
        else:
            self._bounds = (min(low, self._bounds[0]), max(high, self._bounds[1]))

    def least(self) -> Any:
        if self._fields:
            return _present({name: field.least() for name, field in self._fields.items()}) or None
        return None if not self._is_bounded() else _least(self._bounds[0])  # type: ignore[index]  # it is there

    def greatest(self) -> Any:
        if self._fields:
            return _present({name: field.greatest() for name, field in self._fields.items()}) or None
        return None if not self._is_bounded() else _greatest(self._bounds[1])  # type: ignore[index]  # it is there

    def null_counts(self) -> Any:
        return {name: field.null_counts() for name, field in self._fields.items()} if self._fields else self._nulls

    def _is_bounded(self) -> bool:
        """A bound at one end only would be no use."""
        return self._bounds is not None and not self._unbounded and _greatest(self._bounds[1]) is not None


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _has_bounds(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_string(kind) or types.is_timestamp(kind))


def _least(value: Any) -> Any:
    """A value as Delta's JSON has it."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, str) and len(value) > _STRING_MAX:
        return value[:_STRING_MAX]
    return value


def _greatest(value: Any) -> Any:
    """As `_least`, but never below the value: times are raised to the next millisecond, long strings give no bound."""
    if isinstance(value, datetime) and value.microsecond % 1000:
        return _least(value + timedelta(milliseconds=1)) if value <= _LAST else None
    if isinstance(value, str) and len(value) > _STRING_MAX:
        return None
    return _least(value)


BUFFERED_BYTES_MAX = 128 << 20
OPEN_FILES_MAX = 64
_COLUMN_BYTES = 1 << 10
"""What a column of few rows takes beside them, about: events of any hour of ten thousand years may come one by one."""
DAY, HOUR = "event_day", "event_hour"
"""The UTC day of an event, and the hour of that day, 0 to 23: columns of every table."""
PARTITIONINGS: Mapping[str, tuple[str, ...]] = {"day": (DAY,), "hour": (DAY, HOUR)}
"""The columns whose values stand in the folders' names, for each way to partition."""
TIME_FIELDS = (pa.field(DAY, pa.date32()), pa.field(HOUR, pa.int32()))
_MS_PER_HOUR = 3_600_000
_SLOT_MS = {"day": 24 * _MS_PER_HOUR, "hour": _MS_PER_HOUR}
_UNFIT_FOR_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class FileError(RuntimeError):
    """A data file cannot be written; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file, part of a table or not yet."""

    path: str
    """Relative to the table."""
    partition: Mapping[str, str | None]
    """Values of the partition columns, as text."""
    size: int
    rows: int
    statistics: str
    """Delta's JSON: numRecords, minValues, maxValues, nullCount; empty where it was not read from the table's log."""


def slots_of(times_ms: Any, by: str) -> Any:
    """The number of the table partition of each time: days, or hours, since 1970."""
    return np.floor_divide(times_ms, _SLOT_MS[by])


class PartitionWriter:
    """Collects rows by table partition and writes them under `directory`; `prefix` starts the names of the files, then `load`: hex
    digits that no other load has, by which `files_of` finds all files of one."""

    def __init__(self, directory: str, prefix: str, by: str = "day", load: str = "") -> None:
        self._directory = directory
        self._start = _start(prefix, load)
        self._by = by
        self._tables: dict[int, list[Any]] = {}
        self._bytes: dict[int, int] = {}
        self._held = 0
        self._open: dict[int, ParquetFileWriter] = {}
        self._made: list[ParquetFileWriter] = []
        self._ended: list[DataFile] = []

    def add(self, table: Any, times_ms: Any) -> None:
        """Take rows, and the time of each. FileError."""
        if table.num_rows == 0:
            return
        if self._by == "day":
            hours = np.floor_divide(times_ms, _MS_PER_HOUR) % 24
            table = table.append_column(TIME_FIELDS[1], pa.array(hours.astype(np.int32)))
        slots = slots_of(times_ms, self._by)
        order = None
        if (slots[1:] < slots[:-1]).any():
            order = np.argsort(slots, kind="stable")
            slots = slots[order]
        cuts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
        for start, stop in pairwise(cuts):
            slot = int(slots[start])
            rows = table
            if len(cuts) > 2:  # a copy: a slice would keep the rows of all others, and writing one partition would free nothing
                rows = table.take(pa.array(np.arange(start, stop) if order is None else order[start:stop]))
            size = rows.nbytes + rows.num_columns * _COLUMN_BYTES
            self._tables.setdefault(slot, []).append(rows)
            self._bytes[slot] = self._bytes.get(slot, 0) + size
            self._held += size
        if self._held > BUFFERED_BYTES_MAX:
            fullest = iter(sorted(self._bytes, key=self._bytes.__getitem__, reverse=True))
            while self._held > BUFFERED_BYTES_MAX - BUFFERED_BYTES_MAX // 8:  # many small ones are not looked for one by one
                self._write(next(fullest))

    def finish(self) -> list[DataFile]:
        """Write what is left; all files of this writer, on disk. FileError."""
        for slot in sorted(self._tables):
            self._write(slot)
            self._end(slot)
        for slot in sorted(self._open):
            self._end(slot)
        files = self._ended
        if files:
            reached("task: files written")
            sync_files(self._directory, [file.path for file in files])
        return files

    def discard(self) -> None:
        """Remove all files that were made: no commit will name them. A file that cannot be removed stays."""
        for file in self._made:
            file.discard()

    def _write(self, slot: int) -> None:
        table = pa.concat_tables(self._tables.pop(slot)).combine_chunks()
        self._held -= self._bytes.pop(slot)
        file = self._open.pop(slot, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._end(next(iter(self._open)))
            file = ParquetFileWriter(self._directory, self._start, partition_of(slot, self._by), table.schema)
            self._made.append(file)
        self._open[slot] = file  # in the order of their last write
        file.write(table)

    def _end(self, slot: int) -> None:
        self._ended.append(self._open.pop(slot).close())


def partition_of(slot: int, by: str) -> dict[str, str | None]:
    """Values of the partition columns for the number of a table partition."""
    begin = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=slot * _SLOT_MS[by])
    day = begin.date().isoformat()
    return {DAY: day} if by == "day" else {DAY: day, HOUR: str(begin.hour)}


class ParquetFileWriter:
    """One Parquet file that is being written, under a new name that begins with `start`. Every method: FileError."""

    def __init__(self, directory: str, start: str, partition: Mapping[str, str | None], schema: Any) -> None:
        folder = "/".join(f"{name}={value}" for name, value in partition.items())
        self._path = f"{folder}/{start}{uuid.uuid4().hex}.parquet"
        self._full = joined(directory, self._path)
        self._place = place_of(directory)
        self._partition = partition
        self._statistics = FileStatistics()
        self._writer: Any = None
        try:
            self._file = self._place.create(self._path)
        except OSError as error:
            raise self._failure(error) from error
        try:
            self._writer = pq.ParquetWriter(self._file, schema, compression="zstd")
        except OSError as error:
            self.discard()
            raise self._failure(error) from error

    def write(self, table: Any) -> None:
        """Add rows."""
        try:
            self._writer.write_table(table)
        except OSError as error:
            raise self._failure(error) from error
        self._statistics.add(table)

    def close(self) -> DataFile:
        """End the file."""
        try:
            self._writer.close()
            size = self._file.tell()
            self._place.end(self._path, self._file)
        except OSError as error:
            self.discard()
            raise self._failure(error) from error
        return DataFile(self._path, self._partition, size, self._statistics.rows, json.dumps(self._statistics.result()))

    def discard(self) -> None:
        """Remove the file, whether it is ended or not. An error leaves it as an orphan."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._writer.is_open = False  # it would try once more when it is forgotten
        self._place.abandon(self._path, self._file)

    def _failure(self, error: OSError) -> FileError:
        return FileError(f"{self._full}: cannot be written: {reason(error)}")


def remove_files(directory: str, paths: Iterable[str]) -> None:
    """Remove files below `directory` that no commit names. An error leaves one as an orphan."""
    place = place_of(directory)
    for path in paths:
        with contextlib.suppress(OSError):
            place.delete([path])


def files_of(directory: str, prefix: str, load: str) -> list[str]:
    """The files that tasks of a load have left below `directory`, relative to it."""
    start, found = _start(prefix, load), list[str]()
    with contextlib.suppress(OSError):
        found += [each.name for each in place_of(directory).walk() if each.name.rpartition("/")[2].startswith(start)]
    return found


def _start(prefix: str, load: str) -> str:
    return f"{_UNFIT_FOR_NAMES.sub('-', prefix)}-{load}"


def sync_files(directory: str, paths: list[str]) -> None:
    """Make files below `directory`, and their names, durable. FileError."""
    try:
        place_of(directory).settle(paths)
    except OSError as error:
        raise FileError(f"{error.filename or directory}: cannot be brought to disk: {reason(error)}") from error
