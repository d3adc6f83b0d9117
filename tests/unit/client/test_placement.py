"""Plans of where replicas are to be: even, over racks, in few moves."""

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from moldau.client.placement import Placement, Replicas, balanced, fitted, led_elsewhere, with_even_leaders, without_broker
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition

NO_RACKS = dict.fromkeys((1, 2, 3, 4))


def placed(*replicas: Replicas, topic: str = "t") -> Placement:
    return {TopicPartition(topic, number): each for number, each in enumerate(replicas)}


def held(placement: Placement) -> Counter[int]:
    return Counter(broker for replicas in placement.values() for broker in replicas)


def preferred(placement: Placement) -> Counter[int]:
    return Counter(replicas[0] for replicas in placement.values())


def copies(before: Placement, after: Placement) -> int:
    return sum(broker not in before[where] for where, replicas in after.items() for broker in replicas)


def racks_of(replicas: Replicas, racks: Mapping[int, str | None]) -> int:
    return len({racks[broker] for broker in replicas})


# Leaders


def test_leaders_move_by_the_order_of_replicas_alone_and_no_more_than_needed() -> None:
    before = placed((1, 2), (1, 3), (1, 2), (2, 3))
    after = with_even_leaders(before, (1, 2, 3), list(before))
    assert {where: sorted(replicas) for where, replicas in after.items()} == {where: sorted(each) for where, each in before.items()}
    assert preferred(after) == {1: 2, 2: 1, 3: 1}
    assert sum(after[where] != before[where] for where in before) == 1


def test_leaders_move_along_a_chain_where_no_partition_has_both_ends() -> None:
    before = placed((1, 2), (1, 2), (2, 3))
    assert preferred(with_even_leaders(before, (1, 2, 3), list(before))) == {1: 1, 2: 1, 3: 1}


def test_what_may_not_move_counts_and_stays() -> None:
    before = placed((1, 2), (1, 2), (1, 2), (1, 2))
    after = with_even_leaders(before, (1, 2), [TopicPartition("t", 3)])
    assert preferred(after) == {1: 3, 2: 1}
    assert after[TopicPartition("t", 0)] == (1, 2)


def test_a_broker_leads_nothing_and_those_that_lead_fewest_take_over() -> None:
    before = placed((1, 2, 3), (1, 2, 3), (2, 1, 3), (3, 1, 2))
    able = {TopicPartition("t", 0): [2, 3], TopicPartition("t", 1): [3]}
    assert led_elsewhere(before, able, 1, (1, 2, 3)) == placed((2, 3, 1), (3, 2, 1))


# Replicas


def test_new_brokers_get_their_part_with_no_move_beyond_it() -> None:
    before = placed(*[(1, 2), (2, 1)] * 6)
    after = balanced(before, NO_RACKS, list(before))
    assert held(after) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert preferred(after) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert copies(before, after) == 12
    assert balanced(after, NO_RACKS, list(after)) == after, "there is nothing left to do"


def test_a_topic_that_lies_together_is_spread_first() -> None:
    before = placed((1,), (1,), topic="together") | placed((1,), topic="alone") | placed((2,), topic="other")
    after = balanced(before, dict.fromkeys((1, 2)), list(before))
    assert [where.topic for where in before if after[where] != before[where]] == ["together"]


def test_partitions_lie_in_as_many_racks_as_they_can_and_a_move_for_evenness_does_not_undo_it() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = placed((1, 2), (2, 1), (3, 4), (1, 3))
    after = balanced(before, racks, list(before))
    assert all(racks_of(replicas, racks) == 2 for replicas in after.values())
    assert held(after) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert after[TopicPartition("t", 3)] == (1, 3) or sorted(preferred(after).values()) == [1, 1, 1, 1]


def test_a_broker_without_a_rack_makes_all_racks_meaningless_as_at_creation() -> None:
    before = placed((1, 2), (1, 2))
    assert balanced(before, {1: "a", 2: "a", 3: None}, [TopicPartition("t", 0)])[TopicPartition("t", 1)] == (1, 2)


def test_what_is_not_on_the_brokers_that_may_have_it_is_replaced_and_the_rest_stays() -> None:
    before = placed((1, 2, 3), (2, 3, 4))
    after = fitted(before, dict.fromkeys((2, 3, 4)))
    assert after == placed((2, 3, 4), (2, 3, 4))
    assert fitted(before, NO_RACKS, 1) == placed((1,), (2,))
    assert [len(replicas) for replicas in fitted(before, NO_RACKS, 4).values()] == [4, 4]


def test_too_few_brokers_are_an_error_that_names_the_partition() -> None:
    with pytest.raises(PeerError, match=r"partition t-0: more replicas than brokers that may have them \(1, 2\)") as raised:
        fitted(placed((1, 2, 3)), dict.fromkeys((1, 2)))
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(PeerError, match="partition t-0: more replicas than brokers"):
        without_broker(placed((1, 2)), dict.fromkeys((1, 2)), 1)


def test_a_drained_broker_has_nothing_others_take_equal_parts_and_the_rest_does_not_move() -> None:
    before = placed((1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (1, 4))
    changed = without_broker(before, NO_RACKS, 1)
    assert sorted(changed) == [where for where, replicas in before.items() if 1 in replicas]
    after = before | changed
    assert held(after)[1] == 0
    assert copies(before, after) == 5
    assert max(held(after).values()) - min(held(after).values()) <= 1
    assert max(preferred(after).values()) <= 2
    assert without_broker(after, NO_RACKS, 1) == {}


def test_replicas_of_a_dead_broker_move_and_those_of_another_dead_one_stay() -> None:
    assert without_broker(placed((9, 1, 8)), dict.fromkeys((1, 2)), 9) == placed((1, 8, 2))


@pytest.mark.parametrize("seed", range(60))
def test_any_layout_keeps_the_rules(seed: int) -> None:
    """Claim: no broker twice, racks never fewer than before, numbers even within one where nothing stands against it."""
    chance = random.Random(seed)
    brokers = list(range(chance.randint(2, 7)))
    racks: dict[int, str | None] = {each: chance.choice("abc") for each in brokers} if chance.random() < 0.5 else dict.fromkeys(brokers)
    factor = chance.randint(1, min(3, len(brokers)))
    before = placed(*(tuple(chance.sample(brokers, factor)) for _ in range(chance.randint(1, 30))))
    after = balanced(before, racks, list(before))
    most = min(factor, len(set(racks.values())))
    for replicas in after.values():
        assert len(set(replicas)) == factor
        if None not in racks.values():
            assert racks_of(replicas, racks) == most
    if None in racks.values():
        numbers = [held(after)[each] for each in brokers]
        assert max(numbers) - min(numbers) <= 1
    assert balanced(after, racks, list(after)) == after
