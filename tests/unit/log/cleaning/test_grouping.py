"""Neighbouring segments become one as long as that is no longer than a segment may be."""

import pytest

from moldau.log.cleaning.groups import RELATIVE_OFFSET_MAX, SEGMENTS_MAX, SegmentSizes, group_segments

HUGE = RELATIVE_OFFSET_MAX


@pytest.mark.parametrize(
    ("segments", "groups"),
    [
        ([], []),
        ([(0, 10, 50)], [1]),
        ([(0, 10, 50), (10, 20, 50), (20, 30, 1)], [2, 1]),
        ([(0, 10, 500), (10, 20, 1), (20, 30, 1)], [1, 2]),
        ([(0, 10, 0), (10, 20, 0), (20, 30, 100)], [3]),
        ([(0, HUGE, 1), (HUGE, HUGE + 1, 1), (HUGE + 1, HUGE + 9, 1)], [2, 1]),
        ([(0, 1, 1), (HUGE * 2, HUGE * 2 + 1, 1)], [1, 1]),
        ([(0, 1, 1), (1, HUGE * 2, 0), (HUGE * 2, HUGE * 2 + 1, 1)], [2, 1]),
        ([(number, number + 1, 0) for number in range(SEGMENTS_MAX + 2)], [SEGMENTS_MAX, 2]),
    ],
)
def test_by_size_and_offsets(segments: list[tuple[int, int, int]], groups: list[int]) -> None:
    sized = [SegmentSizes(base, end, size, 0, 0) for base, end, size in segments]
    found = group_segments(sized, 100, 1000)
    assert [len(group) for group in found] == groups
    assert [segment for group in found for segment in group] == sized


def test_by_the_size_of_either_index() -> None:
    sized = [SegmentSizes(0, 1, 1, 40, 0), SegmentSizes(1, 2, 1, 40, 0), SegmentSizes(2, 3, 1, 40, 90), SegmentSizes(3, 4, 1, 0, 20)]
    assert [len(group) for group in group_segments(sized, 100, 100)] == [2, 1, 1]
