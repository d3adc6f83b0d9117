"""Columns that a batch does not read: its tasks do not decode them, and give Spark nulls in their place.

Spark does not say to a Python source which columns a query needs. The driver finds it in the plan of each batch, and orders it.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from moldau.lake.reading.batch_order import BatchOrder
from moldau.lake.reading.event_times import EventTimes
from moldau.lake.reading.row_shape import RowShape


def narrowed(shape: RowShape, times: EventTimes, order: BatchOrder | None, counted_as: str | None) -> tuple[RowShape, Callable[[Any], Any]]:
    """The rows that are read for this order, and what makes all columns of `shape`, and the event times, of them."""
    wanted = None if order is None or counted_as is None else order.columns.get(counted_as)
    if wanted is None:
        return shape, lambda rows: rows
    every = shape.arrow_schema()
    kept = shape.without([name for name in every.names if name not in wanted and name not in times.needed])

    def fill(rows: Any) -> Any:
        there = set(rows.schema.names[:-1]).intersection(wanted)
        columns = [rows.column(each.name) if each.name in there else pa.nulls(rows.num_rows, each.type) for each in every]
        return pa.RecordBatch.from_arrays([*columns, rows.column(rows.num_columns - 1)], schema=every.append(rows.schema[-1]))

    return kept, fill
