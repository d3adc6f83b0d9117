"""JSON values that cannot be decoded, put aside: the files that the source writes for Avro, written by a step after Spark has decoded.

A file has the values of one partition that one task has seen, and their first and last offset in its name: a batch that is run again
writes the same file again, whole.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from moldau.lake.python_tasks import begun_early
from moldau.lake.reading.event_shape import SCHEMA, local_directory, task_directory

_RECORD = ("topic", "partition", "offset", "timestamp", "key")
REASON = "the value is no JSON object of the input's schema"


def with_dead_letters(rows: Any, directory: str, *, value: str, error: str) -> Any:
    """The rows without the column `value`; those with a true `error` are also put aside. The record's columns have a `_` before them."""
    from pyspark.sql.types import StructType

    schema = StructType([field for field in rows.schema.fields if field.name != value])
    step = partial(put_aside, directory=local_directory(directory), value=value, error=error)
    return rows.mapInArrow(begun_early(step), schema)


def put_aside(batches: Iterator[Any], *, directory: str, value: str, error: str) -> Iterator[Any]:
    """What Spark calls in a task."""
    files: dict[tuple[str, int], _DeadLetters] = {}
    try:
        for batch in batches:
            wrong = batch.filter(batch.column(error))
            for topic, partition in sorted(
                set(zip(*(wrong.column(f"_{name}").to_pylist() for name in ("topic", "partition")), strict=True))
            ):
                theirs = wrong.filter(pc.and_(pc.equal(wrong.column("_topic"), topic), pc.equal(wrong.column("_partition"), partition)))
                if (topic, partition) not in files:
                    files[topic, partition] = _DeadLetters(task_directory(directory), topic, partition)
                files[topic, partition].add(theirs, value)
            yield batch.drop_columns([value])
        for each in files.values():
            each.close()
    finally:
        for each in files.values():
            each.discard()


class _DeadLetters:
    """Of one partition; the file is visible from `close` on."""

    def __init__(self, directory: str, topic: str, partition: int) -> None:
        os.makedirs(directory, exist_ok=True)
        self._directory, self._name = directory, f"{topic}-{partition}"
        self._partial = os.path.join(directory, f".{self._name}.{uuid.uuid4().hex}.partial")
        self._writer = pa.parquet.ParquetWriter(self._partial, SCHEMA, compression="zstd")
        self._first: int | None = None
        self._last = 0

    def add(self, rows: Any, value: str) -> None:
        """Put these rows aside."""
        columns = [rows.column(f"_{name}") for name in _RECORD]
        reason = pa.repeat(pa.scalar(REASON), rows.num_rows)
        batch = pa.table([*columns, rows.column(value), reason], names=SCHEMA.names).cast(SCHEMA)
        self._writer.write_table(batch)
        offsets = rows.column("_offset")
        self._first = offsets[0].as_py() if self._first is None else self._first
        self._last = offsets[-1].as_py()

    def close(self) -> None:
        """Bring the file to disk and give it its name."""
        self._writer.close()
        descriptor = os.open(self._partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self._partial, os.path.join(self._directory, f"{self._name}-{self._first:020}-{self._last + 1:020}.parquet"))

    def discard(self) -> None:
        """Remove what has no name yet."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._partial)
