"""LeaveGroup, heartbeats and the ends of sessions: how members go, and what the others notice."""

import pytest

from moldau.broker.groups.states import GroupSnapshot, GroupState
from moldau.model.errors import ErrorCode
from support.memberships import SESSION_MS, START_MS, GroupTable


def test_the_last_member_leaves_an_empty_group_that_keeps_its_generation() -> None:
    table = GroupTable()
    members = table.stable("a")
    table.advance(7)
    assert table.leave(members["a"]) == [ErrorCode.NONE]
    assert (table.where(), table.group.generation, table.group.protocol) == (GroupState.EMPTY, 2, None)
    assert table.stores[-1].state == GroupSnapshot("consumer", 2, None, None, START_MS + 7, ())
    assert table.group.deadlines == 0
    table.join("b")
    assert table.joined("b").generation == 3


def test_who_leaves_starts_a_rebalance_of_the_others() -> None:
    table = GroupTable()
    members = table.stable("a", "b", "c")
    assert table.leave(members["b"]) == [ErrorCode.NONE]
    assert table.heartbeat(members["a"]) is ErrorCode.REBALANCE_IN_PROGRESS
    table.join_again()
    assert table.joined("a").generation == table.joined("c").generation == 4


def test_several_leave_at_once_and_each_has_its_own_error() -> None:
    table = GroupTable()
    members = table.stable("a", "b", "c", "d", instances={"b": "two", "c": "three"})
    answers = table.leave((members["a"], None), ("", "two"), ("wrong", "three"), "stranger", ("", "nobody"), ("", None))
    assert answers == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(table.group.roster.members) == {members["c"], members["d"]}
    assert table.group.generation == 4
    assert table.where() is GroupState.PREPARING_REBALANCE


def test_nobody_leaves_and_nothing_happens() -> None:
    table = GroupTable()
    table.stable("a")
    assert table.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert table.where() is GroupState.STABLE


def test_the_leaver_may_be_the_one_that_all_waited_for() -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.join("b", members["b"], protocols={"range": b"new"})
    assert table.leave(members["a"]) == [ErrorCode.NONE]
    answer = table.joined("b")
    assert (answer.generation, answer.leader) == (3, members["b"])


def test_an_id_is_given_back_without_troubling_a_stable_group() -> None:
    table = GroupTable()
    members = table.stable("a")
    table.join("b", version=4)
    assert table.leave(table.joined("b").member_id) == [ErrorCode.NONE]
    assert table.where() is GroupState.STABLE
    table.join("b", version=4)
    table.join("a", members["a"])
    assert table.waiting == {"a"}
    assert table.leave(table.joined("b").member_id) == [ErrorCode.NONE]
    assert table.joined("a").generation == 2


def test_whoever_waits_is_told_that_it_is_unknown_when_it_is_put_out() -> None:
    table = GroupTable()
    table.join("a", instance="one")
    table.join("b", instance="two")
    assert table.leave(("", "two")) == [ErrorCode.NONE]
    answer = table.joined("b")
    assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    table.answers.clear()
    table.join("c", instance="three")
    table.join_again()
    table.joined("c")
    table.sync("c", "three-3")
    assert table.leave(("", "three")) == [ErrorCode.NONE]
    assert table.synced("c").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("gap_ms", [SESSION_MS // 3, SESSION_MS - 1])
def test_a_member_lives_as_long_as_it_is_heard_from_in_time(gap_ms: int) -> None:
    table = GroupTable()
    members = table.stable("a")
    for _ in range(50):
        table.advance(gap_ms)
        assert table.heartbeat(members["a"]) is ErrorCode.NONE
    table.advance(SESSION_MS - 1)
    assert table.where() is GroupState.STABLE
    table.advance(1)
    assert table.where() is GroupState.EMPTY
    assert table.heartbeat(members["a"]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_a_member_alive_too() -> None:
    table = GroupTable()
    members = table.stable("a")
    table.advance(SESSION_MS - 1)
    table.group.heard_from(members["a"], table.now_ms)
    table.group.heard_from("stranger", table.now_ms)
    table.advance(SESSION_MS - 1)
    assert table.where() is GroupState.STABLE


def test_the_death_of_one_member_is_noticed_by_the_others_only_by_their_heartbeats() -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.advance(SESSION_MS - 1)
    assert table.heartbeat(members["b"]) is ErrorCode.NONE
    table.advance(1)
    assert table.heartbeat(members["a"]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert table.heartbeat(members["b"]) is ErrorCode.REBALANCE_IN_PROGRESS
    table.join("b", members["b"])
    assert table.joined("b").leader == members["b"]


def test_members_that_die_together_leave_an_empty_group() -> None:
    table = GroupTable()
    table.stable("a", "b", "c")
    table.advance(SESSION_MS)
    assert (table.where(), len(table.group.roster), table.group.deadlines) == (GroupState.EMPTY, 0, 0)


def test_a_heartbeat_of_another_generation_is_refused_and_does_not_count() -> None:
    table = GroupTable()
    members = table.stable("a")
    table.advance(SESSION_MS - 1)
    assert table.heartbeat(members["a"], generation=0) is ErrorCode.ILLEGAL_GENERATION
    table.advance(1)
    assert table.where() is GroupState.EMPTY


def test_heartbeats_in_every_state() -> None:
    table = GroupTable()
    assert table.heartbeat("a-1", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    table.join("a", version=4)
    assert table.heartbeat("a-1", 0) is ErrorCode.UNKNOWN_MEMBER_ID, "an id is no membership yet"
    table.join("b", "a-1", version=4)
    assert table.heartbeat("a-1") is ErrorCode.NONE, "while the leader works"
    table.sync("c", "a-1")
    assert table.heartbeat("a-1") is ErrorCode.NONE
    table.join("d")
    assert table.heartbeat("a-1") is ErrorCode.REBALANCE_IN_PROGRESS
    table.unload()
    assert table.heartbeat("a-1") is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_new_member_that_is_heard_from_has_a_session_like_others() -> None:
    """Its deadline comes nearer then: it had five minutes."""
    table = GroupTable()
    members = table.stable("a")
    table.join("b", version=4)
    told = table.joined("b").member_id
    table.join("b", told, version=4)
    assert table.heartbeat(told) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(2):
        table.advance(SESSION_MS // 2)
        table.heartbeat(members["a"])
    assert table.joined("b").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_that_cannot_be_stored_is_empty_all_the_same() -> None:
    table = GroupTable(holds_stores=True)
    table.join("a")
    table.joined("a")
    table.leave("a-1")
    table.stored(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert table.where() is GroupState.EMPTY


def test_a_group_that_goes_answers_whoever_waits_once() -> None:
    table = GroupTable(holds_stores=True)
    table.join("a")
    table.joined("a")
    table.sync("a", "a-1")
    table.unload()
    assert table.synced("a").error is ErrorCode.NOT_COORDINATOR
    table.stored()
    table.leave_all("leave", "a-1")
    assert table.left("leave").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert table.where() is GroupState.DEAD
