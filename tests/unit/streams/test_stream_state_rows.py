"""Spark counts the rows in state, or the changes of batches add up to them."""

import pytest

from moldau.streams.reports import QueryReport
from moldau.streams.shape import Operator
from moldau.streams.state_rows import SETTING, Counting, counted, counting_of, rows_after

BATCH = [{"numRowsTotal": 0, "numRowsUpdated": 5, "numRowsRemoved": 2}, {"numRowsTotal": 0, "numRowsUpdated": 1, "numRowsRemoved": 0}]


class Settings(dict[str, str]):
    """As a session has them."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)

    @property
    def conf(self) -> "Settings":
        return self


@pytest.mark.parametrize(
    ("names", "reported", "committed", "counting"),
    [
        (["Join", "DeduplicateWithinWatermark"], 7, 7, Counting.BY_CHANGES),
        (["Deduplicate"], None, None, Counting.BY_CHANGES),
        (["Join", "Aggregate"], 7, 7, Counting.AS_SET),  # a sum that changes is no row more
        (["TransformWithStateInPySpark"], 7, 7, Counting.AS_SET),
        (["Join"], 6, 7, Counting.BY_SPARK),  # killed after the commit
        (["Join"], None, 7, Counting.BY_SPARK),  # begun at a savepoint
    ],
)
def test_changes_add_up_where_nothing_is_overwritten_and_the_rows_before_are_known(
    names: list[str], reported: int | None, committed: int | None, counting: Counting
) -> None:
    assert counting_of([Operator(each) for each in names], QueryReport("pairs", batch=reported), committed) is counting


def test_rows_by_changes_continue_those_before() -> None:
    assert rows_after(10, BATCH, Counting.BY_CHANGES) == 14
    assert rows_after(10, [{**each, "numRowsTotal": 4} for each in BATCH], Counting.BY_SPARK) == 8


@pytest.mark.parametrize("before", [{}, {SETTING: "true"}, {SETTING: "false"}], ids=str)
@pytest.mark.parametrize(("counting", "meanwhile"), [(Counting.BY_CHANGES, "false"), (Counting.BY_SPARK, "true"), (Counting.AS_SET, None)])
def test_the_setting_is_there_only_while_the_query_is_started(before: dict[str, str], counting: Counting, meanwhile: str | None) -> None:
    """Then the user's is there again, which queries have whose state the job does not count."""
    spark = Settings(before)
    with counted(spark, counting):
        assert spark.get(SETTING) == (before.get(SETTING) if meanwhile is None else meanwhile)
    assert spark == before
