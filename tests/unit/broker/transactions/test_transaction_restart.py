"""A coordinator that begins finds what was stored: it finishes what was decided, and leaves open what was not."""

import logging

import pytest

from moldau.broker.transactions.events import InitProducer
from moldau.broker.transactions.records import encode_key, encode_value
from moldau.broker.transactions.transaction import TransactionState, new_transaction
from moldau.model.errors import ErrorCode, PeerError
from support.state_logs import ListStateLog
from support.transactions import Asked, Told, TransactionWorld, Written

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_an_id_that_was_begun_is_known_again(world: TransactionWorld) -> None:
    world.init("app")
    world.crash()
    assert world.state("app") is TransactionState.EMPTY
    assert world.add("app", 1000, 0, "t-0") is NONE


def test_an_open_transaction_stays_open(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.crash()
    assert world.state("app") is TransactionState.ONGOING
    assert world.markers == []
    assert world.end("app", 1000, 0, committed=True) == Told(NONE, 1000, 1)
    assert world.markers == [Written("t-0", 1000, 1, committed=True)]


def test_an_open_transaction_keeps_its_time(world: TransactionWorld) -> None:
    world.init("app", timeout_ms=60_000)
    world.add("app", 1000, 0, "t-0")
    world.clock.advance(40)
    world.crash()
    world.clock.advance(15)
    assert world.state("app") is TransactionState.ONGOING
    world.clock.advance(20)
    assert world.state("app") is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("old", [True, False])
def test_what_was_decided_is_finished(world: TransactionWorld, committed: bool, old: bool) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0", "t-1", old=old)
    world.hold_markers()
    assert world.end("app", 1000, 0, committed=committed, old=old) is None
    world.crash()
    written = [Written(name, 1000, 0 if old else 1, committed, version=0 if old else 2) for name in ("t-0", "t-1")]
    assert world.markers == written * 2  # a repeated marker is harmless
    assert world.state("app") is (TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT)
    assert world.end("app", 1000, 0, committed=committed, old=old) == Told(NONE, 1000, 0 if old else 1)
    assert world.end("app", 1000, 0, committed=not committed, old=old) == Told(ErrorCode.INVALID_TXN_STATE)


def test_a_decision_that_was_not_stored_was_not_taken(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.end("app", 1000, 0, committed=True)
    world.crash()
    assert world.state("app") is TransactionState.ONGOING


def test_an_end_is_repeated_to_the_next_coordinator(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.end("app", 1000, 0, committed=True)
    world.crash()
    assert world.end("app", 1000, 0, committed=True) == Told(NONE, 1000, 1)
    assert world.init("app", 1000, 0) == Told(NONE, 1000, 1)
    assert len(world.markers) == 1


def test_a_producer_that_went_on_is_known_to_the_next_coordinator(world: TransactionWorld) -> None:
    """Its answer was lost with the coordinator; Kafka's would be fenced."""
    world.init("app")
    assert world.init("app", 1000, 0) == Told(NONE, 1000, 1)
    world.crash()
    assert world.init("app", 1000, 0) == Told(NONE, 1000, 1)
    assert world.init("app") == Told(NONE, 1000, 2)
    world.crash()
    assert world.init("app", 1000, 1) == Told(FENCED)


def test_markers_carry_the_epoch_of_the_coordinator(world: TransactionWorld) -> None:
    world.coordinator.become_coordinator(world.log.partition_for("app"), 7)
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.end("app", 1000, 0, committed=True)
    assert world.coordinator_epochs == [7]


def test_while_a_partition_is_read_its_ids_wait() -> None:
    world = TransactionWorld()
    world.log = ListStateLog(3, clock=world.clock)
    world.start()
    for told in (world.init("app"), world.end("app", 0, 0, committed=True)):
        assert told == Told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.add("app", 0, 0, "t-0") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(PeerError, match="being read"):
        world.coordinator.describe("app")
    world.clock.settle()
    assert world.init("app") == Told(NONE, 1000, 0)


def test_a_partition_that_cannot_be_read_is_not_served(world: TransactionWorld) -> None:
    world.log.load_failure = PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is broken")
    world.crash()
    assert world.init("app") == Told(ErrorCode.NOT_COORDINATOR)


def test_a_partition_that_could_not_be_read_is_read_again_when_the_settings_change(world: TransactionWorld) -> None:
    world.init("app")
    world.log.load_failure = PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is broken")
    world.crash()
    world.log.load_failure = None
    world.coordinator.load_refused()
    assert world.init("app") == Told(NONE, 1000, 1)


def test_who_waits_for_a_coordinator_that_resigns_has_to_look_for_another(world: TransactionWorld) -> None:
    world.init("app")
    world.log.hold()
    added = world.ask_add("app", 1000, 0, "t-0")
    world.coordinator.resign(world.log.partition_for("app"))
    assert added.told == Told(ErrorCode.NOT_COORDINATOR)
    world.log.release()
    assert world.end("app", 1000, 0, committed=True) == Told(ErrorCode.NOT_COORDINATOR)


def test_a_coordinator_that_resigned_writes_nothing_more(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.hold_markers()
    ended = world.ask_end("app", 1000, 0, committed=True)
    world.coordinator.resign(world.log.partition_for("app"))
    assert ended.told == Told(ErrorCode.NOT_COORDINATOR)
    world.release_markers()
    world.clock.advance(10)
    assert world.stored_states("app")[-1] == "PrepareCommit"


@pytest.mark.parametrize("what", ["markers", "store"])
def test_a_coordinator_that_resigned_retries_nothing(world: TransactionWorld, what: str) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    partition = world.log.partition_for("app")
    if what == "markers":
        world.refusals = dict.fromkeys(world.coordinator.describe("app").transaction.partitions, ErrorCode.KAFKA_STORAGE_ERROR)
        world.end("app", 1000, 0, committed=True)
    else:
        world.hold_markers()
        world.ask_end("app", 1000, 0, committed=True)
        world.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        world.release_markers()
    assert world.coordinator.statistics()["transactions_tried_again"] == 1
    world.coordinator.resign(partition)
    assert world.coordinator.statistics()["transactions_tried_again"] == 0
    world.refusals.clear()
    written = list(world.markers)
    world.clock.advance(10)
    assert world.markers == written
    assert world.stored_states("app")[-1] == "PrepareCommit"


def test_a_change_is_seen_when_its_append_is_committed_and_changes_in_the_order_of_the_log(world: TransactionWorld) -> None:
    one, other = "app", next(name for name in map(str, range(99)) if world.log.partition_for(name) == world.log.partition_for("app"))
    world.init(one)
    world.init(other)
    world.log.hold()
    first, second = world.ask_add(one, 1000, 0, "t-0"), world.ask_add(other, 1001, 0, "t-0")
    assert (world.state(one), world.state(other)) == (TransactionState.EMPTY, TransactionState.EMPTY)
    world.log.answer_held(1)
    assert (second.told, world.state(other)) == (None, TransactionState.EMPTY)
    world.log.answer_held(0)
    assert first.told == second.told == Told(NONE)
    assert (world.state(one), world.state(other)) == (TransactionState.ONGOING, TransactionState.ONGOING)


def test_damaged_records_are_left_out_and_named(world: TransactionWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.init("app")
    world.init("other")
    sound = encode_value(new_transaction(7, 1, 2)._replace(epoch=3))
    partition = world.log.partition_for("app")
    damaged: list[tuple[bytes, bytes | None]] = [
        (encode_key("app"), sound[:-3]),
        (encode_key("app"), b"\0\x09" + sound[2:]),
        (b"\0", sound),
        (b"\0\0\0\x09app", sound),
        (encode_key("app"), sound[:16] + b"\x63" + sound[17:]),
    ]
    for record in damaged:
        world.log.append(partition, [record], lambda _: None)
    world.log.append(partition, [(b"\0\x01whatever", b"?")], lambda _: None)
    with caplog.at_level(logging.WARNING):
        world.crash()
    assert world.coordinator.describe("app").transaction.producer_id == 1000
    assert world.state("other") is TransactionState.EMPTY
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == len(damaged) + 1
    assert all(f"partition=__transaction_state-{partition} offset=" in line for line in lines)


def test_an_id_that_a_kafka_gave_is_given_to_nobody_else(world: TransactionWorld) -> None:
    """Its directory was adopted, and with it producers whose ids do not come from here."""
    world.put("app", new_transaction(5000, 60_000, 0)._replace(epoch=3, next_producer_id=5001))
    world.crash()
    assert world.init("app") == Told(NONE, 5000, 4)
    assert world.init("other") == Told(NONE, 5002, 0)


def test_a_start_does_not_fail_for_want_of_producer_ids(world: TransactionWorld) -> None:
    world.init("app")
    world.producer_ids.exhausted = True
    world.crash()
    assert world.init("app") == Told(NONE, 1000, 1)


def test_requests_are_answered_when_the_broker_stops(world: TransactionWorld) -> None:
    world.init("app")
    world.log.hold()
    asked = Asked()
    world.coordinator.init_producer_id("app", InitProducer(asked, 1000))
    world.coordinator.close()
    assert asked.told == Told(ErrorCode.NOT_COORDINATOR)
    assert world.clock.pending == 0
