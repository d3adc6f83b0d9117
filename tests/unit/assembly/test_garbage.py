"""Pauses of the garbage collector do not grow with the number of partitions, and what it does not look at any more is looked at in time."""

from collections.abc import Callable

from moldau.assembly.interpreter import (
    FROZEN_S_MAX,
    GARBAGE_SHARE,
    LATE_S,
    LONG_S,
    LOOK_S,
    OBJECTS_PER_S,
    PATIENCE_S_MAX,
    WHOLE_EVERY_S,
    GarbagePauses,
    Phase,
)
from moldau.testing.clock import FakeClock


class FakeCollector:
    """Counts objects: `alive` are looked at by a collection, `frozen` are not."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Phase, dict[str, int]], object]] = []
        self.alive = 0
        self.frozen = 1000
        self.count = (0, 0, 0)
        self.whole = 0
        self.garbage = 0
        self.takes: Callable[[], object] = lambda: None

    def collect(self) -> int:
        self.whole += 1
        self.takes()
        return self.garbage

    def freeze(self) -> None:
        self.frozen, self.alive = self.frozen + self.alive, 0

    def unfreeze(self) -> None:
        self.frozen, self.alive = 0, self.frozen + self.alive

    def get_count(self) -> tuple[int, int, int]:
        return self.count


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.collector = FakeCollector()
        self.pauses = GarbagePauses(self.clock, self.collector, self.clock.monotonic)

    def collection(self, generation: int, took_s: float, alive: int) -> None:
        self.collector.alive += alive
        for observe in self.collector.callbacks:
            observe("start", {"generation": generation})
        self.clock.advance_within(took_s)
        for observe in self.collector.callbacks:
            observe("stop", {"generation": generation})

    def looks(self) -> int:
        return self.collector.whole

    def busy_seconds(self, seconds: float) -> None:
        for number in range(int(seconds / LOOK_S)):
            self.collector.count = (number % 2 * 600, number, 0)
            self.clock.advance(LOOK_S)


def test_what_there_is_at_the_end_of_a_start_is_not_looked_at() -> None:
    world = World()
    world.collector.alive = 70
    GarbagePauses(world.clock, world.collector, world.clock.monotonic)
    assert (world.collector.frozen, world.collector.alive) == (1070, 0)
    assert world.looks() == 0, "which would take as long"


def test_what_there_was_at_the_end_of_a_start_is_looked_at_in_a_quiet_second() -> None:
    world = World()
    world.busy_seconds(WHOLE_EVERY_S)
    assert world.looks() == 0
    world.clock.advance(2 * LOOK_S)
    assert world.looks() == 1
    world.clock.advance(10 * WHOLE_EVERY_S)
    assert world.looks() == 1, "nothing was frozen since"


def test_after_a_long_pause_what_has_outlived_it_is_not_looked_at_again() -> None:
    world = World()
    world.collection(2, LONG_S / 2, 5)
    world.collection(1, LONG_S * 2, 5)
    assert world.collector.alive == 10
    world.collection(2, LONG_S * 2, 90)
    assert (world.collector.alive, world.collector.frozen) == (0, 1100)


def test_everything_is_looked_at_in_a_quiet_second_and_not_often() -> None:
    world = World()
    world.collection(2, LONG_S * 2, 90)
    world.busy_seconds(WHOLE_EVERY_S)
    assert world.looks() == 0
    world.clock.advance(2 * LOOK_S)
    assert world.looks() == 1
    world.clock.advance(10 * WHOLE_EVERY_S)
    assert world.looks() == 1, "nothing was frozen since"
    world.collection(2, LONG_S * 2, 90)
    world.clock.advance(2 * LOOK_S)
    assert world.looks() == 2


def much_is_frozen(world: World) -> None:
    """While 10,000 partitions are made, everything was looked at under load: pauses of 222 and 469 ms within 15 seconds."""
    world.collector.takes = lambda: world.clock.advance_within(FROZEN_S_MAX)
    world.collection(2, FROZEN_S_MAX * 1.1, 90)
    world.busy_seconds(WHOLE_EVERY_S - 10)
    assert world.looks() == 0


def test_when_very_much_was_frozen_no_quiet_second_is_waited_for_after_ten_minutes() -> None:
    world = World()
    much_is_frozen(world)
    world.collector.garbage = int(FROZEN_S_MAX * OBJECTS_PER_S)
    world.busy_seconds(20)
    assert world.looks() == 1
    world.collection(2, FROZEN_S_MAX * 0.9, 90)
    world.busy_seconds(WHOLE_EVERY_S * 2)
    assert world.looks() == 1, "not as long as the look at everything"
    world.collection(2, FROZEN_S_MAX * 0.9, 90)
    world.busy_seconds(2)
    assert world.looks() == 2


def test_the_less_garbage_was_found_the_longer_a_quiet_second_is_waited_for() -> None:
    world = World()
    much_is_frozen(world)
    world.collector.garbage = int(FROZEN_S_MAX * OBJECTS_PER_S * GARBAGE_SHARE / 3)
    world.busy_seconds(20)
    world.collection(2, FROZEN_S_MAX * 2, 90)
    world.busy_seconds(WHOLE_EVERY_S * 2.9)
    assert world.looks() == 1
    world.collector.garbage = 0
    world.busy_seconds(WHOLE_EVERY_S * 0.2)
    assert world.looks() == 2
    world.collection(2, FROZEN_S_MAX * 2, 90)
    world.busy_seconds(PATIENCE_S_MAX / 10)
    assert world.looks() == 2
    world.clock.advance(2 * LOOK_S)
    assert world.looks() == 3, "in a quiet second as ever"


def test_a_look_under_load_does_not_come_on_top_of_requests_that_wait() -> None:
    world = World()
    much_is_frozen(world)

    def late_seconds(seconds: float) -> None:
        for number in range(int(seconds / LOOK_S)):
            world.collector.count = (number % 2 * 600, number, 0)
            world.clock.advance_within(LOOK_S + 2 * LATE_S)
            world.clock.advance(0)

    late_seconds(30)
    assert world.looks() == 0
    world.collector.garbage = int(FROZEN_S_MAX * OBJECTS_PER_S)
    world.busy_seconds(2)
    assert world.looks() == 1
    world.collection(2, FROZEN_S_MAX * 2, 90)
    late_seconds(WHOLE_EVERY_S * 2.1)
    assert world.looks() == 2, "in the end it does: nothing may grow for ever"


def test_it_ends() -> None:
    world = World()
    world.pauses.close()
    assert not world.collector.callbacks
    assert world.collector.frozen == 0
    world.clock.advance(WHOLE_EVERY_S * 2)
    assert world.looks() == 0
