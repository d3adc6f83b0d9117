"""Spark counts the rows in state, or the changes of batches add up to them."""

import pytest

from moldau.streams.reports import QueryReport
from moldau.streams.shape import Operator
from moldau.streams.state_rows import SETTING, can_add_up, counted, rows_after

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
    ("names", "reported", "committed", "can"),
    [
        (["Join", "DeduplicateWithinWatermark"], 7, 7, True),
        (["Deduplicate"], None, None, True),
        (["Join", "Aggregate"], 7, 7, False),  # a sum that changes is no row more
        (["TransformWithStateInPySpark"], 7, 7, False),
        (["Join"], 6, 7, False),  # killed after the commit
        (["Join"], None, 7, False),  # begun at a savepoint
    ],
)
def test_changes_add_up_where_nothing_is_overwritten_and_the_rows_before_are_known(
    names: list[str], reported: int | None, committed: int | None, can: bool
) -> None:
    assert can_add_up([Operator(each) for each in names], QueryReport("pairs", batch=reported), committed) is can


def test_rows_by_changes_continue_those_before() -> None:
    assert rows_after(10, BATCH, by_changes=True) == 14
    assert rows_after(10, [{**each, "numRowsTotal": 4} for each in BATCH], by_changes=False) == 8


def test_the_setting_is_there_only_while_the_query_is_started() -> None:
    spark = Settings()
    with counted(spark, by_changes=True) as by_changes:
        assert (by_changes, spark) == (True, {SETTING: "false"})
    assert spark == {}
    with counted(spark, by_changes=False) as by_changes:
        assert (by_changes, spark) == (False, {})


@pytest.mark.parametrize("given", ["true", "false"])
def test_a_setting_of_the_users_own_stays(given: str) -> None:
    spark = Settings({SETTING: given})
    with counted(spark, by_changes=True) as by_changes:
        assert (by_changes, spark) == (False, {SETTING: given})
    assert spark == {SETTING: given}
