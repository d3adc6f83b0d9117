"""A sweep goes through the active partitions in steps, comes again while it is wanted, and ends where a coordinator resigns."""

from collections.abc import Iterator

import pytest

from moldau.broker.admission.slices import TURN_S
from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator, Phase
from moldau.model.steps import Steps
from support.toy_coordinator import ToyState, ToyWorld


class World(ToyWorld):
    """Three partitions, and a sweep that takes two steps in each, each as long as a turn."""

    def __init__(self, *, reloads: bool = False, limit: int = 1000) -> None:
        super().__init__(partitions=3, limit=limit)
        self.wanted = True
        self.swept: list[int] = []
        self.sweep = self.runtime.add_sweep("toy", lambda: 1000, lambda: self.wanted, self._steps, reloads=reloads)

    def _steps(self, coordinator: PartitionCoordinator[ToyState]) -> Steps:
        for _ in range(2):
            self.swept.append(coordinator.partition)
            self.clock.advance_within(TURN_S)
            yield None


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    for partition in range(3):
        made.elect(partition=partition)
    yield made
    made.runtime.close()
    assert made.clock.pending == 0


def test_there_is_no_timer_before_there_is_something_to_look_for(world: World) -> None:
    assert world.clock.pending == 0
    world.sweep.wake()
    world.sweep.wake()
    assert world.clock.pending == 1


def test_it_goes_through_all_partitions_after_the_interval_and_comes_again(world: World) -> None:
    world.sweep.wake()
    world.clock.advance(0.9)
    assert world.swept == []
    world.clock.advance(0.3)
    assert world.swept == [0, 0, 1, 1, 2, 2]
    world.clock.advance(1.1)
    assert world.swept == [0, 0, 1, 1, 2, 2] * 2


def test_it_ends_when_it_is_not_wanted_any_more_and_can_be_woken_again(world: World) -> None:
    world.wanted = False
    world.sweep.wake()
    world.clock.advance(10)
    assert world.swept == [0, 0, 1, 1, 2, 2]
    world.sweep.wake()
    world.clock.advance(10)
    assert len(world.swept) == 12


def test_others_are_served_between_two_steps(world: World) -> None:
    between: list[int] = []
    world.sweep.wake()
    world.clock.call_later(1.0, lambda: between.append(len(world.swept)))
    world.clock.advance(2)
    assert between == [1]


def test_the_partition_of_a_coordinator_that_resigns_is_left_at_the_next_step(world: World) -> None:
    world.sweep.wake()
    world.clock.call_later(1.0, lambda: world.runtime.resigned(0))
    world.clock.call_later(1.0, lambda: world.runtime.resigned(1))
    world.clock.advance(1.5)
    assert world.swept == [0, 2, 2]


def test_a_bug_ends_this_sweep_and_not_the_next(world: World, caplog: pytest.LogCaptureFixture) -> None:
    steps, world.sweep._steps_of = world.sweep._steps_of, lambda _: 1 / 0  # type: ignore[assignment, return-value]
    world.sweep.wake()
    world.clock.advance(1.1)
    assert "sweep ended by a bug: topic=__toy sweep=toy" in caplog.text
    world.sweep._steps_of = steps
    world.clock.advance(1.2)
    assert world.swept == [0, 0, 1, 1, 2, 2]


def test_a_sweep_that_reloads_is_wanted_while_a_partition_is_refused() -> None:
    world = World(reloads=True, limit=1)
    world.wanted = False
    world.leave(*((f"o{suffix}", "1") for suffix in range(100)))
    world.elect()
    assert world.phase() is Phase.REFUSED
    world.clock.advance(3)
    assert world.phase() is Phase.REFUSED
    world.limit = 1000
    world.clock.advance(1.1)
    assert world.phase() is Phase.ACTIVE
    world.clock.advance(5)
    assert world.clock.pending == 0


def test_a_sweep_that_does_not_reload_leaves_a_refused_partition_alone() -> None:
    world = World(limit=1)
    world.wanted = False
    world.leave(*((f"o{suffix}", "1") for suffix in range(100)))
    world.elect()
    assert world.phase() is Phase.REFUSED
    assert world.clock.pending == 0
