"""How much of a partition goes over a connection at once: more where full messages take long, less where they hardly come at all."""

from moldau.mirror.fetched import Limits
from moldau.mirror.window import BYTES_MIN, Window

MIB = 1024 * 1024


def test_full_messages_over_a_long_way_become_larger_up_to_the_most() -> None:
    window = Window(MIB, 6 * MIB)
    seen = [window.size / MIB]
    for _ in range(4):
        window.answered(window.size, 0.3)
        seen.append(window.size / MIB)
    assert seen == [1, 2, 4, 6, 6]


def test_nothing_changes_where_answers_come_soon_or_messages_are_small_or_the_link_is_slow() -> None:
    window = Window(MIB, 6 * MIB)
    for size, seconds in ((2 * MIB, 0.09), (MIB // 2 - 1, 0.3), (0, 0.5), (MIB, 1.5)):
        window.answered(size, seconds)
        assert window.size == MIB, (size, seconds)


def test_messages_that_hardly_come_become_smaller_down_to_the_least() -> None:
    """Claim: over a link of any use a message is small enough at last to be there before the request times out."""
    window = Window(MIB, 6 * MIB)
    window.answered(MIB, 5.0)
    assert window.size == MIB // 2
    window.lost()
    assert window.size == MIB // 4
    for _ in range(10):
        window.lost()
    assert window.size == BYTES_MIN


def test_what_became_smaller_returns_to_the_first_size_also_near_by() -> None:
    window = Window(MIB, 6 * MIB)
    window.lost()
    window.lost()
    for _ in range(4):
        window.answered(window.size, 0.001)
    assert window.size == MIB


def test_bounds_below_the_least_stay() -> None:
    window = Window(500, 500)
    window.lost()
    window.answered(2_000, 0.3)
    assert window.size == 500


def test_all_partitions_of_an_answer_become_less_with_one_and_no_less_than_one() -> None:
    limits = Limits(response_bytes=2 * MIB, partition_bytes=MIB)
    assert [limits.response_bytes_with(size) // 1024 for size in (MIB // 4, MIB, 2 * MIB, 6 * MIB)] == [512, 2048, 2048, 6144]
