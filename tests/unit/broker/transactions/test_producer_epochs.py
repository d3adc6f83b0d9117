"""The coordinator knows which epoch a producer id was given last, as long as it knows the transactional id (decision 0020)."""

import pytest

from moldau.broker.transactions.records import encode_key, encode_value
from moldau.broker.transactions.transaction import LAST_EPOCH, new_transaction
from moldau.model.errors import ErrorCode, PeerError
from support.transactions import MINUTE_MS, TransactionWorld
from support.turns import slow_down


def test_the_epoch_is_that_of_the_last_takeover_also_after_a_restart() -> None:
    world = TransactionWorld()
    for _ in range(3):
        world.init("app")
    world.init("other")
    assert [world.coordinator.epoch_of(each) for each in (999, 1000, 1001)] == [None, 2, 0]
    world.crash()
    assert [world.coordinator.epoch_of(each) for each in (999, 1000, 1001)] == [None, 2, 0]


def test_an_id_that_is_used_up_is_known_no_longer() -> None:
    world = TransactionWorld()
    world.init("app")
    almost = new_transaction(1000, MINUTE_MS, 0)._replace(epoch=LAST_EPOCH - 1)
    world.log.append(world.log.partition_for("app"), [(encode_key("app"), encode_value(almost))], lambda _: None)
    world.crash()
    world.init("app")
    assert [world.coordinator.epoch_of(each) for each in (1000, 1001)] == [LAST_EPOCH, None]
    world.init("app")
    assert [world.coordinator.epoch_of(each) for each in (1000, 1001)] == [None, 0]
    assert len(world.coordinator.producers._machines) == 1


def test_ids_that_expire_and_partitions_that_are_led_elsewhere_leave_nothing() -> None:
    world = TransactionWorld("transactional.id.expiration.ms=1000")
    for number in range(10):
        world.init(f"app-{number}")
    for partition in range(2):
        world.coordinator.resign(partition)
    assert 0 < len(world.coordinator.producers._machines) < 10
    world.clock.advance(4000)
    world.clock.advance(1)
    assert world.coordinator.producers._machines == {}


def test_what_another_coordinator_may_have_given_since_is_forgotten_at_once() -> None:
    """Not only when the state is released: a producer with a later epoch would be refused for good meanwhile."""
    world = TransactionWorld(state_partitions=1)
    for number in range(20):
        world.init(f"app-{number}")
    slow_down(world.clock, 0.004)
    world.coordinator.resign(0)
    assert world.coordinator.producers._machines, "they are not all released yet"
    assert {world.coordinator.epoch_of(1000 + number) for number in range(20)} == {None}


def test_while_ids_are_read_producers_that_are_not_known_are_asked_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TransactionWorld()
    world.init("app")
    monkeypatch.setattr(world.log, "load", lambda *_: None)
    world.coordinator.become_coordinator(0, 2)
    with pytest.raises(PeerError) as raised:
        world.coordinator.epoch_of(77)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
