"""All transactional ids together take no more than `transactions.memory.max.bytes`; small transactions of ids that are there go on."""

import random
import tracemalloc

import pytest

from moldau.broker.transactions.partition import ID_COST, PARTITION_COST, id_size
from moldau.model.errors import ErrorCode
from support.transactions import Told, TransactionWorld

NONE, REFUSED = ErrorCode.NONE, ErrorCode.POLICY_VIOLATION


def recounted(world: TransactionWorld) -> int:
    """What the ids take, counted again from the start."""
    partitions = [each.state for each in world.coordinator.runtime.active()]
    return sum(id_size(name, machine.partitions_held) for each in partitions for name, machine in each.machines.items())


def many(count: int, topic: str = "t") -> list[str]:
    return [f"{topic}-{index}" for index in range(count)]


def test_new_ids_are_refused_at_the_bound_and_others_go_on() -> None:
    world = TransactionWorld("transactions.memory.max.bytes=100000")
    told = [world.init(f"app-{number}") for number in range(100)]
    codes = [each.code for each in told if each is not None]
    assert 60 < codes.count(NONE) < 70
    assert set(codes[codes.count(NONE) :]) == {REFUSED}
    world.coordinator.memory.held += 10_000  # nothing is left
    for number in range(20):
        assert told[number] == Told(NONE, 1000 + number, 0)
        assert world.add(f"app-{number}", 1000 + number, 0, *many(4)) is NONE
        assert world.end(f"app-{number}", 1000 + number, 0, committed=True) == Told(NONE, 1000 + number, 1)
    world.coordinator.memory.held -= 10_000
    assert world.coordinator.memory.held == recounted(world)
    assert world.coordinator.statistics()["transactions_memory_refused"] == codes.count(REFUSED)


def test_partitions_count_while_their_transaction_lasts() -> None:
    world = TransactionWorld("transactions.memory.max.bytes=100000")
    world.init("app")
    world.init("other")
    assert world.add("app", 1000, 0, *many(400)) is NONE
    assert world.add("other", 1001, 0, *many(100)) is REFUSED
    assert world.add("app", 1000, 0, *many(400)) is NONE, "they are in it"
    assert world.add("app", 1000, 0, *many(401)) is NONE
    world.end("app", 1000, 0, committed=True)
    assert world.coordinator.memory.held == recounted(world) < 2 * (ID_COST + 100)
    assert world.add("other", 1001, 0, *many(100)) is NONE


def test_ids_that_expire_and_partitions_that_are_led_elsewhere_give_back_what_they_took() -> None:
    world = TransactionWorld("transactional.id.expiration.ms=1000")
    for number in range(10):
        world.init(f"app-{number}")
    world.clock.advance(4000)
    world.clock.advance(1)
    assert world.coordinator.memory.held == recounted(world) == 0
    world.init("app")
    for partition in range(world.log.partitions):
        world.coordinator.resign(partition)
    assert world.coordinator.memory.held == 0


@pytest.mark.parametrize("at_once", [True, False])
def test_what_does_not_fit_is_kept_and_served_when_there_is_room(caplog: pytest.LogCaptureFixture, *, at_once: bool) -> None:
    world = TransactionWorld(state_partitions=1)
    for number in range(100):
        world.init(f"app-{number}")
    world.config.set_dynamic(own={}, cluster={"transactions.memory.max.bytes": "100000"})
    world.crash()
    world.clock.settle()
    told = world.init("app-1")
    assert told is not None
    assert told.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.memory.held == 0
    assert world.coordinator.statistics()["transaction_partitions_too_large"] == 1
    assert "transactions.memory.max.bytes is 100000 bytes" in caplog.text
    world.config.set_dynamic(own={}, cluster={"transactions.memory.max.bytes": "200000"})
    if at_once:
        world.coordinator.load_refused()
    world.clock.advance(0 if at_once else 3600)
    world.clock.settle()
    assert world.init("app-1") == Told(NONE, 1001, 1)
    assert world.coordinator.memory.held == recounted(world)


def test_ids_take_what_is_counted() -> None:
    world = TransactionWorld()
    world.log.append = lambda partition, records, done, producer=None: done(None)  # type: ignore[method-assign,assignment,return-value]
    world.init("before")
    tracemalloc.start()
    try:
        before, counted = tracemalloc.get_traced_memory()[0], world.coordinator.memory.held
        for number in range(200):
            world.init(f"app-{number}")
            world.add(f"app-{number}", 1001 + number, 0, *(f"orders.of.shop.{shop}-0" for shop in range(50)))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = world.coordinator.memory.held - counted
    assert 0.6 * counted <= taken <= 1.2 * counted
    assert counted > PARTITION_COST * 46 * 200


def test_the_count_is_what_a_recount_gives_whatever_happens() -> None:
    chance = random.Random(11)
    world = TransactionWorld("transactions.memory.max.bytes=60000", "transactional.id.expiration.ms=20000")
    known: dict[str, tuple[int, int]] = {}
    for _ in range(3000):
        name = f"app-{chance.randrange(40)}"
        match chance.randrange(8):
            case 0 | 1:
                told = world.init(name)
                if told is not None and told.code is NONE:
                    known[name] = told.producer_id, told.epoch
            case 2 | 3 | 4 if name in known:
                world.add(name, *known[name], *many(chance.randrange(1, 40)))
            case 5 | 6 if name in known:
                told = world.end(name, *known[name], committed=chance.random() < 0.5)
                if told is not None and told.code is NONE:
                    known[name] = told.producer_id, told.epoch
            case 7:
                match chance.randrange(20):
                    case 0:
                        world.crash()
                    case 1:
                        world.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, 2)
                    case 2:
                        world.clock.advance(4000)
                    case 3:
                        world.hold_markers()
                    case 4:
                        world.release_markers()
        assert world.coordinator.memory.held == recounted(world)
