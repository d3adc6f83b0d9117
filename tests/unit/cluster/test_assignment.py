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


def test_a_worked_example_with_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    assert spread(5, 2, racks, racks=racks) == [(0, 2), (2, 1), (1, 3), (3, 0), (0, 3)]
    assert spread(1, 3, racks, racks=racks) == [(0, 2, 1)]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 10), st.data())
def test_replicas_are_in_as_many_racks_as_there_are_and_spread_evenly(racks: int, each: int, rounds: int, data: st.DataObject) -> None:
    rack_of = {broker: f"r{broker % racks}" for broker in range(racks * each)}
    factor = data.draw(st.integers(1, len(rack_of)))
    assigned = spread(rounds * len(rack_of), factor, rack_of, racks=rack_of)
    for replicas in assigned:
        assert len(set(replicas)) == factor
        assert len({rack_of[broker] for broker in replicas}) == min(factor, racks)
    leaders, held = Counter(replicas[0] for replicas in assigned), Counter(broker for replicas in assigned for broker in replicas)
    assert [leaders[broker] for broker in rack_of] == [rounds] * len(rack_of)
    assert max(held.values()) - min(held.values()) <= rounds * 2, "no broker has many more replicas than others"


@given(st.dictionaries(st.integers(0, 9), st.sampled_from("abc"), min_size=2), st.integers(1, 40), st.data())
def test_racks_of_different_sizes_have_all_their_brokers_lead(racks: dict[int, str], partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    first = data.draw(st.integers(0, partitions))
    assigned = spread(partitions, factor, racks, racks=racks)
    assert spread(partitions - first, factor, racks, first, racks) == assigned[first:]
    assert all(len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values()))) for replicas in assigned)
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) - min(leaders[broker] for broker in racks) <= 1


def test_racks_count_only_where_every_broker_has_one() -> None:
    assert spread(6, 3, {0, 1, 2}, racks={0: "a", 1: "b", 2: None}) == spread(6, 3, {0, 1, 2})
    assert spread(6, 3, {0, 1, 2}, racks=dict.fromkeys(range(3), "a")) == spread(6, 3, {0, 1, 2})


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
