"""How much a connection to a source asks for: more where full answers take long to come, less where they hardly come at all."""

from moldau.mirror.fetch_window import PARTITION_BYTES_MIN, FetchWindow
from moldau.mirror.fetched import Limits

MIB = 1024 * 1024
LIMITS = Limits(response_bytes=2 * MIB, partition_bytes=MIB, connections=4, partition_bytes_max=4 * MIB)


def sizes(window: FetchWindow) -> tuple[float, float]:
    """Of a partition and of all, in MiB."""
    return window.partition_bytes / MIB, window.response_bytes / MIB


def test_full_answers_from_far_away_become_larger_up_to_the_most() -> None:
    window = FetchWindow(LIMITS)
    seen = [sizes(window)]
    for _ in range(3):
        window.answered(window.partition_bytes, 0.3)
        seen.append(sizes(window))
    assert seen == [(1, 2), (2, 2), (4, 4), (4, 4)]


def test_nothing_changes_where_answers_come_soon_or_are_small_or_the_way_is_slow() -> None:
    window = FetchWindow(LIMITS)
    for size, seconds in ((2 * MIB, 0.09), (MIB // 2 - 1, 0.3), (0, 0.5), (MIB, 1.5)):
        window.answered(size, seconds)
        assert sizes(window) == (1, 2), (size, seconds)


def test_answers_that_hardly_come_become_smaller_down_to_the_least() -> None:
    """Claim: whatever the rate, an answer is small enough at last to be there before the request's time-out."""
    window = FetchWindow(LIMITS)
    window.answered(MIB, 5.0)
    assert sizes(window) == (0.5, 1)
    window.lost()
    assert sizes(window) == (0.25, 0.5)
    for _ in range(10):
        window.lost()
    assert window.partition_bytes == PARTITION_BYTES_MIN


def test_what_became_smaller_returns_to_the_first_size_also_near_by() -> None:
    window = FetchWindow(LIMITS)
    window.lost()
    window.lost()
    for _ in range(4):
        window.answered(window.response_bytes, 0.001)
    assert sizes(window) == (1, 2)


def test_bounds_below_the_least_stay() -> None:
    window = FetchWindow(Limits(response_bytes=2_000, partition_bytes=500, partition_bytes_max=500))
    window.lost()
    window.answered(2_000, 0.3)
    assert (window.partition_bytes, window.response_bytes) == (500, 2_000)
