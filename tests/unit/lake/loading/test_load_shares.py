"""How a load's records are dealt out to its tasks: each offset to one, and what is of one time to the same."""

import pytest

from moldau.lake.loading.plan import TASK_OFFSETS_MIN, share_out, task_count
from moldau.lake.reading.offsets import OffsetRange


def ranges(*sizes: int, start: int = 10) -> list[OffsetRange]:
    return [OffsetRange("t", number, start, start + size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", [(1,), (7,), (0, 3), (100, 1, 13), (5, 5, 5, 5)])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_offset_is_in_one_part(sizes: tuple[int, ...], count: int) -> None:
    parts = share_out(ranges(*sizes), count)
    found = sorted((wanted.partition, offset) for part in parts for wanted in part for offset in range(wanted.start, wanted.end))
    assert found == [(each.partition, offset) for each in ranges(*sizes) for offset in range(each.start, each.end)]
    assert 1 <= len(parts) <= count
    assert all(wanted.size for part in parts for wanted in part), "nobody is sent for nothing"


def test_a_task_takes_the_same_part_of_every_partition() -> None:
    first, second = share_out(ranges(10, 20), 2)
    assert [(each.start, each.end) for each in first] == [(10, 15), (10, 20)]
    assert [(each.start, each.end) for each in second] == [(15, 20), (20, 30)]


def test_few_records_are_one_task_which_leaves_one_file_in_each_table_partition() -> None:
    assert task_count(ranges(3_000), 8, None) == 1
    assert task_count(ranges(TASK_OFFSETS_MIN, TASK_OFFSETS_MIN), 8, None) == 2
    assert task_count(ranges(100 * TASK_OFFSETS_MIN), 8, None) == 8
    assert task_count(ranges(3_000), 8, 3) == 3, "the job says so"
