"""The rows that Spark sees: which columns a read has, and the record columns as Arrow record batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from moldau.lake.reading.columns import HEADERS_TYPE, RecordColumns
from moldau.lake.reading.offsets import OffsetRange, OptionError

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


class RowMaker(Protocol):
    """Makes the rows of one range."""

    def batches(self, columns: RecordColumns) -> Iterator[Any]:
        """Arrow record batches of some records."""

    def finish(self) -> None:
        """The range has been read to its end."""


class RowShape(Protocol):
    """The columns of a read. Goes to tasks by pickle."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of records that are needed."""

    def spark_schema(self) -> StructType:
        """All columns."""

    def arrow_schema(self) -> Any:
        """All columns, in Arrow's words."""

    def without(self, names: Sequence[str]) -> "RowShape":
        """The other columns, or more, where what is decoded is not to depend on what is read."""

    def chosen(self, schema: StructType) -> "RowShape":
        """The columns in `schema`, which may leave columns out and change their order, but not their types. OptionError."""

    def maker(self, wanted: OffsetRange, topic_id: str | None) -> RowMaker:
        """Makes the rows of one range."""


@dataclass(frozen=True)
class RecordShape:
    """Records as they are."""

    fields: tuple[str, ...]

    def spark_schema(self) -> StructType:
        """All columns."""
        return spark_schema(self.arrow_schema())

    def arrow_schema(self) -> Any:
        """All columns, in Arrow's words."""
        return pa.schema([(name, ARROW_TYPES[name]) for name in self.fields])

    def without(self, names: Sequence[str]) -> "RecordShape":
        """The other columns."""
        return replace(self, fields=tuple(name for name in self.fields if name not in names))

    def chosen(self, schema: StructType) -> "RecordShape":
        """The columns in `schema`. OptionError."""
        hints = {"headers": "; it needs the option includeHeaders=true"}
        return replace(self, fields=chosen_columns(schema, self.spark_schema(), hints))

    def maker(self, wanted: OffsetRange, topic_id: str | None) -> "RecordMaker":
        """Makes the rows of one range."""
        return RecordMaker(wanted, self.fields)


@dataclass(frozen=True)
class RecordMaker:
    """Rows of records as they are."""

    wanted: OffsetRange
    fields: tuple[str, ...]

    def batches(self, columns: RecordColumns) -> Iterator[Any]:
        """Arrow record batches of some records."""
        return record_batches(columns, self.wanted.topic, self.wanted.partition, self.fields)

    def finish(self) -> None:
        """Nothing is left to do."""


def spark_schema(schema: Any) -> StructType:
    """The same columns as Spark names their types."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def chosen_columns(schema: StructType, known: StructType, hints: dict[str, str]) -> tuple[str, ...]:
    """Names in `schema`, which must be columns of `known` with their types. OptionError."""
    types = {field.name: field.dataType for field in known.fields}
    for field in schema.fields:
        if field.name not in types:
            hint = hints.get(field.name, f"; there are {', '.join(types)}")
            raise OptionError("schema", f"there is no column {field.name!r}{hint}")
        if field.dataType.simpleString() != types[field.name].simpleString():
            raise OptionError("schema", f"column {field.name} is {types[field.name].simpleString()}, not {field.dataType.simpleString()}")
    return tuple(field.name for field in schema.fields)
