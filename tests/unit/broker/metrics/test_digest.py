"""Count and sum of durations are exact; a quantile lies within a factor of two of the true one, and is of the last minutes only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.metrics.counters import BUCKETS, WINDOW_S, TimeDigest


def test_count_and_sum_are_exact_and_nothing_is_too_long() -> None:
    digest = TimeDigest()
    digest.add(0)
    digest.add(7, 3)
    digest.add(1 << 60)
    assert (digest.count, digest.sum_us) == (5, 21 + (1 << 60))
    assert [(bucket, count) for bucket, count in enumerate(digest.buckets) if count] == [(0, 1), (3, 3), (BUCKETS - 1, 1)]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_a_factor_of_two(durations: list[int], share: float) -> None:
    digest = TimeDigest()
    for us in durations:
        digest.add(us)
    (found,) = digest.quantiles([share], 0.0) or []
    rank = share * len(durations)
    true = sorted(durations)[max(int(-(-rank // 1)) - 1, 0)]
    assert true / 2 <= found <= 2 * true or true == found == 0


def test_quantiles_forget_what_is_older_than_two_windows() -> None:
    digest = TimeDigest()
    digest.add(1000)
    assert digest.quantiles([1.0], 0.0) == [1024]
    assert digest.quantiles([1.0], WINDOW_S) == [1024]
    digest.add(10)
    assert digest.quantiles([1.0], WINDOW_S + 1) == [1024]
    assert digest.quantiles([1.0], 2 * WINDOW_S) == [16]
    assert digest.quantiles([1.0], 3 * WINDOW_S) is None
    assert digest.count == 2


def test_none_without_durations() -> None:
    assert TimeDigest().quantiles([0.5], 0.0) is None


@pytest.mark.parametrize("count", [1, 1000])
def test_many_at_once_are_as_many_one_by_one(count: int) -> None:
    at_once, singly = TimeDigest(), TimeDigest()
    at_once.add(77, count)
    for _ in range(count):
        singly.add(77)
    assert (at_once.buckets, at_once.sum_us) == (singly.buckets, singly.sum_us)
