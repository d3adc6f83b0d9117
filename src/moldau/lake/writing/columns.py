"""The columns of a frame that is written: those of Spark's Kafka connector. Checked once for a write, and for what is in them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from moldau.lake.writing.encoding import Rows
from moldau.lake.writing.options import WriteOptions
from moldau.model.errors import MoldauError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Int64s = NDArray[np.int64]
_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class ColumnError(ValueError):
    """A frame that cannot be written: a column is missing, or of another type."""


class RowError(MoldauError):
    """A row that cannot be written."""


class Given(NamedTuple):
    """Rows of one topic, and their numbers in the task. `partition` is None where no row names one."""

    topic: str
    rows: Rows
    partition: Any | None
    numbers: Int64s


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in a row of the frame each column is."""

    topic: str | None
    positions: dict[str, int]

    def columns(self, batch: Any, first_row: int) -> Iterator[Given]:
        """An Arrow record batch, whose first row is the task's `first_row`-th, by topic. RowError."""
        import pyarrow as pa

        key, headers = self._column(batch, "key"), self._column(batch, "headers")
        rows = Rows(batch.column(self.positions["value"]).cast(pa.binary()), None if key is None else key.cast(pa.binary()), headers)
        if headers is not None and headers.values.flatten()[0].null_count:
            raise RowError(f"a header without a key among rows {first_row} to {first_row + batch.num_rows - 1} of the task")
        partition = self._column(batch, "partition")
        numbers = np.arange(first_row, first_row + batch.num_rows)
        if self.topic is not None:
            yield Given(self.topic, rows, partition, numbers)
            return
        topics = batch.column(self.positions["topic"])
        if topics.null_count:
            raise RowError(f"row {numbers[int(np.argmax(topics.is_null()))]} of the task has no topic: the column topic is null there")
        for topic in topics.unique().to_pylist():
            indices = np.flatnonzero(pa.compute.equal(topics, topic).to_numpy(zero_copy_only=False))
            theirs = None if partition is None else partition.take(indices)
            yield Given(topic, rows.taken(indices), theirs, numbers[indices])

    def _column(self, batch: Any, name: str) -> Any | None:
        position = self.positions.get(name)
        return None if position is None else batch.column(position)

    def check_partitions(self, wanted: Int64s, columns: Given, count: int) -> None:
        """RowError for a partition that its topic does not have."""
        wrong = (wanted < 0) | (wanted >= count)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise RowError(
                f"row {columns.numbers[at]} of the task names partition {wanted[at]} of topic {columns.topic}, which has {count} partitions"
            )


def pieces(batch: Any, bytes_max: int) -> Iterator[Any]:
    """An Arrow record batch in slices of about `bytes_max`: what is made of one is held in memory, and Arrow's offsets end at 2 GiB."""
    rows = max(1, batch.num_rows * bytes_max // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def layout(schema: "StructType", options: WriteOptions) -> Layout:
    """Where the columns of a frame with this schema are. ColumnError. What has no meaning here is left alone, as the connector does."""
    positions = {}
    for position, field in enumerate(schema.fields):
        allowed = _TYPES.get(field.name.lower())
        if allowed is None or (field.name.lower() == "headers" and not options.include_headers):
            continue
        if field.dataType.simpleString() not in allowed:
            raise ColumnError(f"column {field.name} is {_either(allowed)}, not {field.dataType.simpleString()}")
        positions[field.name.lower()] = position
    if "value" not in positions:
        raise ColumnError(f"a column value (string or binary) is needed; there are {', '.join(schema.fieldNames()) or 'none'}")
    if options.topic is None and "topic" not in positions:
        raise ColumnError("a topic is needed: the option topic, or a column topic")
    return Layout(options.topic, positions)


def _either(types: Sequence[str]) -> str:
    return " or ".join(types)
