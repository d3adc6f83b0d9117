"""All groups together take no more memory than two settings allow. At the bound those who are there go on, and what is on disk above it is
kept and not served, with a line that says what to do."""

import gc
import tracemalloc
from collections.abc import Callable
from unittest.mock import patch

import pytest

from moldau.broker.admission.state import Account, Budget
from moldau.broker.coordinators.state_log import LoadedBatch, TransactionalProducer
from moldau.broker.groups.group import Group, GroupMemory
from moldau.broker.groups.offsets import NO_TOPIC_ID, CommittedOffset, GroupOffsets
from moldau.broker.groups.partition import GroupPartition
from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.records import group_key, group_value, offset_key, offset_value
from moldau.broker.groups.states import GroupSnapshot, MemberState
from moldau.model.errors import ErrorCode
from moldau.model.steps import drain
from support.budgets import check_group_budgets
from support.coordinated_groups import EPOCH, Coordinated
from support.memberships import GroupTable, subscription

TEXT = "x" * 4000


def measured(make: Callable[[], object]) -> tuple[int, object]:
    """Bytes that what `make` gives takes."""
    gc.collect()  # it empties the free lists, too: what comes from them is not traced
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        return tracemalloc.get_traced_memory()[0] - before, made
    finally:
        tracemalloc.stop()


def offsets_of(partitions: int, topics: int, metadata: str) -> tuple[int, int]:
    """Bytes that offsets take, and bytes that are counted."""
    budget = Budget.unlimited()

    def make() -> GroupOffsets:
        offsets = GroupOffsets(Account(budget))
        for topic in names:
            for partition in range(partitions):
                number = 10**9 + partition
                text = metadata and f"{metadata}{partition}"
                offsets.put(topic, partition, CommittedOffset(number, 0, text, number + 1, -1, NO_TOPIC_ID, number + 2))
        return offsets

    names = [f"topic-{index}" for index in range(topics)]
    return measured(make)[0], budget.held


@pytest.mark.parametrize(("partitions", "topics", "metadata"), [(2000, 1, ""), (1, 2000, ""), (200, 10, "some text"), (50, 1, TEXT)])
def test_what_is_counted_of_offsets_is_what_they_take(partitions: int, topics: int, metadata: str) -> None:
    taken, counted = offsets_of(partitions, topics, metadata)
    assert 0.85 * taken <= counted <= 1.3 * taken


@pytest.mark.parametrize(
    ("transactions", "partitions", "distinct"),
    [(1, 10_000, True), (50, 200, True), (500, 10, True), (2, 5_000, False), (25, 400, False)],
)
def test_what_is_counted_of_pending_offsets_is_what_they_take(transactions: int, partitions: int, distinct: bool) -> None:
    """With the index of who waits for a place: several transactions may wait for the same places, or each for its own."""
    budget = Budget.unlimited()

    def make() -> GroupOffsets:
        offsets = GroupOffsets(Account(budget))
        for transaction in range(10**6, 10**6 + transactions):
            topic = f"topic-{transaction if distinct else 0}"
            for partition in range(1000, 1000 + partitions):
                number = 10**9 + partition
                offset = CommittedOffset(number, 0, "", number + 1, -1, NO_TOPIC_ID, number + 2)
                offsets.put_pending(transaction, [(topic, partition, offset)])
        return offsets

    taken, _ = measured(make)
    assert 0.8 * taken <= budget.held <= 1.4 * taken


@pytest.mark.parametrize(("protocols", "size"), [(1, 100), (3, 50), (500, 1), (1, 100_000)])
def test_members_take_no_more_than_is_counted(protocols: int, size: int) -> None:
    """Without the requests of theirs that wait, for which there is something in `MEMBER_COST`."""
    budget = Budget.unlimited()

    def make() -> GroupTable:
        table = GroupTable()
        table.group.roster.account = Account(budget)
        for index in range(50):
            sent = {f"protocol-{each}": bytes(size) + b"%d" % index for each in range(protocols)}
            table.join(f"member-{index}", protocols=sent, kind="connect", version=3)
        return table

    taken, table = measured(make)
    assert isinstance(table, GroupTable)
    assert len(table.group.roster) == 50
    assert 0.35 * budget.held <= taken <= 1.1 * budget.held


def test_groups_without_members_take_what_is_counted() -> None:
    memory = GroupMemory(Budget.unlimited(), Budget.unlimited())
    names = [f"group-{index}" for index in range(2000)]
    taken, _ = measured(lambda: {name: Group(name, None, memory) for name in names})  # type: ignore[arg-type]
    assert 0.7 * taken <= memory.groups.held <= 1.5 * taken


def test_new_offsets_are_refused_at_the_bound_and_those_that_are_there_go_on() -> None:
    """Issue: 2,500 groups of 200 partitions with 4 KB of text took 2.05 GB."""
    one = Coordinated(offsets_memory_max_bytes=100_000).lead()
    assert one.commit("healthy", 1, metadata="at 17:04") is ErrorCode.NONE
    codes = [one.commit(f"g{index}", 1, metadata=TEXT) for index in range(100)]
    assert codes.count(ErrorCode.NONE) == 19
    assert set(codes[19:]) == {ErrorCode.POLICY_VIOLATION}
    assert one.groups.memory.offsets.held <= 100_000
    assert one.commit("healthy", 2, metadata="at 17:05") is ErrorCode.NONE
    assert one.commit("healthy", 3, TransactionalProducer(7, 0), metadata="at 17:06") is ErrorCode.NONE
    assert one.commit("healthy", 1, partition=1) is ErrorCode.NONE, "a tenth of the limit is for groups that are there"
    assert one.offset("healthy") == 2
    check_group_budgets(one.groups)
    assert one.groups.statistics()["offsets_memory_refused"] == 81


def test_what_is_deleted_makes_room() -> None:
    one = Coordinated(offsets_memory_max_bytes=100_000).lead()
    for index in range(19):
        assert one.commit(f"g{index}", 1, metadata=TEXT) is ErrorCode.NONE
    assert one.commit("h", 1, metadata=TEXT) is ErrorCode.POLICY_VIOLATION
    group = one.groups.group_for("g0")
    assert group is not None
    drain(one.groups.delete(group, lambda _: None))
    assert one.commit("h", 1, metadata=TEXT) is ErrorCode.NONE
    drain(one.forget_topics(["t"]))
    assert one.groups.memory.offsets.held == 0
    check_group_budgets(one.groups)


def test_groups_that_are_deleted_in_a_transaction_are_not_kept_for_its_end() -> None:
    one = Coordinated().lead()
    for index in range(10):
        one.commit(f"g{index}", 1, TransactionalProducer(7, 0))
        group = one.groups.group_for(f"g{index}")
        assert group is not None
        drain(one.groups.delete(group, lambda _: None))
    assert one.groups.memory.offsets.held == one.groups.memory.groups.held == 0
    assert not any(partition._waiting for partition in one.groups.partitions())


def test_groups_are_bounded_by_what_they_take() -> None:
    one = Coordinated(groups_memory_max_bytes=100_000).lead()
    codes = [one.commit(f"{index:04}" * 1000, 1) for index in range(100)]
    assert codes.count(ErrorCode.NONE) == 20
    assert codes[-1] is ErrorCode.POLICY_VIOLATION
    assert one.commit("0000" * 1000, 2) is ErrorCode.NONE


def with_budget(limit: int) -> tuple[GroupTable, Budget]:
    budget = Budget("groups.memory.max.bytes", lambda: limit, lambda: 0.0)
    table = GroupTable()
    table.group.roster.account = Account(budget)
    return table, budget


def test_members_are_refused_at_the_bound_over_all_groups_and_others_rebalance() -> None:
    table, budget = with_budget(100_000)
    members = table.stable("a", "b")
    other = GroupTable()
    other.group.roster.account = Account(budget)
    other.join("greedy", protocols={"range": bytes(80_000)})
    other.join("one more", protocols={"range": bytes(20_000)})
    assert other.joined("one more").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    budget.held = 100_000  # nothing is left
    for _ in range(3):
        for token in members:
            table.join(token, members[token])
        for token in members:
            table.joined(token)
            table.answers.pop(token, None)
        table.hand_out(members)
    table.join("c")
    assert table.joined("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_assignment_that_has_no_room_fails_its_generation_alone() -> None:
    table, budget = with_budget(100_000)
    table.join("a")
    member_id = table.joined("a").member_id
    table.sync("s", member_id, assignments={member_id: bytes(100_000)})
    assert table.synced("s").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert budget.held < 10_000


def test_a_subscription_to_very_many_topics_is_not_read() -> None:
    table = GroupTable(Limits(0, 10, 1 << 30))
    table.join("a", protocols={"range": subscription(*(f"t{index}" for index in range(20_001)))})
    assert table.joined("a").error is ErrorCode.NONE
    assert table.group.topics is None
    assert table.group.subscribed_to("any"), "so nothing that it has committed expires"


# What is on disk above the bound


def committed(index: int, metadata: str) -> tuple[bytes, bytes]:
    return offset_key("g", "t", index), offset_value(CommittedOffset(index, -1, metadata, 0, -1, NO_TOPIC_ID, 0))


def test_what_does_not_fit_is_kept_and_served_when_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    one = Coordinated(offsets_memory_max_bytes=100_000)
    one.write("g", *(committed(index, TEXT) for index in range(30)))
    one.lead()
    assert one.refusal("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert one.groups.memory.offsets.held == one.groups.memory.groups.held == 0
    assert one.groups.statistics()["group_partitions_too_large"] == 1
    (line,) = [line for line in caplog.messages if "not loaded" in line]
    assert "offsets.memory.max.bytes is 100000 bytes" in line
    assert "raise the setting" in line
    one.config.set_dynamic(own={}, cluster={"offsets.memory.max.bytes": "200000"})
    one.groups.load_refused()
    one.clock.settle()
    assert one.offset("g", 29) == 29
    check_group_budgets(one.groups)


def test_clients_cannot_take_the_room_of_what_is_being_read() -> None:
    """Groups of one partition fill up while another is read: what that one had acknowledged is served."""
    one = Coordinated(offsets_memory_max_bytes=100_000)
    names = {one.log.partition_for(name): name for name in (f"g{index}" for index in range(50))}
    slow, fast = names[0], names[1]
    for index in range(22):
        one.write(slow, (offset_key(slow, "t", index), committed(index, TEXT)[1]))
    one.groups.become_coordinator(1, EPOCH)
    one.clock.settle()
    one.groups.become_coordinator(0, EPOCH)
    codes = [one.commit(fast, 1, partition=index, metadata=TEXT) for index in range(30)]
    assert codes.count(ErrorCode.NONE) == 2
    one.clock.settle()
    assert one.offset(slow, 21) == 21
    assert one.commit(fast, 2, partition=0, metadata=TEXT) is ErrorCode.NONE
    check_group_budgets(one.groups)


def test_reading_stops_at_twice_the_bound() -> None:
    one = Coordinated(offsets_memory_max_bytes=100_000)
    peak = 0
    for index in range(500):
        one.write("g", committed(index, TEXT))
    replay = GroupPartition.replay

    def watched(partition: GroupPartition, batch: LoadedBatch) -> None:
        nonlocal peak
        peak = max(peak, one.groups.memory.offsets.held)
        replay(partition, batch)

    with patch.object(GroupPartition, "replay", watched):
        one.lead()
    assert one.refusal("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert peak <= 210_000


def test_what_was_deleted_since_may_be_read_above_the_bound() -> None:
    one = Coordinated(offsets_memory_max_bytes=100_000)
    one.write("g", *(committed(index, TEXT) for index in range(40)))
    one.write("g", *((committed(index, "")[0], None) for index in range(1, 40)))
    one.lead()
    assert one.offset("g", 0) == 0


def test_stored_members_count_while_they_are_read_and_after() -> None:
    members = tuple(MemberState(f"m-{index}", None, "c", "/h", 60_000, 10_000, bytes(10_000), bytes(100)) for index in range(20))
    one = Coordinated(groups_memory_max_bytes=100_000)
    one.write("g", (group_key("g"), group_value(GroupSnapshot("consumer", 4, "range", "m-1", 1, members))))
    one.lead()
    assert one.refusal("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    other = Coordinated(one.log, groups_memory_max_bytes=300_000).lead()
    assert other.refusal("g") is ErrorCode.NONE
    check_group_budgets(other.groups)
    other.groups.close()
    assert other.groups.memory.groups.held == 0
