"""Groups are read back from their partition, also past records that nobody understands, and change hands with it."""

import struct
from functools import partial
from itertools import islice, pairwise

import pytest

from moldau.broker.admission.slices import TURN_S
from moldau.broker.coordinators.state_log import KeyValue, TransactionalProducer
from moldau.broker.groups.deletion import OFFSETS_AT_ONCE, PENDING_AT_ONCE
from moldau.broker.groups.group import Group
from moldau.broker.groups.offsets import NO_TOPIC_ID, PENDING_COST, TRANSACTION_COST, Commit
from moldau.broker.groups.records import group_key, group_value, offset_key
from moldau.broker.groups.states import GroupSnapshot, Join, JoinResult, MemberState
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps, Suspension, drain
from support.budgets import check_group_budgets
from support.coordinated_groups import EPOCH, Coordinated, committed
from support.memberships import RANGE, subscription
from support.turns import slow_down

PRODUCER = TransactionalProducer(7, 0)
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
NOT_HERE = ErrorCode.NOT_COORDINATOR
MEMBER = MemberState("m-1", None, "client", "/host", 60_000, 10_000, subscription("t"), b"all")
STABLE = GroupSnapshot("consumer", 4, "range", "m-1", 1, (MEMBER,))


def test_a_group_is_looked_after_by_who_leads_its_partition_and_has_read_it() -> None:
    one = Coordinated()
    assert one.refusal("g") is ErrorCode.NOT_COORDINATOR
    one.groups.become_coordinator(one.log.partition_for("g"), EPOCH)
    assert one.refusal("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    one.clock.settle()
    assert one.offset("g") is None
    assert one.commit("g", 5) is ErrorCode.NONE
    assert one.offset("g") == 5
    assert one.refusal("") is ErrorCode.INVALID_GROUP_ID
    one.groups.resign(one.log.partition_for("g"))
    assert one.refusal("g") is ErrorCode.NOT_COORDINATOR


def test_another_coordinator_goes_on_where_the_first_stopped() -> None:
    first = Coordinated().lead()
    first.commit("g", 5)
    first.commit("h", 1)
    first.commit("g", 6)
    first.commit("g", 9, PRODUCER)
    first.groups.close()
    second = Coordinated(first.log).lead()
    assert (second.offset("g"), second.offset("h")) == (6, 1)
    drain(second.groups.transaction_ended(second.log.partition_for("g"), 7, committed=True))
    assert second.offset("g") == 9


def test_orders_go_on_too() -> None:
    """A commit after a restart is later than one before it, also for a transaction that ends afterwards."""
    first = Coordinated().lead()
    for offset in range(5):
        first.commit("g", offset)
    first.commit("g", 100, PRODUCER)
    second = Coordinated(first.log).lead()
    second.commit("g", 6)
    drain(second.groups.transaction_ended(second.log.partition_for("g"), 7, committed=True))
    assert second.offset("g") == 6


@pytest.mark.parametrize("committed_", [True, False])
def test_a_transaction_that_ends_while_its_partition_is_read_has_ended_then(committed_: bool) -> None:
    one = Coordinated()
    one.write("g", committed("g", 5))
    one.write("g", committed("g", 9), producer=PRODUCER)
    partition = one.log.partition_for("g")
    one.groups.become_coordinator(partition, EPOCH)
    drain(one.groups.transaction_ended(partition, 7, committed=committed_))
    one.clock.settle()
    assert one.offset("g") == (9 if committed_ else 5)


def test_a_topic_that_is_deleted_while_a_partition_is_read_is_forgotten_then() -> None:
    one = Coordinated()
    one.write("g", committed("g", 5))
    one.groups.become_coordinator(one.log.partition_for("g"), EPOCH)
    drain(one.forget_topics(["t"]))
    one.clock.settle()
    assert one.offset("g") is None
    assert one.log.newest(one.log.partition_for("g")) == {}


@pytest.mark.parametrize("resigns", [False, True])
def test_what_came_while_a_partition_was_read_is_done_in_turns_before_its_groups_are_served(resigns: bool) -> None:
    """100,000 offsets of a topic that was deleted meanwhile took a turn of 0.6 s."""
    first = Coordinated().lead()
    commit_many(first, "t", range(30 * OFFSETS_AT_ONCE))
    commit_many(first, "other", range(30 * OFFSETS_AT_ONCE), PRODUCER)
    first.commit("g", 7, producer=PRODUCER)
    one = Coordinated(first.log)
    partition = one.log.partition_for("g")
    one.groups.become_coordinator(partition, EPOCH)
    drain(one.forget_topics(["t"]))
    slow_down(one.clock)
    left: list[int] = []
    turns = 0
    while one.refusal("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        left.append(len(one.log.newest(partition)))
        one.clock.settle()
        turns += 1
        if turns == 2:
            drain(one.groups.transaction_ended(partition, PRODUCER.producer_id, committed=True))
            if resigns:
                one.groups.resign(partition)
    if resigns:
        one.clock.advance(1)
        assert len(one.log.newest(partition)) > 30 * OFFSETS_AT_ONCE, "the rest is for the next coordinator"
        return
    assert all(before - after <= 12 * OFFSETS_AT_ONCE for before, after in pairwise(left))
    assert turns >= 8
    group = one.groups.group_for("g")
    assert group is not None
    assert set(group.offsets.each_place()) == {("other", index) for index in range(30 * OFFSETS_AT_ONCE)}
    assert len(group.offsets) == 30 * OFFSETS_AT_ONCE
    assert one.commit("g", 8) is ErrorCode.NONE


def test_a_bug_in_what_came_while_a_partition_was_read_has_it_not_served(caplog: pytest.LogCaptureFixture) -> None:
    def bug() -> Steps:
        yield UNFINISHED
        yield UNFINISHED
        raise ValueError("a bug")

    one = Coordinated()
    one.write("g", committed("g", 5))
    partition = one.log.partition_for("g")
    one.groups.become_coordinator(partition, EPOCH)
    (coordinator,) = one.groups.runtime.coordinators()
    drain(coordinator.state.when_loaded(bug))
    slow_down(one.clock, TURN_S)
    one.clock.advance(1)
    assert one.refusal("g") is ErrorCode.NOT_COORDINATOR
    assert "a bug, see the log" in caplog.text


def test_a_transaction_that_was_marked_has_ended_when_it_is_read_again() -> None:
    one = Coordinated()
    partition = one.log.partition_for("g")
    one.write("g", committed("g", 5), producer=PRODUCER)
    one.log.mark(partition, PRODUCER, committed=True)
    one.write("g", committed("g", 8), producer=PRODUCER)
    one.log.mark(partition, PRODUCER, committed=False)
    one.lead()
    assert one.offset("g") == 5
    group = one.groups.group_for("g")
    assert group is not None
    assert group.offsets.pending == {}


def test_members_are_read_with_their_generation_and_an_emptied_group_is_gone() -> None:
    one = Coordinated()
    one.write("g", (group_key("g"), group_value(STABLE)))
    one.write("gone", (group_key("gone"), group_value(STABLE)), (group_key("gone"), None))
    one.write("removed", committed("removed", 1), (offset_key("removed", "t", 0), None))
    one.lead()
    group = one.groups.group_for("g")
    assert group is not None
    assert group.check_commit("m-1", None, 4) is ErrorCode.NONE
    assert group.check_commit("m-1", None, 5) is ErrorCode.ILLEGAL_GENERATION
    assert one.groups.group_for("gone") is None
    assert one.groups.group_for("removed") is None


DAMAGED: list[KeyValue] = [
    (b"", b""),
    (b"\0\1\0\1g", b""),
    (offset_key("g", "t", 1), b"\0\x63"),
    (offset_key("g", "t", 2), b""),
    (offset_key("g", "t", 2)[:-1], b""),
    (offset_key("g", "t", 2) + b"x", b""),
    (group_key("g"), b"\0\3\0"),
    (group_key("g")[:-1], None),
]


def test_records_that_nobody_understands_are_left_out_with_a_line_each_and_the_rest_is_read(caplog: pytest.LogCaptureFixture) -> None:
    one = Coordinated()
    one.write("g", committed("g", 1), (group_key("g"), group_value(STABLE)))
    for record in DAMAGED:
        one.write("g", record)
    one.write("g", committed("g", 2))
    one.lead()
    assert one.offset("g") == 2
    group = one.groups.group_for("g")
    assert group is not None
    assert group.check_commit("m-1", None, 4) is ErrorCode.NONE
    partition = one.log.partition_for("g")
    lines = [line for line in caplog.messages if line.startswith("record of an internal topic left out")]
    assert [line.split()[7:9] for line in lines] == [
        [f"partition=__consumer_offsets-{partition}", f"offset={2 + number}"] for number in range(len(DAMAGED))
    ]


def test_records_of_newer_kinds_of_groups_are_left_alone_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    one = Coordinated()
    records: list[KeyValue] = [(struct.pack(">h", version) + b"\0\1g", b"\0\0") for version in (3, 5, 5, 14)]
    one.write("g", *records, committed("g", 3))
    one.lead()
    assert one.offset("g") == 3
    (line,) = [message for message in caplog.messages if "left alone" in message]
    assert "{3: 1, 5: 2, 14: 1}" in line
    assert len(one.log.records(one.log.partition_for("g"))) == 5


def test_a_partition_that_cannot_be_read_is_not_coordinated(caplog: pytest.LogCaptureFixture) -> None:
    one = Coordinated()
    one.log.load_failure = PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is broken")
    one.lead()
    assert one.refusal("g") is ErrorCode.NOT_COORDINATOR
    assert "the disk is broken" in caplog.text


def test_who_resigns_while_reading_and_leads_again_reads_again() -> None:
    one = Coordinated()
    one.write("g", committed("g", 1))
    partition = one.log.partition_for("g")
    one.groups.become_coordinator(partition, EPOCH)
    one.groups.resign(partition)
    one.write("g", committed("g", 2))
    one.groups.become_coordinator(partition, EPOCH)
    one.groups.become_coordinator(partition, EPOCH)
    one.clock.settle()
    assert one.offset("g") == 2
    one.groups.resign(partition + 1)


def test_members_that_wait_are_told_when_their_group_moves() -> None:
    one = Coordinated().lead()
    one.write("g", (group_key("g"), group_value(STABLE)))
    one.groups.resign(one.log.partition_for("g"))
    one.lead()
    group = one.groups.group_for("g")
    assert group is not None
    answers: list[JoinResult] = []
    join = Join(answers.append, "", None, "c", "/h", 10_000, 60_000, "consumer", RANGE, "m-2", False, False, "none")
    one.groups.start_membership(group, "a test")
    one.groups.take(group, join)
    assert answers == []
    one.groups.resign(group.coordinator.partition)
    assert [answer.error for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    assert len(one.groups.runtime.deadlines) == 0


def test_a_commit_that_is_not_stored_changes_nothing() -> None:
    one = Coordinated().lead()
    one.commit("g", 1)
    for producer in (None, PRODUCER):
        one.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert one.commit("g", 2, producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    drain(one.groups.transaction_ended(one.log.partition_for("g"), 7, committed=True))
    assert one.offset("g") == 1


def held(one: Coordinated, offset: int, producer: TransactionalProducer | None = None) -> list[PeerError | None]:
    """Commit an offset of "g" while the log holds its answers; what the commit is answered, later."""
    group = one.groups.group_for("g", create=True)
    assert group is not None
    outcomes: list[PeerError | None] = []
    one.groups.commit(group, [Commit("t", 0, offset, -1, "text", NO_TOPIC_ID)], outcomes.append, producer=producer)
    return outcomes


def test_a_commit_whose_append_waits_is_not_shown() -> None:
    one = Coordinated().lead()
    one.commit("g", 1)
    one.log.hold()
    outcomes = held(one, 5)
    assert (one.offset("g"), outcomes) == (1, [])
    one.log.release()
    assert (one.offset("g"), outcomes) == (5, [None])
    check_group_budgets(one.groups)


def test_a_commit_that_waits_holds_its_memory_and_gives_it_back_when_it_is_lost() -> None:
    one = Coordinated(offsets_memory_max_bytes=2000).lead()
    one.log.hold()
    waiting = [held(one, 5), held(one, 6), held(one, 7)]
    assert [error and error.code for error in held(one, 8)] == [ErrorCode.POLICY_VIOLATION]
    before = one.groups.memory.offsets.held
    one.log.answer_held(0, PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is lost"))
    assert [[error and error.code for error in each] for each in waiting] == [[ErrorCode.COORDINATOR_NOT_AVAILABLE], *[[NOT_HERE]] * 2]
    assert before > 0
    assert one.groups.memory.offsets.held == one.groups.memory.groups.held == 0


def test_a_marker_takes_effect_after_the_commits_before_it_and_before_those_after_it() -> None:
    one = Coordinated().lead()
    one.log.hold()
    held(one, 5, PRODUCER)
    ended: list[Exception | None] = []
    marker = one.groups.transaction_ended(one.log.partition_for("g"), 7, committed=True)
    one.groups.runtime.run_steps(marker, ended.append, droppable=False)
    held(one, 9, PRODUCER)
    assert (one.offset("g"), ended) == (None, [])
    one.log.release()
    one.clock.settle()
    assert (one.offset("g"), ended) == (5, [None])
    assert one.is_pending("g"), "by the next transaction of the producer"
    check_group_budgets(one.groups)


def test_a_marker_that_waits_ends_when_its_coordinator_resigns() -> None:
    one = Coordinated().lead()
    one.log.hold()
    held(one, 5, PRODUCER)
    ended: list[Exception | None] = []
    partition = one.log.partition_for("g")
    one.groups.runtime.run_steps(one.groups.transaction_ended(partition, 7, committed=True), ended.append, droppable=False)
    one.groups.resign(partition)
    one.clock.settle()
    assert ended == [None]


@pytest.mark.parametrize("producer", [None, PRODUCER])
def test_a_group_is_deleted_with_the_commits_that_wait(producer: TransactionalProducer | None) -> None:
    """Otherwise a tombstone would miss the offset, and it would be there after a restart."""
    one = Coordinated().lead()
    one.commit("g", 1)
    one.log.hold()
    held(one, 5, producer)
    group = one.groups.group_for("g")
    assert group is not None
    outcomes: list[PeerError | None] = []
    one.groups.runtime.run_steps(one.groups.delete(group, outcomes.append), lambda _: None, droppable=False)
    assert one.refusal("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    one.log.release()
    one.clock.settle()
    assert outcomes == [None]
    assert one.groups.group_for("g") is None
    assert one.log.newest(group.coordinator.partition) == {}
    assert one.groups.memory.offsets.held == one.groups.memory.groups.held == 0


def test_what_is_being_committed_to_does_not_expire() -> None:
    one = Coordinated(offsets_retention_minutes=1, offsets_retention_check_interval_ms=100_000).lead()
    one.commit("g", 1)
    one.log.hold()
    one.clock.advance(99)
    outcomes = held(one, 5)
    one.clock.advance(2)
    one.log.release()
    assert (one.offset("g"), outcomes) == (5, [None])
    one.clock.advance(100)
    assert one.groups.group_for("g") is None


def test_a_group_of_many_offsets_is_deleted_in_steps() -> None:
    """Meanwhile no request can add to it. When an append fails, the group is there again with what is left."""
    one = Coordinated().lead()
    group = one.groups.group_for("g", create=True)
    assert group is not None
    one.groups.commit(group, [Commit("t", index, 1, -1, "", NO_TOPIC_ID) for index in range(5 * OFFSETS_AT_ONCE)], lambda _: None)
    one.groups.commit(group, [Commit("u", index, 1, -1, "", NO_TOPIC_ID) for index in range(50)], lambda _: None, producer=PRODUCER)
    outcomes: list[PeerError | None] = []
    steps = one.groups.delete(group, outcomes.append)
    assert [next(steps), next(steps)] == [UNFINISHED, UNFINISHED]
    assert (len(group.offsets), outcomes) == (3 * OFFSETS_AT_ONCE, [])
    assert one.refusal("g") is one.commit("g", 7) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    one.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    drain(steps)
    assert [error and error.code for error in outcomes] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert one.groups.group_for("g") is group
    assert len(group.offsets) == 3 * OFFSETS_AT_ONCE

    steps = one.groups.delete(group, outcomes.append)
    next(steps)
    drain(one.groups.transaction_ended(group.coordinator.partition, PRODUCER.producer_id, committed=True))
    drain(steps)
    assert outcomes[1:] == [None]
    assert one.groups.group_for("g") is None
    assert one.log.newest(group.coordinator.partition) == {}


def forgetting(one: Coordinated, topic: str, steps: int) -> Steps:
    """The removal of what is committed in a topic, after so many of its steps."""
    removal = one.forget_topics([topic])
    for _ in range(steps):
        next(removal, None)
    return removal


def commit_many(one: Coordinated, topic: str, partitions: range, producer: TransactionalProducer | None = None) -> Group:
    """Commit in many partitions; the group "g"."""
    group = one.groups.group_for("g", create=True)
    assert group is not None
    one.groups.commit(group, [Commit(topic, index, 1, -1, "", NO_TOPIC_ID) for index in partitions], lambda _: None, producer=producer)
    return group


@pytest.mark.parametrize("committed_", [True, False])
@pytest.mark.parametrize("plainly", [0, OFFSETS_AT_ONCE])
@pytest.mark.parametrize("steps", range(8))
def test_offsets_of_a_deleted_topic_go_also_when_a_transaction_ends_between_two_steps(steps: int, plainly: int, committed_: bool) -> None:
    """They moved to where the removal had been already, and stayed."""
    one = Coordinated().lead()
    group = commit_many(one, "other", range(250))
    if plainly:
        commit_many(one, "t", range(plainly))
    commit_many(one, "t", range(plainly, 250), PRODUCER)
    removal = forgetting(one, "t", steps)
    one.log.mark(group.coordinator.partition, PRODUCER, committed=committed_)
    drain(one.groups.transaction_ended(group.coordinator.partition, PRODUCER.producer_id, committed=committed_))
    drain(removal)
    assert set(group.offsets.each_place()) == {("other", index) for index in range(250)}
    read = Coordinated(one.log).lead().groups.group_for("g")
    assert read is not None
    assert set(read.offsets.each_place()) == {("other", index) for index in range(250)}


def test_they_go_also_while_the_transaction_is_being_ended() -> None:
    """In steps, too, which come between those of the removal."""
    one = Coordinated().lead()
    group = commit_many(one, "t", range(500), PRODUCER)
    removal = forgetting(one, "t", 1)
    end = one.groups.transaction_ended(group.coordinator.partition, PRODUCER.producer_id, committed=True)
    while [next(removal, None), next(end, None)] != [None, None]:
        pass
    assert group.offsets.is_empty
    assert one.log.newest(group.coordinator.partition) == {}


def commit_in(one: Coordinated, group_id: str, topic_id: bytes, offset: int, producer: TransactionalProducer | None = None) -> Group:
    """Commit in partition 0 of the topic "t" that has this id."""
    group = one.groups.group_for(group_id, create=True)
    assert group is not None
    one.groups.commit(group, [Commit("t", 0, offset, -1, "", topic_id)], lambda _: None, producer=producer)
    return group


@pytest.mark.parametrize("before", [NO_TOPIC_ID, OLD_ID])
@pytest.mark.parametrize("producer", [None, PRODUCER])
@pytest.mark.parametrize("commits", ["before the removal", "while it waits", "after that"])
def test_what_is_committed_in_a_topic_that_is_created_again_stays(
    commits: str, producer: TransactionalProducer | None, before: bytes
) -> None:
    """Claim: also when the removal of what is left from the deleted one has waited long, for a commit in another topic."""
    one = Coordinated().lead()
    group = commit_in(one, "g", before, 5)
    beside = next(name for name in map(str, range(100)) if one.log.partition_for(name) == group.coordinator.partition)
    commit_in(one, beside, before, 5)
    one.log.hold()
    commit_many(one, "other", range(1))
    one.topic_ids["t"] = NEW_ID
    if commits == "before the removal":
        commit_in(one, "g", NEW_ID, 7, producer)
    removal = one.forget_topics(["t"])
    waits = next(removal)
    assert isinstance(waits, Suspension)
    if commits == "while it waits":
        commit_in(one, "g", NEW_ID, 7, producer)
    one.log.release()
    if commits == "after that":
        one.log.hold()
        commit_in(one, "g", NEW_ID, 7, producer)
    drain(removal)
    if commits == "after that":
        one.log.release()
    one.clock.settle()
    if producer is not None:
        one.log.mark(group.coordinator.partition, PRODUCER, committed=True)
        drain(one.groups.transaction_ended(group.coordinator.partition, PRODUCER.producer_id, committed=True))
    for each in (one, Coordinated(one.log).lead()):
        assert each.offset("g") == 7
        assert each.offset(beside) is None, "what is left where nothing is committed again goes"


def test_a_partition_that_cannot_commit_keeps_neither_others_nor_later_deletions_waiting() -> None:
    """Claim: its own removal removes, when it can, what was committed in all topics that were deleted meanwhile."""
    one = Coordinated().lead()
    stuck = one.log.partition_for("g")
    other = next(name for name in map(str, range(100)) if one.log.partition_for(name) != stuck)
    commit_in(one, "g", OLD_ID, 5)
    commit_many(one, "u", range(1))
    commit_in(one, other, OLD_ID, 5)
    one.log.hold()
    commit_many(one, "v", range(1))
    ended: list[str] = []

    def note(what: str, _error: Exception | None) -> None:
        ended.append(what)

    for name in ("t", "u"):
        for partition, steps in enumerate(one.groups.forget_topics([name], lambda _name: None)):
            one.groups.runtime.run_steps(steps, partial(note, f"{name} {'stuck' if partition == stuck else 'other'}"), droppable=False)
    one.clock.settle()
    assert "t stuck" not in ended
    assert "t other" in ended
    assert "u stuck" in ended, "the one that waits does that too"
    one.log.release()
    one.clock.settle()
    assert "t stuck" in ended
    assert set(committed_places(one)) == {("v", 0)}


def committed_places(one: Coordinated) -> list[tuple[str, int]]:
    """Of all groups."""
    return [place for partition in one.groups.partitions() for group in partition.groups.values() for place in group.offsets.each_place()]


def test_no_step_of_their_removal_examines_more_than_some_offsets() -> None:
    """Those that wait for a transaction are all examined, also in topics that exist."""
    one = Coordinated().lead()
    commit_many(one, "other", range(10 * OFFSETS_AT_ONCE), PRODUCER)
    assert len(list(one.forget_topics(["t"]))) >= 10


@pytest.mark.parametrize("what", ["topics", "group"])
def test_no_step_of_a_removal_removes_more_than_some_pending_offsets(what: str) -> None:
    """Of many transactions that commit the same partitions."""
    transactions = 300
    one = Coordinated().lead()
    for producer_id in range(transactions):
        group = commit_many(one, "t", range(50), TransactionalProducer(producer_id, 0))
    memory = one.groups.memory.offsets
    steps = one.forget_topics(["t"]) if what == "topics" else one.groups.delete(group, lambda _: None)
    held = memory.held
    for _ in steps:
        assert held - memory.held <= (PENDING_AT_ONCE + transactions) * (PENDING_COST + TRANSACTION_COST)
        held = memory.held
    assert memory.held == 0
    assert len(one.log.records(group.coordinator.partition)) == (transactions + 1) * 50, "one tombstone for each partition"


def test_their_removal_ends_also_when_a_client_commits_at_every_step() -> None:
    one = Coordinated().lead()
    commit_many(one, "t", range(5 * OFFSETS_AT_ONCE))
    removal = one.forget_topics(["t"])
    for _ in range(20):
        if next(removal, None) is None:
            break
        commit_many(one, "t", range(2 * OFFSETS_AT_ONCE))
        commit_many(one, "t", range(2 * OFFSETS_AT_ONCE), PRODUCER)
    else:
        raise AssertionError("20 steps for what 5 examine")


def test_their_removal_ends_also_when_no_tombstone_can_be_appended() -> None:
    one = Coordinated().lead()
    group = commit_many(one, "t", range(5 * OFFSETS_AT_ONCE))
    one.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, times=20)
    steps = one.forget_topics(["t"])
    assert sum(1 for _ in islice(steps, 20)) < 20
    assert len(group.offsets) == 5 * OFFSETS_AT_ONCE


@pytest.mark.parametrize("recreated", ["group", "coordinator"])
def test_their_removal_leaves_another_group_of_the_id_alone(recreated: str) -> None:
    """What was found in the earlier group is not deleted from the log of the later one."""
    one = Coordinated().lead()
    group = commit_many(one, "t", range(300))
    removal = forgetting(one, "t", 1)
    if recreated == "group":
        drain(one.groups.delete(group, lambda _: None))
    else:
        one.groups.resign(group.coordinator.partition)
        one.lead()
    assert one.commit("g", 7, partition=250) is ErrorCode.NONE
    drain(removal)
    assert one.offset("g", 250) == 7
    assert offset_key("g", "t", 250) in one.log.newest(group.coordinator.partition)
