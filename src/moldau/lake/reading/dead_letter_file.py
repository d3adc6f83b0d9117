"""Values that could not be decoded, put aside by the task that read them: one Parquet file for each range that has any.

The file's name says the range, so that a task that is run again writes the same file again, whole, under the same name. A reader of the
folder finds each record once, unless two queries with overlapping ranges put them in the same place.
"""

import contextlib
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet

from moldau.lake.reading.batches import ARROW_TYPES, record_column
from moldau.lake.reading.columns import RecordColumns
from moldau.lake.reading.offsets import OffsetRange, OptionError

_RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")
SCHEMA = pa.schema([*((name, ARROW_TYPES[name]) for name in _RECORD), ("error", pa.string())])
"""Columns of the file."""


class DeadLetterFile:
    """The dead letters of one range. Nothing is written before there is one; nobody sees the file before `close`."""

    def __init__(self, path: str, wanted: OffsetRange, topic_id: str | None) -> None:
        directory = local_directory(path)
        kind = f"-{topic_id[:8]}" if topic_id else ""
        name = f"{wanted.topic}{kind}-{wanted.partition}-{wanted.start:020}-{wanted.end:020}.parquet"
        self._wanted = wanted
        self._path = os.path.join(directory, name)
        self._partial = os.path.join(directory, f".{name}.{os.getpid()}.partial")
        self._writer: Any = None

    def add(self, columns: RecordColumns, rejected: Mapping[int, str]) -> None:
        """Put these rows of `columns` aside, each with its reason."""
        if self._writer is None:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._writer = pa.parquet.ParquetWriter(self._partial, SCHEMA, compression="zstd")
        rows = pa.array(list(rejected), pa.int64())
        record = [record_column(columns, name, self._wanted.topic, self._wanted.partition).take(rows) for name in _RECORD]
        self._writer.write_batch(pa.record_batch([*record, pa.array(list(rejected.values()), pa.string())], schema=SCHEMA))

    def close(self) -> None:
        """Bring the file to disk and give it its name; a range without dead letters has none."""
        if self._writer is None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path)  # of an earlier run, when a schema was unknown that is known now
            return
        self._writer.close()
        descriptor = os.open(self._partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self._partial, self._path)


def local_directory(path: str) -> str:
    """The directory of a path or ``file:`` URL. OptionError for another one."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        return parts.path if parts.scheme else path
    raise OptionError("deadLetterPath", f"is a directory that all tasks see as a local one, not {path!r}")
