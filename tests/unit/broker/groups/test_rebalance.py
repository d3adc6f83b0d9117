"""How long a rebalance lasts: the first delay of an empty group, the rebalance timeout, and who is missed at its end."""

from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.states import GroupState
from moldau.model.errors import ErrorCode
from support.memberships import REBALANCE_MS, SESSION_MS, GroupTable

DELAYED = Limits(3000, 1 << 30, 1 << 30)


def test_an_empty_group_waits_for_more_members_as_long_as_they_come() -> None:
    """Worked example of the module: members at 0, 2 and 7 s; two of them are in the first generation."""
    table = GroupTable(DELAYED)
    table.join("a")
    table.advance(2000)
    table.join("b")
    table.advance(3999)
    assert table.waiting == {"a", "b"}
    table.advance(1)
    assert len(table.joined("a").members) == 2
    assert table.joined("b").generation == 1
    table.advance(1000)
    table.join("c")
    assert table.where() is GroupState.PREPARING_REBALANCE


def test_the_first_delay_ends_with_the_rebalance_timeout_however_many_come() -> None:
    table = GroupTable(DELAYED)
    table.join("m0", rebalance_ms=10_000)
    for index in range(1, 10):
        table.advance(1000)
        table.join(f"m{index}", rebalance_ms=10_000)
    table.advance(999)
    assert len(table.waiting) == 10
    table.advance(1)
    assert len(table.joined("m0").members) == 10


def test_the_first_delay_lasts_its_time_though_nobody_is_missing() -> None:
    table = GroupTable(DELAYED)
    table.join("a", version=4)
    table.join("a2", table.joined("a").member_id, version=4)
    assert table.waiting == {"a2"}
    table.advance(3000)
    assert table.joined("a2").generation == 1


def test_who_leaves_in_the_first_delay_leaves_an_empty_group_behind_at_its_end() -> None:
    table = GroupTable(DELAYED)
    table.join("a")
    assert table.leave("a-1") == [ErrorCode.NONE]
    assert table.joined("a").error is ErrorCode.UNKNOWN_MEMBER_ID
    table.advance(3000)
    assert (table.where(), table.group.generation) == (GroupState.EMPTY, 1)
    assert table.group.deadlines == 0


def test_a_later_rebalance_begins_without_a_delay() -> None:
    table = GroupTable(DELAYED)
    table.join("a")
    table.advance(3000)
    table.hand_out({"a": table.joined("a").member_id})
    table.join("b")
    table.join("a", "a-1")
    assert table.joined("b").generation == 2


def test_members_that_do_not_join_again_in_time_are_put_out() -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.join("c")
    for _ in range(REBALANCE_MS // 5000):
        assert table.waiting == {"c"}
        assert table.heartbeat(members["a"]) is ErrorCode.REBALANCE_IN_PROGRESS
        assert table.heartbeat(members["b"]) is ErrorCode.REBALANCE_IN_PROGRESS
        table.advance(5000)
    answer = table.joined("c")
    assert (answer.leader, len(answer.members)) == (answer.member_id, 1)
    assert table.heartbeat(members["a"]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_of_the_members_counts() -> None:
    table = GroupTable()
    table.stable("a", "b")
    table.join("c", rebalance_ms=2 * REBALANCE_MS)
    for _ in range(2 * REBALANCE_MS // 5000 - 1):
        for member_id in ("a-1", "b-2"):
            table.heartbeat(member_id)
        table.advance(5000)
    assert table.waiting == {"c"}
    table.advance(5000)
    assert table.joined("c").error is ErrorCode.NONE


def test_a_static_member_that_does_not_join_again_keeps_its_place_until_its_session_ends() -> None:
    table = GroupTable()
    table.join("s", instance="one", session_ms=2 * REBALANCE_MS)
    table.hand_out({"s": table.joined("s").member_id})
    table.join("b")
    table.advance(REBALANCE_MS)
    answer = table.joined("b")
    assert answer.leader == answer.member_id, "the leader must be there"
    assert [member.group_instance_id for member in answer.members] == ["one", None]


def test_a_rebalance_that_nobody_joins_goes_on_until_the_last_session_is_over() -> None:
    """Only static members can keep a place without coming; loaded here where fewer are allowed, so that all should join again."""
    table = GroupTable()
    table.stable("a", "b", instances={"a": "one", "b": "two"})
    state = table.stores[-1].state
    state = state._replace(members=tuple(each._replace(session_timeout_ms=200_000, rebalance_timeout_ms=60_000) for each in state.members))
    table = GroupTable(Limits(0, 1, 1 << 30), state=state)
    table.advance(199_999)
    assert (table.where(), table.group.generation) == (GroupState.PREPARING_REBALANCE, 2)
    table.advance(1)
    assert (table.where(), table.group.generation) == (GroupState.EMPTY, 3)
    assert table.group.deadlines == 0


def test_a_rebalance_that_nobody_joins_at_first_ends_with_the_next_timeout_after_somebody_has() -> None:
    table = GroupTable()
    table.stable("a", "b", instances={"a": "one", "b": "two"})
    state = table.stores[-1].state
    state = state._replace(members=tuple(each._replace(session_timeout_ms=200_000, rebalance_timeout_ms=60_000) for each in state.members))
    table = GroupTable(Limits(0, 1, 1 << 30), state=state)
    table.advance(70_000)
    table.join("b", "two-2", instance="two")
    table.advance(49_999)
    assert table.waiting == {"b"}
    table.advance(1)
    answer = table.joined("b")
    assert (answer.generation, answer.leader, len(answer.members)) == (3, "two-2", 2)


def test_a_leader_that_does_not_come_back_is_followed_by_who_has() -> None:
    table = GroupTable()
    members = table.stable("a", "b", "c")
    table.join("c", members["c"], protocols={"range": b"new"})
    table.join("b", members["b"])
    table.advance(SESSION_MS)
    assert table.joined("b").leader == members["b"]
    assert table.joined("c").leader == members["b"]
    assert table.heartbeat(members["c"]) is ErrorCode.NONE, "its session would have ended at the same time, but began anew with the answer"


def test_who_does_not_ask_for_its_assignment_by_the_rebalance_timeout_is_put_out() -> None:
    """Its heartbeats do not help it: a generation is not whole without it."""
    table = GroupTable()
    table.join("a")
    table.join("b")
    table.join_again()
    table.joined("a")
    table.joined("b")
    table.sync("a", "a-1", assignments={"a-1": b"x"})
    assert table.synced("a").assignment == b"x"
    assert table.where() is GroupState.STABLE
    for _ in range(REBALANCE_MS // 5000):
        assert table.heartbeat("a-1") is ErrorCode.NONE
        assert table.heartbeat("b-2") is ErrorCode.NONE
        table.advance(5000)
    assert table.heartbeat("b-2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert table.heartbeat("a-1") is ErrorCode.REBALANCE_IN_PROGRESS


def test_once_all_have_asked_nobody_is_missed() -> None:
    table = GroupTable()
    table.stable("a", "b")
    assert table.group.deadlines == 2, "two sessions"


def test_ids_alone_do_not_keep_a_rebalance_from_its_end() -> None:
    """All members leave while somebody was told an id: the group is empty, and the id is good until its time."""
    table = GroupTable()
    members = table.stable("a")
    table.join("b", version=4)
    told = table.joined("b").member_id
    table.leave(members["a"])
    table.advance(0)
    assert table.where() is GroupState.EMPTY
    table.join("b", told, version=4)
    assert table.joined("b").generation == 3
