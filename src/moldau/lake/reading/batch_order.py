"""What the driver of a query orders of the tasks of one batch, and what it knows of the batch that they do not.

Spark has no function for the watermark by which it drops late rows, nor does a data source learn the time of a batch. Who runs the query
knows both before the batch's tasks begin, and gives them as the local property PROPERTY of the thread in which the batch is written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moldau.tracking.clock import now_ms

PROPERTY: Final = "moldau.batch"
WATERMARK_PROPERTY: Final = "moldau.watermark_ms"
"""The watermark alone, as queries set it that are no jobs of ours (docs/spark-source.md)."""


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """Of one batch. Times in ms since 1970."""

    time_ms: int
    """What `current_timestamp` is in the batch, also when it is run again."""
    watermark_ms: int = 0
    """By which Spark drops the late rows of the batch; 0, as Spark's is, before there is one."""
    directory: str | None = None
    """Where tasks leave their counts, if anything is to be counted; the driver sees it too."""
    audited: Sequence[str] = ()
    """Topics whose events are counted for the audit."""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By the name under which an input is counted: the columns that the batch reads, if not all; tasks may fill the others with nulls."""

    def to_text(self) -> str:
        """The property."""
        return json.dumps([self.time_ms, self.watermark_ms, self.directory, list(self.audited), dict(self.columns)])


def batch_order() -> BatchOrder | None:
    """That of the task that runs; None where nothing is ordered."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    if text := context.getLocalProperty(PROPERTY):
        return BatchOrder(*json.loads(text))
    watermark = context.getLocalProperty(WATERMARK_PROPERTY)
    return BatchOrder(now_ms(), int(watermark)) if watermark else None
