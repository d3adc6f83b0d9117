"""The last column of a stream, which tells of its batch: that of the event times, or that of the watermark."""

from typing import TYPE_CHECKING, Literal

from moldau.lake.reading.event_times import COLUMN as EVENT_TIME
from moldau.lake.reading.event_times import EventTimes, event_times
from moldau.lake.reading.offsets import OptionError
from moldau.lake.reading.options import ReadOptions
from moldau.lake.reading.watermark import COLUMN as WATERMARK

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BatchColumn = EventTimes | Literal["_watermark"]


def with_batch_column(schema: "StructType", options: ReadOptions) -> "StructType":
    """The columns, and after them that of the batch, if the options ask for one. OptionError if there is one of its name."""
    from pyspark.sql.types import LongType, StructField, StructType, TimestampType

    column = _column(schema, options)
    if column is None:
        return schema
    made = StructField(WATERMARK, LongType()) if column == WATERMARK else StructField(EVENT_TIME, TimestampType())
    if made.name in schema.names:
        raise OptionError(_option(options), f"would add a column {made.name}, which is a field of the events")
    return StructType([*schema.fields, made])


def without_batch_column(schema: "StructType", options: ReadOptions) -> "tuple[StructType, BatchColumn | None]":
    """The columns before it, and how it is made. OptionError if it is not the last one."""
    from pyspark.sql.types import StructType

    before = StructType(schema.fields[:-1])
    column = _column(before, options)
    if column is None:
        return schema, None
    name = WATERMARK if column == WATERMARK else EVENT_TIME
    if not schema.names or schema.names[-1] != name:
        raise OptionError(_option(options), f"makes the column {name} the last one of a schema")
    return before, column


def _column(schema: "StructType", options: ReadOptions) -> BatchColumn | None:
    if options.event_time is not None:
        return event_times(schema, options.event_time, options.future_ms, decoded=options.avro is not None) or WATERMARK
    return WATERMARK if options.watermark_column else None


def _option(options: ReadOptions) -> str:
    return "watermarkColumn" if options.event_time is None else "eventTime"
