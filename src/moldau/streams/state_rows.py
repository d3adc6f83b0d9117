"""Who counts the rows in a query's state.

Spark looks into the store for each row that it puts there to know whether it is one more: a sixth of the time of a join. In the state of
joins and of rows without repetitions nothing is overwritten, so that what batches add and remove, which Spark gives as well, adds up to
the same number. It does where that of the batch before is known; else, as for all other state, Spark is left to count.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from moldau.streams.reports import QueryReport
from moldau.streams.shape import Operator

SETTING: Final = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
_ADDED_ONCE: Final = frozenset({"Join", "Deduplicate", "DeduplicateWithinWatermark"})


def can_add_up(operators: Iterable[Operator], report: QueryReport, committed: int | None) -> bool:
    """Whether changes give the rows of a query with these operators. `committed` is the last batch of the checkpoint that it continues.

    Of a process that was killed the report may lack the last batches.
    """
    return {each.name for each in operators} <= _ADDED_ONCE and report.batch == committed


@contextmanager
def counted(spark: Any, *, by_changes: bool) -> Iterator[bool]:
    """A query that is started meanwhile counts its rows so, unless the session has a setting of the user's. Whether by changes."""
    if not by_changes or spark.conf.get(SETTING, None) is not None:
        yield False
        return
    spark.conf.set(SETTING, "false")
    try:
        yield True
    finally:
        spark.conf.unset(SETTING)


def rows_after(before: int, operators: Iterable[Mapping[str, Any]], *, by_changes: bool) -> int:
    """The rows in the state of these operators, as Spark reports them of a batch."""
    if by_changes:
        return before + sum(int(each["numRowsUpdated"]) - int(each["numRowsRemoved"]) for each in operators)
    return sum(int(each["numRowsTotal"]) for each in operators)
