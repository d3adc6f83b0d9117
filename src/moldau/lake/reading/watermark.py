"""The column `_watermark` of a stream: the watermark, in ms since 1970, by which Spark drops the late rows of the batch.

Spark has no function for it, and a data source does not learn it. Who runs the query knows it before the batch's tasks begin, and gives
it to them as the local property PROPERTY of the thread in which the batch is written. Without the property it is 0, as Spark's is before
there is one.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from moldau.lake.reading.offsets import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMN: Final = "_watermark"
PROPERTY: Final = "moldau.watermark_ms"
_OPTION = "watermarkColumn"


def with_column(schema: "StructType") -> "StructType":
    """The columns, and the watermark after them. OptionError if there is one of its name."""
    from pyspark.sql.types import LongType, StructField, StructType

    if COLUMN in schema.names:
        raise OptionError(_OPTION, f"would add a column {COLUMN}, which is a field of the events")
    return StructType([*schema.fields, StructField(COLUMN, LongType())])


def without_column(schema: "StructType") -> "StructType":
    """The columns before the watermark. OptionError if it is not the last one."""
    from pyspark.sql.types import StructType

    if not schema.names or schema.names[-1] != COLUMN:
        raise OptionError(_OPTION, f"makes the column {COLUMN} the last one of a schema")
    return StructType(schema.fields[:-1])


def with_watermark(batches: Iterable[Any]) -> Iterator[Any]:
    """What a task reads, with the column."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PROPERTY)
    watermark, field = pa.scalar(int(text or 0), pa.int64()), pa.field(COLUMN, pa.int64())
    for batch in batches:
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.repeat(watermark, batch.num_rows)], schema=pa.schema([*batch.schema, field]))
