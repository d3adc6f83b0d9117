"""The column `event_time` of a stream, made and counted by the tasks that read it: never null, and never further ahead than a bound.

The time is that of a column, or of a field in one. Where it is missing, or further ahead of the time of the batch than the bound, the time
of the record in the log stands in its place. All is counted here, a whole Arrow batch at a time; Spark would count row by row.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.reading.batch_order import BatchOrder
from moldau.lake.reading.input_counts import InputCounts
from moldau.lake.reading.offsets import OptionError
from moldau.tracking.clock import now_ms

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMN: Final = "event_time"
TYPE: Final = pa.timestamp("us", tz="UTC")
_ERROR = "_error"


@dataclass(frozen=True, slots=True)
class EventTimes:
    """How the tasks of a stream find the times. Goes to tasks by pickle."""

    path: tuple[str, ...]
    """A column of TYPE, or the fields to one."""
    logged: str
    """The column with the time of the record in the log."""
    future_ms: int

    @property
    def needed(self) -> frozenset[str]:
        """The columns of which the times are made, and what is counted."""
        return frozenset((self.path[0], self.logged, _ERROR))

    def of_batch(self, order: BatchOrder | None) -> "BatchTimes":
        """Those of a batch; without an order it has the time of this task."""
        order = order or BatchOrder(now_ms())
        return BatchTimes(self, 1000 * order.time_ms, order.watermark_ms)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The event times of one batch of a stream."""

    times: EventTimes
    now_us: int
    watermark_ms: int

    def applied(self, rows: Any) -> tuple[Any, InputCounts]:
        """An Arrow record batch with the column as its last one, and what was counted of it."""
        given = rows.column(self.times.path[0])
        for name in self.times.path[1:]:
            given = pc.struct_field(given, name)
        missing = given.is_null().to_numpy(zero_copy_only=False) if given.null_count else np.zeros(len(given), bool)
        own = given.cast(TYPE).cast(pa.int64()).fill_null(0).to_numpy()
        logged = rows.column(self.times.logged).cast(pa.int64()).to_numpy()
        ahead = ~missing & (own > self.now_us + 1000 * self.times.future_ms)
        used = np.where(missing | ahead, np.minimum(logged, self.now_us), own)
        undecodable = np.zeros(len(given), bool)
        if _ERROR in rows.schema.names:
            undecodable = rows.column(_ERROR).is_valid().to_numpy(zero_copy_only=False)
        late = ~undecodable & (used <= 1000 * self.watermark_ms)
        counts = InputCounts(
            rows=len(given),
            ahead=int((ahead & ~undecodable).sum()),
            without_time=int((missing & ~undecodable).sum()),
            undecodable=int(undecodable.sum()),
            newest_ms=int(logged.max()) // 1000 if len(given) else None,
            late=int(late.sum()),
            latest_ms=self.watermark_ms - int(used[late].min()) // 1000 if late.any() else None,
        )
        column = pa.array(used).view(TYPE)
        return pa.RecordBatch.from_arrays([*rows.columns, column], schema=pa.schema([*rows.schema, pa.field(COLUMN, TYPE)])), counts


def time_path(schema: "StructType", text: str) -> tuple[str, ...] | None:
    """The column of timestamps that this is, or the fields to one, as Spark finds them, in any case of letters; None if it is none."""
    from pyspark.sql.types import StructType, TimestampType

    path: list[str] = []
    kind: Any = schema
    for word in text.split("."):
        found = [] if not isinstance(kind, StructType) else [each for each in kind.fields if each.name.lower() == word.strip("`").lower()]
        if len(found) != 1:
            return None
        path.append(found[0].name)
        kind = found[0].dataType
    return tuple(path) if isinstance(kind, TimestampType) else None


def event_times(schema: "StructType", text: str, future_ms: int, *, decoded: bool) -> EventTimes | None:
    """Of rows with these columns; None where the time is an expression. OptionError without the time of the records."""
    path, logged = time_path(schema, text), "_timestamp" if decoded else "timestamp"
    if path is None:
        return None
    if logged not in schema.names:
        raise OptionError("eventTime", f"needs the column {logged}: the time of a record that has none of its own")
    return EventTimes(path, logged, future_ms)
