"""What a broker does from time to time over all partitions is done in turns: others wait for none of it, however many there are."""

import pytest

from moldau.broker.admission.slices import TURN_S, SliceScheduler
from moldau.broker.replicas import housekeeping
from moldau.model.identity import TopicPartition
from support.broker_world import BrokerWorld
from support.turns import slow_down

PARTITIONS = 60
COST_S = TURN_S / 10
TASKS = ("_tick", "_retry_full", "_checkpoint", "_apply_retention", "_expire_producers")


@pytest.fixture
def turns() -> list[float]:
    """The times at which long work had a turn."""
    return []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, turns: list[float]) -> BrokerWorld:
    """A broker of many partitions, for which each look at the clock takes a tenth of a turn: ten steps are a turn."""
    monkeypatch.setattr(housekeeping, "PARTITIONS_PER_STEP", 1)
    made = BrokerWorld()
    made.create_topic("t", partitions=PARTITIONS)
    now = made.clock.monotonic
    run = SliceScheduler._run_turn

    def counted(scheduler: SliceScheduler) -> None:
        turns.append(now())
        run(scheduler)

    slow_down(made.clock, COST_S)
    monkeypatch.setattr(SliceScheduler, "_run_turn", counted)
    return made


@pytest.mark.parametrize("task", TASKS)
def test_every_task_over_all_partitions_takes_several_turns(world: BrokerWorld, turns: list[float], task: str) -> None:
    """60,000 partitions: the look at flushes alone took 225 ms, each second."""
    getattr(world.broker.housekeeping, task)()
    while world.broker.slices.running:
        world.clock.settle()
    assert len(turns) >= PARTITIONS * COST_S / TURN_S - 1


def test_the_folders_of_a_deleted_topic_are_removed_in_turns(world: BrokerWorld, turns: list[float]) -> None:
    world.broker.replicas.stop([TopicPartition("t", index) for index in range(PARTITIONS)], delete=True)
    waiting = world.broker.logs.statistics()["removals_waiting"]
    assert waiting == PARTITIONS
    turns.clear()
    world.clock.advance(62)
    assert world.broker.logs.statistics()["removals_waiting"] == 0
    assert len(turns) >= PARTITIONS * COST_S / TURN_S - 1


def test_a_log_with_a_short_flush_time_is_flushed_in_that_time_from_its_creation_on(world: BrokerWorld) -> None:
    world.create_topic("often", flush_ms=20)
    world.connect().produce("often", b"value")
    world.clock.advance(0.5)
    while world.broker.slices.running:
        world.clock.settle()
    assert world.partition("often").log.flushed_offset == 1
