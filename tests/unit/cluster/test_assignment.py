"""Replicas are spread evenly, no partition has two on one broker, and partitions added later go on where the earlier ones stopped."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.controller.planning import check_by_hand, in_order, spread
from moldau.model.errors import ErrorCode, PeerError


def test_a_worked_example() -> None:
    assert spread(6, 3, {2, 0, 1}) == [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0)]


@given(st.integers(1, 8), st.integers(1, 60), st.data())
def test_leaders_and_replicas_are_spread_evenly(brokers: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    assigned = spread(partitions, factor, range(brokers))
    assert all(len(set(replicas)) == factor for replicas in assigned)
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) - min(leaders[broker] for broker in range(brokers)) <= 1


@given(st.integers(1, 8), st.integers(0, 30), st.integers(0, 30), st.data())
def test_growing_later_is_as_good_as_asking_for_all_at_once(brokers: int, first: int, more: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    assert spread(first, factor, range(brokers)) + spread(more, factor, range(brokers), first) == spread(
        first + more, factor, range(brokers)
    )


def test_there_must_be_a_broker_for_every_replica() -> None:
    with pytest.raises(PeerError, match="replication factor 3 is larger than the number of live brokers, 2") as refused:
        spread(1, 3, {0, 1})
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(PeerError):
        spread(1, 1, set())


def test_all_partitions_need_the_same_number_of_replicas() -> None:
    assert check_by_hand([[0, 1], [1, 0]], {0, 1}) == [(0, 1), (1, 0)]
    with pytest.raises(PeerError, match="partition 1 has 1 replicas, others have 2"):
        check_by_hand([[0, 1], [1]], {0, 1})
    with pytest.raises(PeerError, match="partition 0 has 1 replicas, others have 2"):
        check_by_hand([[0]], {0, 1}, replication_factor=2)


def test_assignments_come_in_any_order() -> None:
    assert in_order([(1, [5]), (0, [4])]) == [[4], [5]]
