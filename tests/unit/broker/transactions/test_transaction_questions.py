"""What leaders ask before they append, and what people ask. Nothing of it changes anything, but that producing adds partitions."""

import itertools

import pytest

from moldau.broker.transactions.coordinator import Description
from moldau.broker.transactions.listing import ListingFilters, unknown_states
from moldau.broker.transactions.transaction import MOVES, TransactionState
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from support.state_logs import ListStateLog
from support.transactions import Told, TransactionWorld, Written, partitions

NONE = ErrorCode.NONE
Codes = dict[TopicPartition, ErrorCode]


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def verify(world: TransactionWorld, transactional_id: str, producer_id: int, epoch: int, *names: str) -> dict[str, ErrorCode]:
    told: list[Codes] = []
    world.coordinator.verify(transactional_id, producer_id, epoch, partitions(*names), told.append)
    for each, code in told[0].items():
        assert world.coordinator.is_verified(transactional_id, producer_id, epoch, each) is (code is NONE)
    return {str(each): code for each, code in told[0].items()}


def produce(world: TransactionWorld, transactional_id: str, producer_id: int, epoch: int, *names: str) -> list[Codes]:
    told: list[Codes] = []
    world.coordinator.add_partitions_for_produce(transactional_id, producer_id, epoch, partitions(*names), told.append)
    return told


def test_a_partition_is_verified_against_the_transaction(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0", old=True)
    assert verify(world, "app", 1000, 0, "t-0", "t-1") == {"t-0": NONE, "t-1": ErrorCode.TRANSACTION_ABORTABLE}
    assert verify(world, "app", 1000, 1, "t-0") == {"t-0": ErrorCode.INVALID_PRODUCER_EPOCH}
    assert verify(world, "app", 1001, 0, "t-0") == {"t-0": ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert verify(world, "other", 1000, 0, "t-0") == {"t-0": ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    world.end("app", 1000, 0, committed=True, old=True)
    assert verify(world, "app", 1000, 0, "t-0") == {"t-0": ErrorCode.TRANSACTION_ABORTABLE}


def test_a_partition_of_a_decided_transaction_is_not_verified(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0", old=True)
    world.hold_markers()
    world.end("app", 1000, 0, committed=True, old=True)
    assert verify(world, "app", 1000, 0, "t-0") == {"t-0": ErrorCode.CONCURRENT_TRANSACTIONS}


def test_nothing_is_verified_where_that_is_turned_off(world: TransactionWorld) -> None:
    world = TransactionWorld("transaction.partition.verification.enable=false")
    assert verify(world, "app", 1000, 0, "t-0") == {"t-0": NONE}


def test_producing_adds_the_partition(world: TransactionWorld) -> None:
    world.init("app")
    assert produce(world, "app", 1000, 0, "t-0", "t-1") == [dict.fromkeys(partitions("t-0", "t-1"), NONE)]
    assert produce(world, "app", 1000, 7, "t-0") == [dict.fromkeys(partitions("t-0"), ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert world.end("app", 1000, 0, committed=True) == Told(NONE, 1000, 1)
    assert len(world.markers) == 2


def test_producing_waits_a_moment_for_the_transaction_before(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.hold_markers()
    world.end("app", 1000, 0, committed=True)
    told = produce(world, "app", 1000, 1, "t-0")
    world.clock.advance(0.05)
    assert told == []
    world.release_markers()
    world.clock.advance(0.02)
    assert told == [dict.fromkeys(partitions("t-0"), NONE)]


def test_producing_does_not_wait_for_long(world: TransactionWorld) -> None:
    world.init("app")
    world.add("app", 1000, 0, "t-0")
    world.hold_markers()
    world.end("app", 1000, 0, committed=True)
    told = produce(world, "app", 1000, 1, "t-0")
    world.clock.advance(0.1)
    assert told == [dict.fromkeys(partitions("t-0"), ErrorCode.CONCURRENT_TRANSACTIONS)]


def test_an_id_is_described(world: TransactionWorld) -> None:
    world.init("app", timeout_ms=5000)
    now_ms = world.clock.time_ms()
    world.add("app", 1000, 0, "t-0")
    state, transaction = world.coordinator.describe("app")
    assert (state.label, transaction.start_ms, transaction.timeout_ms, transaction.partitions) == (
        "Ongoing",
        now_ms,
        5000,
        partitions("t-0"),
    )
    assert isinstance(world.coordinator.describe("app"), Description)
    for name, code in (("", ErrorCode.INVALID_REQUEST), ("other", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)):
        with pytest.raises(PeerError) as refused:
            world.coordinator.describe(name)
        assert refused.value.code is code


def test_ids_are_listed_by_state_producer_age_and_name(world: TransactionWorld) -> None:
    for name in ("a-1", "a-2", "b-1"):
        world.init(name)
    world.add("a-1", 1000, 0, "t-0")
    world.clock.advance(5)
    world.add("b-1", 1002, 0, "t-0")

    def names(**filters: object) -> set[str]:
        return {each.transactional_id for each in world.coordinator.listed(ListingFilters(**filters)) if each is not None}  # type: ignore[arg-type]

    assert names() == {"a-1", "a-2", "b-1"}
    assert names(states=["Ongoing"]) == {"a-1", "b-1"}
    assert names(states=["Ongoing", "nonsense"]) == {"a-1", "b-1"}
    assert names(states=["nonsense"]) == set()
    assert names(producer_ids=[1001, 1002]) == {"a-2", "b-1"}
    assert names(states=["Ongoing"], longer_than_ms=4000) == {"a-1"}
    assert names(pattern="a-.*") == {"a-1", "a-2"}
    assert names(pattern="a") == set()  # as a whole
    assert names(pattern="") == {"a-1", "a-2", "b-1"}
    with pytest.raises(PeerError) as refused:
        names(pattern="(")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert unknown_states(["Ongoing", "nonsense"]) == ["nonsense"]


def test_an_id_that_is_not_stored_yet_is_not_known(world: TransactionWorld) -> None:
    world.log.hold()
    world.ask_init("app")
    assert not any(world.coordinator.listed(ListingFilters()))
    with pytest.raises(PeerError, match="not known"):
        world.coordinator.describe("app")
    world.log.release()
    assert [each.state for each in world.coordinator.listed(ListingFilters()) if each is not None] == ["Empty"]


def test_nothing_is_listed_before_all_is_read() -> None:
    world = TransactionWorld()
    world.log = ListStateLog(3, clock=world.clock)
    world.start()
    with pytest.raises(PeerError) as refused:
        world.coordinator.listed(ListingFilters())
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_the_legal_moves_are_those_that_happen(world: TransactionWorld) -> None:
    """Every stored step is one of the table, over a walk that takes most of them."""
    world.init("app")
    world.init("app")
    for epoch, names, committed in ((1, ("t-0",), True), (2, ("t-0", "t-1"), False), (3, (), False), (4, ("t-2",), True)):
        for name in names:
            world.add("app", 1000, epoch, name)
        world.end("app", 1000, epoch, committed=committed)
    world.add("app", 1000, 5, "t-0")
    world.init("app")
    states = [each.state for each in world.stored("app") if each is not None]
    assert len(states) == 18
    for before, after in itertools.pairwise(states):
        assert after in MOVES[before]
    assert MOVES[TransactionState.DEAD] == frozenset()
    assert world.markers[-1] == Written("t-0", 1000, 6, committed=False)
