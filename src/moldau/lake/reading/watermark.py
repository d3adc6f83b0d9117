"""The column `_watermark` of a stream: the watermark, in ms since 1970, by which Spark drops the late rows of the batch."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moldau.lake.reading.batch_order import BatchOrder

COLUMN: Final = "_watermark"


def with_watermark(batches: Iterable[Any], order: BatchOrder | None) -> Iterator[Any]:
    """What a task reads, with the column."""
    import pyarrow as pa

    watermark, field = pa.scalar(0 if order is None else order.watermark_ms, pa.int64()), pa.field(COLUMN, pa.int64())
    for batch in batches:
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.repeat(watermark, batch.num_rows)], schema=pa.schema([*batch.schema, field]))
