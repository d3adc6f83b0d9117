"""A producer talks to its coordinator: what each of the two protocols stores, writes and answers, step by step."""

import itertools

import pytest

from moldau.broker.transactions.events import (
    AddPartitions,
    AnswerRequest,
    EndTransaction,
    Event,
    InitProducer,
    MarkersWritten,
    StoreTransaction,
    TransactionStored,
    WriteMarkers,
)
from moldau.broker.transactions.machine import Machine, Surroundings
from moldau.broker.transactions.transaction import EPOCH_MAX, EPOCH_PER_TRANSACTION, LAST_EPOCH, TransactionState, new_transaction
from moldau.model.errors import ErrorCode
from support.transactions import MINUTE_MS, NOT_YET, Told, TransactionWorld, Written, partitions

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
NONE = ErrorCode.NONE
WRONG = ErrorCode.INVALID_TXN_STATE
ANOTHER_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_a_transaction_of_version_2_is_stored_marked_stored_and_answered_with_the_next_epoch(world: TransactionWorld) -> None:
    assert world.init("app") == Told(NONE, 1000, 0)
    assert world.add("app", 1000, 0, "t-0", "t-1") is NONE
    assert world.end("app", 1000, 0, committed=True) == Told(NONE, 1000, 1)
    assert world.stored_states("app") == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert world.markers == [Written("t-0", 1000, 1, committed=True), Written("t-1", 1000, 1, committed=True)]
    assert world.add("app", 1000, 0, "t-0") is FENCED
    assert world.add("app", 1000, 1, "t-2") is NONE
    assert world.end("app", 1000, 1, committed=False) == Told(NONE, 1000, 2)
    assert world.markers[2:] == [Written("t-2", 1000, 2, committed=False)]
    assert world.stored_states("app")[4:] == ["Ongoing", "PrepareAbort", "CompleteAbort"]


def test_a_transaction_of_the_older_protocol_keeps_its_epoch(world: TransactionWorld) -> None:
    assert world.init("app") == Told(NONE, 1000, 0)
    for _ in range(2):
        assert world.add("app", 1000, 0, "t-0", old=True) is NONE
        assert world.end("app", 1000, 0, committed=True, old=True) == Told(NONE, 1000, 0)
    assert world.markers == [Written("t-0", 1000, 0, committed=True, version=0)] * 2


def test_partitions_that_are_in_the_transaction_are_not_stored_again(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0", "t-1")
    assert world.add("app", 1000, 0, "t-1") is NONE
    assert world.add("app", 1000, 0, "t-2") is NONE
    assert world.stored_states("app") == ["Empty", "Ongoing", "Ongoing"]
    last = world.stored("app")[-1]
    assert last is not None
    assert {str(each) for each in last.partitions} == {"t-0", "t-1", "t-2"}


def test_a_repeated_end_is_answered_as_the_first_one(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    first = world.end("app", 1000, 0, committed=True)
    assert world.end("app", 1000, 0, committed=True) == first == Told(NONE, 1000, 1)
    assert world.end("app", 1000, 0, committed=False) == Told(WRONG)
    assert len(world.markers) == 1


def test_an_end_of_the_transaction_before_never_touches_the_one_that_is_open(world: TransactionWorld) -> None:
    """Fault T1: an EndTxn that was on its way for long."""
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.end("app", 1000, 0, committed=True)
    world.add("app", 1000, 1, "t-0")
    for committed in (True, False):
        assert world.end("app", 1000, 0, committed=committed) == Told(FENCED)
    assert world.state("app") is TransactionState.ONGOING
    assert world.end("app", 1000, 1, committed=False) == Told(NONE, 1000, 2)


def test_an_end_of_the_older_protocol_that_comes_late_over_a_lost_connection_ends_nothing(world: TransactionWorld) -> None:
    """Fault T1, where the epoch cannot tell: the producer has ended over another connection since. Kafka would end the open transaction."""
    world.init("app")
    world.add("app", 1000, 0, "t-0", old=True)
    assert world.end("app", 1000, 0, committed=True, old=True, connection=2) == Told(NONE, 1000, 0)
    world.add("app", 1000, 0, "t-0", old=True)
    for committed in (True, False):
        assert world.end("app", 1000, 0, committed=committed, old=True, connection=1) == Told(WRONG)
    assert world.state("app") is TransactionState.ONGOING
    assert world.end("app", 1000, 0, committed=False, old=True, connection=2) == Told(NONE, 1000, 0)
    world.add("app", 1000, 0, "t-0", old=True)
    assert world.end("app", 1000, 0, committed=True, old=True, connection=3) == Told(NONE, 1000, 0)


def test_a_fenced_producer_does_not_shut_out_the_connection_of_the_one_after_it(world: TransactionWorld) -> None:
    world.init("app")
    world.init("app")
    world.add("app", 1000, 1, "t-0", old=True)
    assert world.end("app", 1000, 0, committed=True, old=True, connection=9) == Told(FENCED)
    assert world.end("app", 1000, 1, committed=True, old=True, connection=1) == Told(NONE, 1000, 1)


def test_version_2_aborts_where_nothing_was_added_and_bumps_the_epoch(world: TransactionWorld) -> None:
    """What the producer sent may still be on its way; the new epoch shuts it out."""
    world.init("app")
    assert world.end("app", 1000, 0, committed=True) == Told(WRONG)
    assert world.end("app", 1000, 0, committed=False) == Told(NONE, 1000, 1)
    assert world.end("app", 1000, 0, committed=False) == Told(NONE, 1000, 1)  # repeated
    assert world.end("app", 1000, 1, committed=False) == Told(NONE, 1000, 2)  # the next one
    assert world.markers == []
    assert world.stored_states("app") == ["Empty", "PrepareAbort", "CompleteAbort", "PrepareAbort", "CompleteAbort"]


def test_the_older_protocol_has_nothing_to_end_without_partitions(world: TransactionWorld) -> None:
    world.init("app")
    for committed in (True, False):
        assert world.end("app", 1000, 0, committed=committed, old=True) == Told(WRONG)


def test_another_producer_takes_over_and_the_first_one_is_fenced(world: TransactionWorld) -> None:
    assert world.init("app") == Told(NONE, 1000, 0)
    assert world.init("app") == Told(NONE, 1000, 1)
    assert world.add("app", 1000, 0, "t-0") is FENCED
    assert world.end("app", 1000, 0, committed=True) == Told(FENCED)
    assert world.end("app", 1000, 0, committed=True, old=True) == Told(FENCED)
    assert world.init("app", 1000, 0) == Told(FENCED)
    assert world.add("app", 999, 1, "t-0") is ANOTHER_ID
    assert world.end("app", 999, 1, committed=True) == Told(ANOTHER_ID)
    assert world.end("app", 999, 1, committed=True, old=True) == Told(ANOTHER_ID)


def test_who_takes_over_aborts_what_is_open_with_an_epoch_that_nobody_gets(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    assert world.init("app") == Told(NONE, 1000, 2)
    assert world.markers == [Written("t-0", 1000, 1, committed=False)]
    assert world.stored_states("app") == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "Empty"]
    assert world.end("app", 1000, 0, committed=False) == Told(FENCED)


def test_who_takes_over_comes_again_if_the_abort_takes_a_while(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    (partition,) = (each for each in world.coordinator.describe("app").transaction.partitions)
    world.refusals[partition] = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.init("app") == Told(BUSY)
    assert world.init("app") == Told(BUSY)
    world.refusals.clear()
    world.clock.advance(1)
    assert world.init("app") == Told(NONE, 1000, 2)


def test_a_producer_that_lost_track_goes_on_with_its_own_id_and_epoch(world: TransactionWorld) -> None:
    """KIP-360: it is known by the epoch that it had, also when the answer that gave it a new one was lost."""
    world.init("app")
    assert world.init("app", 1000, 0) == Told(NONE, 1000, 1)
    assert world.init("app", 1000, 0) == Told(NONE, 1000, 1)
    assert world.init("app", 1000, 1) == Told(NONE, 1000, 2)
    assert world.init("app", 1000, 0) == Told(FENCED)
    assert world.init("app", 999, 2) == Told(FENCED)


def test_a_producer_that_lost_track_during_its_transaction_aborts_it(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    assert world.init("app", 1000, 0) == Told(NONE, 1000, 1)
    assert world.markers == [Written("t-0", 1000, 1, committed=False)]


def test_a_replaced_producer_cannot_abort_the_transaction_of_the_one_after_it(world: TransactionWorld) -> None:
    world.init("app")
    world.init("app")
    world.add("app", 1000, 1, "t-0")
    assert world.init("app", 1000, 0) == Told(FENCED)
    assert world.state("app") is TransactionState.ONGOING


def test_a_producer_whose_last_end_was_not_answered_goes_on(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.end("app", 1000, 0, committed=True)
    assert world.init("app", 1000, 0) == Told(NONE, 1000, 1)


def test_while_a_change_is_under_way_the_others_come_again(world: TransactionWorld) -> None:
    world.init("app")
    world.log.hold()
    added = world.ask_add("app", 1000, 0, "t-0")
    assert added.told is None
    assert world.add("app", 1000, 0, "t-1") is BUSY
    assert world.init("app") == Told(BUSY)
    assert world.end("app", 1000, 0, committed=True) == Told(BUSY)
    assert world.end("app", 1000, 0, committed=True, old=True) == Told(BUSY)
    world.log.release()
    assert added.told == Told(NONE)


def test_an_end_is_answered_when_its_markers_are_written(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.hold_markers()
    ended = world.ask_end("app", 1000, 0, committed=True)
    assert ended.told is None
    assert world.state("app") is TransactionState.PREPARE_COMMIT
    assert world.add("app", 1000, 1, "t-0") is BUSY
    assert world.end("app", 1000, 0, committed=True) == Told(BUSY)
    world.release_markers()
    assert ended.told == Told(NONE, 1000, 1)
    assert world.stored_states("app")[-1] == "CompleteCommit"


def test_a_partition_that_cannot_be_written_delays_the_end_but_not_the_answer(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0", "t-1")
    first, _ = sorted(world.coordinator.describe("app").transaction.partitions)
    world.refusals[first] = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.end("app", 1000, 0, committed=True) == Told(NONE, 1000, 1)
    assert world.state("app") is TransactionState.PREPARE_COMMIT
    world.clock.advance(3)
    assert world.markers == [Written("t-1", 1000, 1, committed=True)]
    assert world.add("app", 1000, 1, "t-2") is BUSY
    world.refusals.clear()
    world.clock.advance(1)
    assert world.markers == [Written("t-1", 1000, 1, committed=True), Written("t-0", 1000, 1, committed=True)]
    assert world.add("app", 1000, 1, "t-2") is NONE


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_partition_that_is_gone_or_refuses_for_good_counts_as_done(world: TransactionWorld, code: ErrorCode) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0", "t-1")
    first, _ = sorted(world.coordinator.describe("app").transaction.partitions)
    world.refusals[first] = code
    assert world.end("app", 1000, 0, committed=True) == Told(NONE, 1000, 1)
    assert world.state("app") is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_what_cannot_be_stored_has_not_happened(world: TransactionWorld, code: ErrorCode) -> None:
    world.log.fail(code)
    assert world.init("app") == Told(code)
    assert world.coordinator.statistics()["transactional_ids"] == 0
    assert world.init("app") == Told(NONE, 1001, 0)
    world.log.fail(code)
    assert world.add("app", 1001, 0, "t-0") is code
    assert world.add("app", 1001, 0, "t-0") is NONE
    world.log.fail(code)
    assert world.end("app", 1001, 0, committed=True) == Told(code)
    assert world.state("app") is TransactionState.ONGOING
    assert world.end("app", 1001, 0, committed=True) == Told(NONE, 1001, 1)


def test_a_value_that_is_too_large_is_not_the_clients_fault(world: TransactionWorld) -> None:
    world.init("app")
    world.log.fail(ErrorCode.MESSAGE_TOO_LARGE)
    assert world.add("app", 1000, 0, "t-0") is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_decision_is_completed_even_if_that_cannot_be_stored_at_once(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.hold_markers()
    ended = world.ask_end("app", 1000, 0, committed=True)
    world.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
    world.release_markers()
    assert ended.told == Told(NONE, 1000, 1)
    assert world.add("app", 1000, 1, "t-0") is BUSY
    world.clock.advance(1)
    assert world.add("app", 1000, 1, "t-0") is BUSY
    world.clock.advance(1)
    assert world.add("app", 1000, 1, "t-0") is NONE
    assert len(world.markers) == 1


def test_the_timeout_has_to_be_positive_and_below_the_limit(world: TransactionWorld) -> None:
    for timeout_ms in (0, -1, 900_001):
        assert world.init("app", timeout_ms=timeout_ms) == Told(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert world.init("app", timeout_ms=900_000) == Told(NONE, 1000, 0)


def test_an_empty_id_is_no_id(world: TransactionWorld) -> None:
    assert world.init("") == Told(ErrorCode.INVALID_REQUEST)
    assert world.add("", 0, 0, "t-0") is ErrorCode.INVALID_REQUEST
    assert world.end("", 0, 0, committed=True) == Told(ErrorCode.INVALID_REQUEST)


def test_an_id_that_is_not_known_has_no_producer(world: TransactionWorld) -> None:
    assert world.add("app", 1000, 0, "t-0") is ANOTHER_ID
    assert world.end("app", 1000, 0, committed=True) == Told(ANOTHER_ID)


def test_without_producer_ids_nobody_new_begins(world: TransactionWorld) -> None:
    world.producer_ids.exhausted = True
    assert world.init("app") == Told(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.producer_ids.exhausted = False
    assert world.init("app") == Told(NONE, 1000, 0)


def test_the_bounds_on_ids_and_partitions_are_told() -> None:
    world = TransactionWorld("transactional.ids.max=2", "transaction.partitions.max=2")
    assert [world.init(name) for name in ("a", "b", "c", "a")] == [
        Told(NONE, 1000, 0),
        Told(NONE, 1001, 0),
        Told(ErrorCode.POLICY_VIOLATION),
        Told(NONE, 1000, 1),
    ]
    assert world.add("a", 1000, 1, "t-0", "t-1") is NONE
    assert world.add("a", 1000, 1, "t-2") is ErrorCode.POLICY_VIOLATION
    assert world.add("b", 1001, 0, "t-0", "t-1", "t-2") is ErrorCode.POLICY_VIOLATION
    assert world.end("a", 1000, 1, committed=True) == Told(NONE, 1000, 2)


def test_more_than_fits_into_the_record_that_ends_a_transaction_is_refused() -> None:
    world = TransactionWorld("transaction.partitions.max=1000000")
    world.init("app")
    names = [f"{index:0240d}-0" for index in range(3000)]
    assert world.add("app", 1000, 0, *names) is NONE
    assert world.add("app", 1000, 0, *(f"x{index:0240d}-0" for index in range(1000))) is ErrorCode.POLICY_VIOLATION
    assert world.end("app", 1000, 0, committed=True) == Told(NONE, 1000, 1)


# The last epoch


def exhausted(world: TransactionWorld, epoch: int = LAST_EPOCH) -> None:
    """Let the producer of "app" have `epoch` of id 1000, which begins a transaction."""
    world.init("app")
    value = world.stored("app")[-1]
    assert value is not None
    world.put("app", value._replace(epoch=epoch))
    world.crash()


def test_when_the_epochs_are_used_up_the_end_hands_out_a_new_producer_id(world: TransactionWorld) -> None:
    exhausted(world)
    world.add("app", 1000, LAST_EPOCH, "t-0")
    assert world.end("app", 1000, LAST_EPOCH, committed=True) == Told(NONE, 1001, 0)
    assert world.markers == [Written("t-0", 1000, EPOCH_MAX, committed=True)]
    prepared, completed = world.stored("app")[-2:]
    assert prepared is not None
    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (1000, EPOCH_MAX, 1001)
    assert completed is not None
    assert (completed.producer_id, completed.epoch, completed.previous_producer_id, completed.next_producer_id) == (1001, 0, 1000, -1)
    assert world.end("app", 1000, LAST_EPOCH, committed=True) == Told(NONE, 1001, 0)  # its answer was lost
    assert world.end("app", 1000, LAST_EPOCH, committed=False) == Told(WRONG)
    assert world.end("app", 1000, LAST_EPOCH - 1, committed=True) == Told(ANOTHER_ID)
    assert world.init("app", 1000, LAST_EPOCH) == Told(NONE, 1001, 0)
    assert world.add("app", 1001, 0, "t-0") is NONE
    assert world.end("app", 1000, LAST_EPOCH, committed=True) == Told(ANOTHER_ID)


def test_when_the_epochs_are_used_up_who_begins_gets_a_new_producer_id(world: TransactionWorld) -> None:
    exhausted(world)
    assert world.init("app") == Told(NONE, 1001, 0)
    assert world.init("app", 1000, LAST_EPOCH) == Told(FENCED)


def test_when_the_epochs_are_used_up_who_goes_on_gets_a_new_producer_id(world: TransactionWorld) -> None:
    exhausted(world)
    assert world.init("app", 1000, LAST_EPOCH - 1) == Told(FENCED)
    assert world.init("app", 1000, LAST_EPOCH) == Told(NONE, 1001, 0)
    assert world.init("app", 1000, LAST_EPOCH) == Told(NONE, 1001, 0)  # its answer was lost
    assert world.init("app", 1001, 0) == Told(NONE, 1001, 1)


def test_when_the_epochs_are_used_up_who_takes_over_still_fences(world: TransactionWorld) -> None:
    exhausted(world)
    world.add("app", 1000, LAST_EPOCH, "t-0")
    assert world.init("app") == Told(NONE, 1001, 1)
    assert world.markers == [Written("t-0", 1000, EPOCH_MAX, committed=False)]
    assert world.end("app", 1000, LAST_EPOCH, committed=True) == Told(ANOTHER_ID)


def test_an_epoch_that_no_producer_can_have_is_replaced(world: TransactionWorld) -> None:
    """Kafka before 4.2 could leave one behind."""
    exhausted(world, EPOCH_MAX)
    assert world.end("app", 1000, EPOCH_MAX, committed=False) == Told(NONE, 1001, 0)


def test_without_a_new_producer_id_the_last_epoch_cannot_end_yet(world: TransactionWorld) -> None:
    exhausted(world)
    world.add("app", 1000, LAST_EPOCH, "t-0")
    world.producer_ids.exhausted = True
    assert world.end("app", 1000, LAST_EPOCH, committed=True) == Told(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.init("app") == Told(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.clock.advance(2 * MINUTE_MS / 1000)
    assert world.state("app") is TransactionState.ONGOING
    world.producer_ids.exhausted = False
    world.clock.advance(10)
    assert world.state("app") is TransactionState.COMPLETE_ABORT


def test_one_producer_makes_40_000_transactions() -> None:
    """Through the machine alone: every marker has an epoch of its own, and the producer id changes once."""
    told: list[Told] = []
    markers: set[tuple[int, int]] = set()
    machine = Machine(new_transaction(1000, MINUTE_MS, 0), Surroundings(itertools.count(1001).__next__, lambda: 1))

    def step(event: Event) -> None:
        for effect in machine.step(event, 1):
            match effect:
                case StoreTransaction():
                    step(TransactionStored())
                case WriteMarkers(transaction):
                    markers.add((transaction.producer_id, transaction.epoch))
                    step(MarkersWritten())
                case AnswerRequest(_, code, producer_id, epoch):
                    told.append(Told(code, producer_id, epoch))

    step(InitProducer(None, MINUTE_MS))
    _, producer_id, epoch = told[-1]
    for number in range(40_000):
        step(AddPartitions(None, producer_id, epoch, partitions("t-0"), EPOCH_PER_TRANSACTION))
        step(EndTransaction(None, producer_id, epoch, number % 3 > 0, EPOCH_PER_TRANSACTION))
        _, producer_id, epoch = told[-1]
    assert {each.code for each in told} == {NONE}
    assert (producer_id, epoch) == (1001, 40_000 - EPOCH_MAX)
    assert len(markers) == 40_000


def test_nothing_is_answered_too_early(world: TransactionWorld) -> None:
    """Every answer comes after the store it tells of."""
    world.log.hold()
    begun = world.ask_init("app")
    assert begun.told is None
    world.log.release()
    assert begun.told == Told(NONE, 1000, 0)
    world.log.hold()
    assert world.add("app", 1000, 0, "t-0") is NOT_YET
    world.log.release()
    world.log.hold()
    ended = world.ask_end("app", 1000, 0, committed=True)
    assert world.markers == []  # the decision is stored before its first marker
    world.log.release(1)
    assert len(world.markers) == 1
    assert ended.told is None
    world.log.release()
    assert ended.told == Told(NONE, 1000, 1)
