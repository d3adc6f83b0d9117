"""What is asked of a group beside requests of its members: commits, subscriptions, and what is restored from the log."""

import pytest

from moldau.broker.groups.members import subscribed_topics
from moldau.broker.groups.membership import Membership
from moldau.broker.groups.states import MOVES, NO_REBALANCE_TIMEOUT, NO_TIMESTAMP, GroupSnapshot, GroupState, MemberState
from moldau.model.errors import ErrorCode
from support.memberships import NO_LIMITS, REBALANCE_MS, SESSION_MS, START_MS, GroupTable, subscription

NONE, UNKNOWN, STALE = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
BUSY, GONE = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
STATES = [GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE, GroupState.DEAD]


def in_state(state: GroupState) -> GroupTable:
    """A group of which a-1 is a member, unless it is empty; generation 1."""
    table = GroupTable()
    if state is GroupState.EMPTY:
        return table
    table.join("a")
    table.joined("a")
    if state is GroupState.STABLE:
        table.sync("a", "a-1")
    elif state is GroupState.PREPARING_REBALANCE:
        table.join("b")
    elif state is GroupState.DEAD:
        table.unload()
    assert table.group.state is state
    return table


@pytest.mark.parametrize(
    ("who", "generation", "expected"),
    [
        ("", -1, [NONE, UNKNOWN, UNKNOWN, UNKNOWN, GONE]),
        ("a-1", 1, [UNKNOWN, NONE, BUSY, NONE, GONE]),
        ("a-1", 0, [UNKNOWN, STALE, STALE, STALE, GONE]),
        ("a-1", -1, [NONE, STALE, STALE, STALE, GONE]),
        ("b", 1, [UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE]),
        ("", 1, [UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE]),
    ],
)
def test_commits_in_every_state(who: str, generation: int, expected: list[ErrorCode]) -> None:
    assert [in_state(state).group.check_commit(who, None, generation) for state in STATES] == expected


@pytest.mark.parametrize(
    ("who", "generation", "expected"),
    [
        ("", -1, [NONE, NONE, NONE, NONE, GONE]),
        ("a-1", 1, [UNKNOWN, NONE, NONE, NONE, GONE]),
        ("a-1", 0, [UNKNOWN, STALE, STALE, STALE, GONE]),
        ("b", 1, [UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE]),
    ],
)
def test_commits_in_transactions_in_every_state(who: str, generation: int, expected: list[ErrorCode]) -> None:
    """Older producers do not say for whom they commit; those that do are fenced (KIP-447)."""
    assert [in_state(state).group.check_commit(who, None, generation, transactional=True) for state in STATES] == expected


def test_a_commit_in_the_name_of_an_instance_alone_is_checked() -> None:
    group = in_state(GroupState.STABLE).group
    assert group.check_commit("", "nobody", -1) is UNKNOWN


def test_topics_are_those_of_the_chosen_protocol_of_all_members() -> None:
    table = GroupTable()
    table.join("a", protocols={"range": subscription("t", "u", version=3, rest=b"whatever follows")})
    assert table.group.subscribed_to("t")
    assert table.group.subscribed_to("u")
    assert not table.group.subscribed_to("v")
    table.leave("a-1")
    assert not table.group.subscribed_to("t")


def test_where_subscriptions_cannot_be_read_consumers_may_be_subscribed_to_anything() -> None:
    table = GroupTable()
    table.join("a", protocols={"range": b"\x00"})
    assert table.group.subscribed_to("t")
    other = GroupTable()
    other.join("a", kind="connect", protocols={"eager": subscription("t")})
    assert not other.group.subscribed_to("t")
    assert not GroupTable().group.subscribed_to("t"), "nobody was ever a member"


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x00\x00\x00\x00",
        subscription("t", version=-1),
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        subscription("topic")[:-1],
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_subscriptions_that_cannot_be_read(damaged: bytes) -> None:
    assert subscribed_topics([subscription("t"), damaged]) is None


def member_state(name: str, **changes: object) -> MemberState:
    state = MemberState(name, None, "client-" + name, "/192.0.2.1", REBALANCE_MS, SESSION_MS, subscription("t"), b"mine")
    return state._replace(**changes)  # type: ignore[arg-type]


def test_a_restored_group_is_stable_and_its_members_go_on_with_a_heartbeat() -> None:
    state = GroupSnapshot("consumer", 7, "range", "b", START_MS - 1, (member_state("a"), member_state("b")))
    table = GroupTable(state=state)
    assert (table.where(), table.group.generation, table.group.roster.leader) == (GroupState.STABLE, 7, "b")
    assert table.group.state_timestamp_ms == START_MS - 1
    assert table.group.subscribed_to("t")
    assert table.heartbeat("a") is ErrorCode.NONE
    table.sync("a", "a")
    assert table.synced("a").assignment == b"mine"
    table.join("a", "a")
    assert table.joined("a").generation == 7, "it joins with what it was stored with"


def test_the_sessions_of_a_restored_group_begin_when_it_is_loaded() -> None:
    table = GroupTable(state=GroupSnapshot("consumer", 7, "range", "a", START_MS, (member_state("a"), member_state("b"))))
    table.advance(SESSION_MS - 1)
    assert table.heartbeat("a") is ErrorCode.NONE
    table.advance(1)
    assert set(table.group.roster.members) == {"a"}


def test_a_group_that_was_stored_empty_keeps_its_generation() -> None:
    table = GroupTable(state=GroupSnapshot("consumer", 7, None, None, START_MS, ()))
    assert (table.where(), table.group.protocol_type, table.group.deadlines) == (GroupState.EMPTY, "consumer", 0)
    table.join("a")
    assert table.joined("a").generation == 8


def test_what_older_values_leave_out_is_made_good() -> None:
    state = GroupSnapshot("", 1, None, "gone", NO_TIMESTAMP, (member_state("a", rebalance_timeout_ms=NO_REBALANCE_TIMEOUT),))
    group = Membership.restored("g", NO_LIMITS, state)
    assert group.roster.rebalance_timeout_ms == SESSION_MS
    assert group.roster.leader == "a"
    assert group.protocol_type is None
    assert group.snapshot({"a": b""}).protocol_type == ""


def test_a_state_is_left_only_for_those_it_may_be_left_for() -> None:
    for state in GroupState:
        for other in GroupState:
            group = Membership("g", NO_LIMITS)
            group.state = state
            if other in MOVES[state]:
                group.go_to(other)
                assert group.state is other
            else:
                with pytest.raises(AssertionError, match=r"group g cannot go from"):
                    group.go_to(other)
