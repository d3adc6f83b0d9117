"""Deadlines of many keys on one timer: each fires once, not before its time, and nothing is left behind."""

import random

import pytest

from moldau.broker.coordinators.deadlines import STALE_MIN, TURN_S, Deadlines
from moldau.testing.clock import FakeClock


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.deadlines = Deadlines(self.clock)
        self.fired: list[tuple[str, int]] = []

    def set(self, key: str, due_ms: float, owner: str = "p") -> None:
        self.deadlines.set(owner, key, due_ms, lambda: self.fired.append((key, self.deadlines.now_ms())))


@pytest.fixture
def world() -> World:
    return World()


def test_each_fires_once_at_its_time_in_order_of_time(world: World) -> None:
    world.set("late", 300)
    world.set("early", 100)
    world.set("middle", 200)
    world.clock.advance(1)
    assert world.fired == [("early", 100), ("middle", 200), ("late", 300)]
    assert len(world.deadlines) == 0
    assert world.clock.pending == 0


def test_one_timer_serves_all_keys(world: World) -> None:
    for number in range(100):
        world.set(str(number), 1000 + number)
    assert world.clock.pending == 1


@pytest.mark.parametrize(("first", "then"), [(100, 300), (300, 100), (100, 100)])
def test_a_key_has_one_deadline_and_the_last_one_counts(world: World, first: int, then: int) -> None:
    world.set("key", first)
    world.set("key", then)
    world.clock.advance(1)
    assert world.fired == [("key", then)]


def test_a_deadline_that_is_extended_again_and_again_does_not_grow_the_heap(world: World) -> None:
    for now_ms in range(0, 5000, 10):
        world.set("key", now_ms + 1000)
        world.clock.advance(0.010)
        assert len(world.deadlines._heap) == 1
    assert world.fired == []
    world.clock.advance(1)
    assert world.fired == [("key", 5990)]


def test_a_cancelled_deadline_does_not_fire(world: World) -> None:
    world.set("key", 100)
    world.set("other", 200)
    world.deadlines.cancel("p", "key")
    world.deadlines.cancel("p", "key")
    world.deadlines.cancel("q", "key")
    world.clock.advance(1)
    assert world.fired == [("other", 200)]


def test_dropping_an_owner_leaves_those_of_others(world: World) -> None:
    world.set("key", 100, owner="p")
    world.set("key 2", 100, owner="p")
    world.set("kept", 100, owner="q")
    world.deadlines.drop("p")
    world.deadlines.drop("p")
    world.clock.advance(1)
    assert world.fired == [("kept", 100)]


def test_no_timer_is_left_when_none_is_set(world: World) -> None:
    world.set("key", 100, owner="p")
    world.set("key", 100, owner="q")
    world.deadlines.cancel("p", "key")
    assert world.clock.pending == 1
    world.deadlines.close()
    assert world.clock.pending == 0


def test_cancelled_deadlines_do_not_pile_up(world: World) -> None:
    world.set("kept", 10_000)
    for number in range(10_000):
        world.set(str(number), 60_000)
        world.deadlines.cancel("p", str(number))
        assert len(world.deadlines._heap) <= 2 * 1 + STALE_MIN + 1
    world.clock.advance(100)
    assert world.fired == [("kept", 10_000)]


def test_a_place_in_the_heap_that_an_earlier_one_replaced_is_skipped(world: World) -> None:
    for due_ms in (200, 100, 400):
        world.set("key", due_ms)
    world.clock.advance(0.3)
    assert len(world.deadlines._heap) == 1
    world.clock.advance(1)
    assert world.fired == [("key", 400)]


def test_an_action_may_set_its_key_again_and_cancel_others(world: World) -> None:
    def again() -> None:
        world.fired.append(("again", world.deadlines.now_ms()))
        world.deadlines.cancel("p", "other")
        if len(world.fired) < 3:
            world.deadlines.set("p", "again", world.deadlines.now_ms() + 100, again)

    world.deadlines.set("p", "again", 100, again)
    world.set("other", 150)
    world.clock.advance(1)
    assert world.fired == [("again", 100), ("again", 200), ("again", 300)]


def test_a_bug_in_one_action_does_not_keep_others_from_firing(world: World) -> None:
    world.deadlines.set("p", "bug", 100, lambda: 1 / 0)
    world.set("key", 100)
    with pytest.raises(ZeroDivisionError):
        world.clock.advance(1)
    world.clock.advance(1)
    assert [key for key, _ in world.fired] == ["key"]


def test_many_that_are_due_at_once_take_several_turns(world: World) -> None:
    turns: list[int] = []

    def action() -> None:
        world.clock.advance_within(TURN_S / 2)
        world.fired.append(("", 0))
        if len(world.fired) == 1:
            world.clock.call_later(0.0, lambda: turns.append(len(world.fired)))

    for number in range(10):
        world.deadlines.set("p", number, 100, action)
    world.clock.advance(1)
    assert turns == [2]
    assert len(world.fired) == 10


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_fires_as_a_plain_table_of_keys_would(world: World, seed: int) -> None:
    draw = random.Random(seed)
    expected: list[tuple[str, int]] = []
    table: dict[str, int] = {}
    for _ in range(400):
        now_ms = world.deadlines.now_ms()
        key = str(draw.randrange(8))
        match draw.randrange(4):
            case 0 | 1:
                table[key] = now_ms + draw.randrange(1, 300)
                world.set(key, table[key])
            case 2:
                table.pop(key, None)
                world.deadlines.cancel("p", key)
            case _:
                step_ms = draw.randrange(100)
                if any(abs(due_ms - now_ms - step_ms) <= 1 for due_ms in table.values()):
                    continue  # the sums of floating-point times may be on either side
                due = sorted((due_ms, key) for key, due_ms in table.items() if due_ms <= now_ms + step_ms)
                expected += [(key, due_ms) for due_ms, key in due]
                for _, key in due:
                    del table[key]
                world.clock.advance(step_ms / 1000)
                assert sorted(key for key, _ in world.fired) == sorted(key for key, _ in expected)
                assert len(world.deadlines) == len(table)
    assert all(abs(fired_ms - due_ms) <= 1 for (_, fired_ms), (_, due_ms) in zip(world.fired, expected, strict=True))
    assert [time_ms for _, time_ms in world.fired] == sorted(time_ms for _, time_ms in world.fired)
