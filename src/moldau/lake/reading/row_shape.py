"""Which columns a read has, and who makes them: the record's own, or those of decoded events."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from moldau.lake.reading.batches import ARROW_TYPES, column_names, record_batches
from moldau.lake.reading.columns import RecordColumns
from moldau.lake.reading.offsets import OffsetRange, OptionError
from moldau.lake.reading.options import ReadOptions


class Maker(Protocol):
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

    def chosen(self, schema: StructType) -> "RowShape":
        """The columns in `schema`, which may leave columns out and change their order, but not their types. OptionError."""

    def maker(self, wanted: OffsetRange, topic_id: str | None) -> Maker:
        """Makes the rows of one range."""


def plan_shape(options: ReadOptions) -> RowShape:
    """All columns of a read. With ``format=avro`` asks the registry: RegistryError, RegistryUnavailableError, AvroSchemaError."""
    if options.avro is None:
        return RecordShape(column_names(include_headers=options.include_headers))
    from moldau.lake.reading.event_shape import plan_event_shape

    return plan_event_shape(options, options.avro)


@dataclass(frozen=True)
class RecordShape:
    """Records as they are."""

    fields: tuple[str, ...]

    def spark_schema(self) -> StructType:
        """All columns."""
        return spark_schema(pa.schema([(name, ARROW_TYPES[name]) for name in self.fields]))

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
