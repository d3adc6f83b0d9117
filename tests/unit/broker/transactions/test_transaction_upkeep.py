"""Time: transactions that are late are aborted, ids that nobody uses are forgotten; and no timer runs for nothing."""

import logging

import pytest

from moldau.broker.transactions.transaction import UNTIMED_MS, TransactionState
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from support.transactions import Told, TransactionWorld, Written

NONE = ErrorCode.NONE
WEEK_S = 7 * 86_400
HOUR_S = 3600


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_a_late_transaction_is_aborted_and_its_producer_fenced(world: TransactionWorld) -> None:
    world.init("app", timeout_ms=5000)
    world.add("app", 1000, 0, "t-0", old=True)
    world.clock.advance(9)
    assert world.state("app") is TransactionState.ONGOING  # it is looked at every ten seconds
    world.clock.advance(1)
    assert world.state("app") is TransactionState.COMPLETE_ABORT
    assert world.markers == [Written("t-0", 1000, 1, committed=False)]
    assert world.end("app", 1000, 0, committed=True, old=True) == Told(ErrorCode.PRODUCER_FENCED)
    assert world.add("app", 1000, 0, "t-0", old=True) is ErrorCode.PRODUCER_FENCED


def test_a_producer_of_version_2_goes_on_after_its_late_transaction_but_cannot_commit_it(world: TransactionWorld) -> None:
    world.init("app", timeout_ms=5000)
    world.add("app", 1000, 0, "t-0")
    world.clock.advance(10)
    assert world.end("app", 1000, 0, committed=True) == Told(ErrorCode.INVALID_TXN_STATE)
    assert world.end("app", 1000, 0, committed=False) == Told(NONE, 1000, 1)
    assert world.add("app", 1000, 1, "t-0") is NONE


def test_a_transaction_is_as_old_as_its_first_partition(world: TransactionWorld) -> None:
    world.init("app", timeout_ms=15_000)
    world.clock.advance(60)
    world.add("app", 1000, 0, "t-0")
    world.clock.advance(10)
    world.add("app", 1000, 0, "t-1")
    assert world.state("app") is TransactionState.ONGOING
    world.clock.advance(10)
    assert world.state("app") is TransactionState.COMPLETE_ABORT
    assert {each.partition for each in world.markers} == {"t-0", "t-1"}


def test_the_abort_of_a_late_transaction_is_tried_again(world: TransactionWorld) -> None:
    world.init("app", timeout_ms=5000)
    world.add("app", 1000, 0, "t-0")
    world.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.clock.advance(10)
    assert world.state("app") is TransactionState.ONGOING
    world.clock.advance(10)
    assert world.markers == [Written("t-0", 1000, 1, committed=False)]


def test_while_its_abort_is_stored_a_late_transaction_is_being_fenced(world: TransactionWorld) -> None:
    world.init("app", timeout_ms=5000)
    world.add("app", 1000, 0, "t-0")
    world.log.hold()
    world.clock.advance(10)
    assert world.state("app") is TransactionState.PREPARE_EPOCH_FENCE
    assert world.end("app", 1000, 0, committed=True) == Told(ErrorCode.CONCURRENT_TRANSACTIONS)
    world.log.release()
    assert world.state("app") is TransactionState.COMPLETE_ABORT


def test_a_transaction_that_another_system_decides_is_never_late(world: TransactionWorld) -> None:
    """KIP-939: Kafka may have left one in a directory that is adopted."""
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    value = world.stored("app")[-1]
    assert value is not None
    world.put("app", value._replace(timeout_ms=UNTIMED_MS))
    world.crash()
    world.clock.advance(1000)
    assert world.state("app") is TransactionState.ONGOING


def test_an_id_that_is_not_used_for_a_week_is_forgotten(world: TransactionWorld) -> None:
    world.init("app")
    world.init("other")
    world.clock.advance(WEEK_S - HOUR_S)
    world.init("other")
    world.clock.advance(2 * HOUR_S)
    with pytest.raises(PeerError) as unknown:
        world.coordinator.describe("app")
    assert unknown.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.stored_states("app") == ["Empty", "tombstone"]
    assert world.state("other") is TransactionState.EMPTY
    assert world.add("app", 1000, 0, "t-0") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world.crash()
    assert world.coordinator.statistics()["transactional_ids"] == 1
    assert world.init("app") == Told(NONE, 1002, 0)


def test_an_id_in_a_transaction_is_never_forgotten() -> None:
    world = TransactionWorld("transactional.id.expiration.ms=1", "transaction.max.timeout.ms=2147483647")
    for name in ("open", "decided"):
        world.init(name, timeout_ms=2_000_000_000)
    world.add("open", 1000, 0, "t-0")
    world.add("decided", 1001, 0, "t-1")
    world.refusals = dict.fromkeys(world.coordinator.describe("decided").transaction.partitions, ErrorCode.KAFKA_STORAGE_ERROR)
    world.end("decided", 1001, 0, committed=True)
    world.clock.advance(2 * HOUR_S)
    assert world.state("open") is TransactionState.ONGOING
    assert world.state("decided") is TransactionState.PREPARE_COMMIT
    world.refusals.clear()
    world.clock.advance(2 * HOUR_S)
    assert world.coordinator.statistics()["transactional_ids"] == 1


def test_an_id_that_is_being_forgotten_is_not_known(world: TransactionWorld) -> None:
    world.init("app")
    world.log.hold()
    world.clock.advance(WEEK_S + HOUR_S)
    with pytest.raises(PeerError, match="not known"):
        world.coordinator.describe("app")
    assert world.init("app") == Told(ErrorCode.CONCURRENT_TRANSACTIONS)
    world.log.release()
    assert world.init("app") == Told(NONE, 1001, 0)


def test_an_id_whose_tombstone_fails_stays(world: TransactionWorld) -> None:
    world.init("app")
    world.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.clock.advance(WEEK_S)
    assert world.state("app") is TransactionState.EMPTY
    world.clock.advance(HOUR_S)
    assert world.coordinator.statistics()["transactional_ids"] == 0


def test_many_ids_are_forgotten_in_slices(world: TransactionWorld) -> None:
    for number in range(500):
        world.init(f"app-{number}")
    world.clock.advance(WEEK_S + HOUR_S)
    assert world.coordinator.statistics()["transactional_ids"] == 0


def test_no_timer_runs_for_nothing(world: TransactionWorld) -> None:
    assert world.clock.pending == 0
    world.init("app")
    assert world.clock.pending == 1  # looks for unused ids
    world.add("app", 1000, 0, "t-0")
    for number in range(10):
        world.init(f"app-{number}")
        world.add(f"app-{number}", 1001 + number, 0, "t-0")
    assert world.clock.pending == 2  # and for late transactions
    world.clock.advance(100)
    assert world.clock.pending == 1
    world.clock.advance(WEEK_S + HOUR_S)
    assert world.clock.pending == 0


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_markers_that_many_partitions_refuse_are_one_line_in_the_log(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    """10,000 partitions of a topic with min.insync.replicas=2 were 10,000 lines, and a turn of 121 ms."""
    partitions = [f"t-{number}" for number in range(50)]
    world.refusals = {TopicPartition("t", number): code for number in range(50)}
    world.init("app")
    world.add("app", 1000, 0, *partitions)
    with caplog.at_level(logging.INFO):
        world.end("app", 1000, 0, committed=True)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.endswith(f"transactional_id=app error={code.name} partitions=50 first=t-0")
