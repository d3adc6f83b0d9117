"""Who counts the rows in a query's state.

Spark looks into the store for each row that it puts there to know whether it is one more: much of the time of a join. In the state of
joins and of rows without repetitions nothing is overwritten, so that what batches add and remove, which Spark gives as well, adds up to
the same number. It does where that of the batch before is known; else, as for all other state, Spark counts.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

from moldau.streams.reports import QueryReport
from moldau.streams.shape import Operator

SETTING: Final = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
_STARTING: Final = threading.Lock()
"""The setting is of the session: a query of another job that is started meanwhile would have it too."""
_ADDED_ONCE: Final = frozenset({"Join", "Deduplicate", "DeduplicateWithinWatermark"})


class Counting(Enum):
    """Of the rows in a query's state."""

    BY_CHANGES = "by changes"
    BY_SPARK = "by Spark"
    """For a run."""
    AS_SET = "as set"
    """By Spark, unless the user's settings say otherwise."""


def counting_of(operators: Iterable[Operator], report: QueryReport, committed: int | None) -> Counting:
    """How a query with these operators counts. `committed` is the last batch of the checkpoint that it continues.

    Of a process that was killed the report may lack the last batches.
    """
    if not {each.name for each in operators} <= _ADDED_ONCE:
        return Counting.AS_SET
    return Counting.BY_CHANGES if report.batch == committed else Counting.BY_SPARK


@contextmanager
def counted(spark: Any, counting: Counting) -> Iterator[None]:
    """A query that is started meanwhile counts so; each is started within this."""
    with _STARTING:
        before = spark.conf.get(SETTING, None)
        if counting is not Counting.AS_SET:
            spark.conf.set(SETTING, "true" if counting is Counting.BY_SPARK else "false")
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(SETTING)
            else:
                spark.conf.set(SETTING, before)


def rows_after(before: int, operators: Iterable[Mapping[str, Any]], counting: Counting) -> int:
    """The rows in the state of these operators, as Spark reports them of a batch."""
    if counting is Counting.BY_CHANGES:
        return before + sum(int(each["numRowsUpdated"]) - int(each["numRowsRemoved"]) for each in operators)
    return sum(int(each["numRowsTotal"]) for each in operators)
