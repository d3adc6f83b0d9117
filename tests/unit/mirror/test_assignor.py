"""Who gets which partitions: each once, those of a crowd and of a departed member spread, and as few moves as balance allows."""

from collections.abc import Mapping

import hypothesis.strategies as st
from hypothesis import given

from moldau.mirror.sharing.assignor import IDLE_BYTES_S, IMBALANCE, MOVED_MAX, assign, weights_of
from moldau.mirror.sharing.shares import Ownership, Share

GENERATIONS_MAX = 40
Assigned = dict[str, list[Share]]


def shares(count: int, topic: str = "t") -> list[Share]:
    return [Share("a", topic, number) for number in range(count)]


def even(count: int, rate: float = 1e6) -> dict[Share, float]:
    return dict.fromkeys(shares(count), rate)


def follow(owned: Mapping[str, Ownership], assigned: Assigned, generation_id: int) -> dict[str, Ownership]:
    """What members own when they rejoin: what they are assigned, the rest is revoked."""
    return {member: Ownership(tuple(mine), generation_id) for member, mine in assigned.items() if member in owned}


def settle(weights: Mapping[Share, float], owned: dict[str, Ownership]) -> tuple[list[Assigned], dict[str, Ownership]]:
    """Generations until nothing changes. No partition is assigned to one member while another owns it, nor to two."""
    generations: list[Assigned] = []
    for generation_id in range(GENERATIONS_MAX):
        assigned = assign(weights, owned)
        generations.append(assigned)
        all_assigned = [share for mine in assigned.values() for share in mine]
        assert len(all_assigned) == len(set(all_assigned))
        for member, mine in assigned.items():
            for other, ownership in owned.items():
                assert other == member or not set(mine) & set(ownership.shares)
        after = follow(owned, assigned, generation_id)
        if {member: set(each.shares) for member, each in after.items()} == {member: set(each.shares) for member, each in owned.items()}:
            return generations, after
        owned = after
    raise AssertionError(f"moves do not end within {GENERATIONS_MAX} generations")


def loads_of(weights: Mapping[Share, float], owned: Mapping[str, Ownership]) -> list[float]:
    return [sum(weights[share] for share in each.shares) for each in owned.values()]


def newcomers(count: int) -> dict[str, Ownership]:
    return {f"m{number}": Ownership() for number in range(count)}


def moved(before: Mapping[str, Ownership], after: Mapping[str, Ownership]) -> list[Share]:
    """What left a member that is still there."""
    return [share for member, each in before.items() if member in after for share in each.shares if share not in after[member].shares]


WEIGHTS = st.lists(st.one_of(st.none(), st.floats(0, 1e8), st.sampled_from([0.0, 1e6])), max_size=30).map(
    lambda rates: weights_of(dict(zip(shares(len(rates)), rates, strict=True)))
)


# Properties


@given(WEIGHTS, st.integers(1, 6), st.data())
def test_from_any_owners_each_partition_is_assigned_once_and_loads_are_balanced(
    weights: dict[Share, float], count: int, data: st.DataObject
) -> None:
    owner = st.one_of(st.none(), st.integers(0, count - 1))
    owners = [data.draw(owner) for _ in weights]
    owned = {
        f"m{number}": Ownership(tuple(share for share, place in zip(weights, owners, strict=True) if place == number), 0)
        for number in range(count)
    }
    _, settled = settle(weights, owned)
    assert sorted(share for each in settled.values() for share in each.shares) == list(weights)
    mean = sum(weights.values()) / count
    assert max(loads_of(weights, settled)) <= mean * (1 + IMBALANCE) + max(weights.values(), default=0.0) + 1.0


@given(WEIGHTS, st.integers(1, 5))
def test_when_one_joins_its_part_moves_and_only_a_fifth_in_a_generation(weights: dict[Share, float], count: int) -> None:
    _, before = settle(weights, newcomers(count))
    generations, after = settle(weights, {**before, "new": Ownership()})
    total = sum(weights.values())
    held = {member: set(each.shares) for member, each in before.items()}
    for assigned in generations:
        leaving = [share for member, mine in held.items() for share in mine if share not in assigned[member]]
        assert len(leaving) <= 1 or sum(weights[share] for share in leaving) <= total * MOVED_MAX + 1.0
        held = {member: set(assigned[member]) for member in held}
    largest = max(weights.values(), default=0.0)
    assert sum(weights[share] for share in moved(before, after)) <= total / (count + 1) + count * largest


@given(WEIGHTS, st.integers(2, 6))
def test_when_one_leaves_what_the_others_have_stays(weights: dict[Share, float], count: int) -> None:
    _, before = settle(weights, newcomers(count))
    left = before.pop("m0").shares
    first = assign(weights, before)
    assert set(left) <= {share for mine in first.values() for share in mine}
    most = sum(weights.values()) / len(before) * (1 + IMBALANCE)
    for member, each in before.items():
        if sum(weights[share] for share in {*each.shares, *first[member]}) <= most:
            assert set(each.shares) <= set(first[member])


@given(WEIGHTS, st.integers(1, 6), st.integers(0, 9))
def test_it_does_not_depend_on_the_order_of_what_members_own(weights: dict[Share, float], count: int, owned: int) -> None:
    mine = tuple(weights)[:owned]
    others = {f"n{number}": Ownership() for number in range(count)}
    assert assign(weights, {"m": Ownership(mine, 1), **others}) == assign(weights, {"m": Ownership(mine[::-1], 1), **others})


# Examples


def test_idle_and_unknown_partitions_spread_by_their_number() -> None:
    assert weights_of(dict.fromkeys(shares(2))) == dict.fromkeys(shares(2), IDLE_BYTES_S)
    weights = weights_of(dict.fromkeys(shares(9), 0.0))
    assert [len(mine) for mine in assign(weights, newcomers(3)).values()] == [3, 3, 3]
    one, two, three = shares(3)
    assert weights_of({one: 4e6, two: None, three: 2e6}) == {one: 4e6, two: 3e6, three: 2e6}


def test_the_example_of_the_module() -> None:
    weights = even(4, 1e7)
    generations, settled = settle(weights, {"one": Ownership(tuple(weights), 0), "two": Ownership()})
    assert [[len(mine) for mine in each.values()] for each in generations] == [[3, 0], [2, 1], [2, 2], [2, 2]]
    assert loads_of(weights, settled) == [2e7, 2e7]


def test_a_fourth_member_takes_a_fourth() -> None:
    weights = even(120)
    _, before = settle(weights, newcomers(3))
    _, after = settle(weights, {**before, "new": Ownership()})
    assert sorted(len(each.shares) for each in after.values()) == [24, 32, 32, 32]
    assert sorted(moved(before, after)) == sorted(after["new"].shares)


def test_one_partition_that_is_larger_than_the_others_together_stays() -> None:
    weights = {share: 1e9 if share.partition == 0 else 1e6 for share in shares(10)}
    owned = {"one": Ownership((shares(1)[0],), 0), "two": Ownership(tuple(shares(10)[1:]), 0)}
    assert settle(weights, owned)[1] == {"one": Ownership((shares(1)[0],), 0), "two": Ownership(tuple(shares(10)[1:]), 0)}


def test_within_a_fifth_of_the_mean_nothing_moves() -> None:
    weights = even(22)
    owned = {"one": Ownership(tuple(shares(22)[:12]), 0), "two": Ownership(tuple(shares(22)[12:]), 0)}
    assert [len(mine) for mine in assign(weights, owned).values()] == [12, 10]


def test_of_two_owners_the_later_generation_has_it_and_of_one_generation_neither() -> None:
    weights = even(2)
    one, two = shares(2)
    assert assign(weights, {"old": Ownership((one,), 3), "new": Ownership((one,), 4), "idle": Ownership((two,), 4)}) == {
        "old": [],
        "new": [one],
        "idle": [two],
    }
    assert assign(weights, {"a": Ownership((one,), 4), "b": Ownership((one,), 4), "c": Ownership((two,), 4)}) == {
        "a": [],
        "b": [],
        "c": [two],
    }


def test_what_is_no_partition_any_more_is_assigned_to_no_member() -> None:
    assert assign({}, {"one": Ownership(tuple(shares(3)), 1)}) == {"one": []}
    assert assign(even(3), {}) == {}


def test_ten_thousand_partitions_are_assigned_in_a_moment() -> None:
    weights = {Share("a", "t", number): 1e3 + number for number in range(10_000)}
    _, settled = settle(weights, {"m0": Ownership(tuple(weights), 0), **{f"m{number}": Ownership() for number in range(1, 10)}})
    mean = sum(weights.values()) / 10
    assert max(loads_of(weights, settled)) <= mean * (1 + IMBALANCE)
