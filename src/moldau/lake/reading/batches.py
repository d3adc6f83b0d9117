"""The rows that Spark sees: schema of the data source, and record columns as Arrow record batches of it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.reading.columns import HEADERS_TYPE, RecordColumns

ROWS_MAX = 10_000
BYTES_TARGET = 4 << 20

ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
"""Columns in the order of Spark's Kafka connector; `headers` only with includeHeaders."""


def column_names(*, include_headers: bool) -> tuple[str, ...]:
    """Columns of a read."""
    return tuple(name for name in ARROW_TYPES if include_headers or name != "headers")


def record_batches(
    columns: RecordColumns, topic: str, partition: int, names: Sequence[str], *, rows_max: int = ROWS_MAX, bytes_target: int = BYTES_TARGET
) -> Iterator[Any]:
    """Arrow record batches with the columns `names`, of at most `rows_max` rows and about `bytes_target` bytes each."""
    schema = pa.schema([(name, ARROW_TYPES[name]) for name in names])
    weight = sum(column.nbytes for column in (columns.key, columns.value, columns.headers) if column is not None)
    step = row_steps(len(columns), weight, rows_max, bytes_target)
    for start in range(0, len(columns), step):
        part = columns.slice(start, min(start + step, len(columns)))
        yield pa.record_batch([record_column(part, name, topic, partition) for name in names], schema=schema)


def row_steps(count: int, weight: int, rows_max: int = ROWS_MAX, bytes_target: int = BYTES_TARGET) -> int:
    """Rows of one batch, where `count` of them take `weight` bytes."""
    return min(rows_max, max(1, bytes_target * count // max(1, weight)))


def record_column(columns: RecordColumns, name: str, topic: str, partition: int) -> Any:
    """One column of ARROW_TYPES."""
    match name:
        case "topic":
            return pa.repeat(pa.scalar(topic), len(columns))
        case "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), len(columns))
        case "offset":
            return pa.array(columns.offset)
        case "timestamp":
            return pa.array(columns.timestamp_ms * 1000).cast(ARROW_TYPES["timestamp"])
        case "timestampType":
            return pa.array(columns.timestamp_type.astype(np.int32))
        case _:
            return getattr(columns, name)
