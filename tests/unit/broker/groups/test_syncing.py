"""SyncGroup: the assignment is stored before anybody is told its part, and an error tells everybody to join again."""

import pytest

from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.states import GroupSnapshot, GroupState, MemberState
from moldau.model.errors import ErrorCode
from support.memberships import REBALANCE_MS, SESSION_MS, START_MS, GroupTable, subscription


def pair(*, holds_stores: bool = False, limits: Limits | None = None) -> GroupTable:
    """Members a-1, who leads, and b-2, both joined and told so."""
    table = GroupTable(limits or Limits(0, 1 << 30, 1 << 30), holds_stores=holds_stores)
    table.join("a")
    table.join("b")
    table.join_again()
    table.joined("a")
    table.joined("b")
    return table


def test_a_follower_waits_for_the_leader_and_both_for_the_log() -> None:
    table = pair(holds_stores=True)
    table.sync("b", "b-2")
    assert table.waiting == {"b"}
    table.sync("a", "a-1", assignments={"a-1": b"x", "b-2": b"y"})
    assert table.waiting == {"a", "b"}
    assert table.where() is GroupState.COMPLETING_REBALANCE
    table.stored()
    assert table.where() is GroupState.STABLE
    first, second = table.synced("a"), table.synced("b")
    assert (first.error, first.assignment, first.protocol_type, first.protocol) == (ErrorCode.NONE, b"x", "consumer", "range")
    assert second.assignment == b"y"


def test_what_is_stored_is_the_generation_with_its_assignments() -> None:
    table = pair()
    table.now_ms = 5
    table.sync("a", "a-1", assignments={"a-1": b"x", "b-2": b"y"})
    table.synced("a")
    sent = subscription("t")
    members = tuple(
        MemberState(f"{name}-{number}", None, f"client-{name}", "/192.0.2.1", REBALANCE_MS, SESSION_MS, sent, given)
        for name, number, given in (("a", 1, b"x"), ("b", 2, b"y"))
    )
    assert table.stores[-1].state == GroupSnapshot("consumer", 2, "range", "a-1", START_MS, members)


def test_who_comes_late_is_told_at_once() -> None:
    table = pair()
    table.sync("a", "a-1", assignments={"b-2": b"y"})
    assert table.synced("a").assignment == b"", "the leader forgot itself"
    table.sync("b", "b-2")
    assert table.synced("b").assignment == b"y"
    table.sync("b", "b-2")
    assert table.synced("b").assignment == b"y", "as often as it asks"


def test_assignments_that_a_follower_sends_are_not_looked_at() -> None:
    table = pair()
    table.sync("b", "b-2", assignments={"b-2": b"everything"})
    assert table.waiting == {"b"}
    assert table.stores == []


def test_assignments_for_strangers_are_left_out() -> None:
    table = pair()
    table.sync("a", "a-1", assignments={"a-1": b"x", "stranger": b"z"})
    table.synced("a")
    assert [member.member_id for member in table.stores[-1].state.members] == ["a-1", "b-2"]


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_assignment_that_cannot_be_stored_is_nobodys_and_all_join_again(error: ErrorCode) -> None:
    table = pair(holds_stores=True)
    table.sync("b", "b-2")
    table.sync("a", "a-1", assignments={"a-1": b"x", "b-2": b"y"})
    table.stored(error)
    assert table.synced("a").error is error
    assert table.synced("b").error is error
    assert table.heartbeat("a-1") is ErrorCode.REBALANCE_IN_PROGRESS
    table.join_again()
    assert table.joined("b").generation == 3


def test_a_rebalance_that_began_meanwhile_makes_what_was_stored_worthless() -> None:
    table = pair(holds_stores=True)
    table.sync("a", "a-1", assignments={"a-1": b"x", "b-2": b"y"})
    table.join("c")
    assert table.synced("a").error is ErrorCode.REBALANCE_IN_PROGRESS
    table.stored()
    assert table.where() is GroupState.PREPARING_REBALANCE
    table.join_again()
    table.sync("a2", "a-1", assignments={"a-1": b"new"})
    assert table.waiting == {"a2"}
    table.stored(ErrorCode.NONE)
    assert table.synced("a2").assignment == b"new"


def test_a_leader_that_asks_twice_is_answered_twice_and_stores_once() -> None:
    table = pair(holds_stores=True)
    table.sync("first", "a-1", assignments={"a-1": b"x"})
    table.sync("second", "a-1", assignments={"a-1": b"other"})
    assert table.synced("first").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(table.stores) == 1
    table.stored()
    assert table.synced("second").assignment == b"x"


def test_strangers_and_old_generations_are_refused_in_every_state() -> None:
    table = pair()
    for state in ("CompletingRebalance", "Stable", "PreparingRebalance", "Empty"):
        if state == "Stable":
            table.sync("a", "a-1", assignments={})
            table.synced("a")
        elif state == "PreparingRebalance":
            table.join("a", "a-1")
        elif state == "Empty":
            table.leave("a-1", "b-2")
        assert table.group.state.value == state
        table.sync("x", "stranger")
        assert table.synced("x").error is ErrorCode.UNKNOWN_MEMBER_ID
        table.sync("x", "b-2", instance="nobody")
        assert table.synced("x").error is ErrorCode.UNKNOWN_MEMBER_ID
        table.sync("x", "b-2", generation=1)
        assert table.synced("x").error is (ErrorCode.UNKNOWN_MEMBER_ID if state == "Empty" else ErrorCode.ILLEGAL_GENERATION)


def test_in_a_rebalance_a_member_has_to_join_first() -> None:
    table = pair()
    table.join("c")
    table.sync("a", "a-1")
    assert table.synced("a").error is ErrorCode.REBALANCE_IN_PROGRESS


def test_from_version_5_kind_and_protocol_have_to_be_those_of_the_group() -> None:
    table = pair()
    for kind, protocol in (("connect", "range"), ("consumer", "sticky")):
        table.sync("a", "a-1", kind=kind, protocol=protocol)
        assert table.synced("a").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    table.sync("a", "a-1", kind="consumer", protocol="range")
    assert table.synced("a").error is ErrorCode.NONE


def test_assignments_beyond_the_bytes_of_a_group_are_refused() -> None:
    table = pair(limits=Limits(0, 1 << 30, 10_000))
    table.sync("b", "b-2")
    table.sync("a", "a-1", assignments={"a-1": bytes(9_000)})
    assert table.synced("a").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.synced("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.stores == []
    assert table.where() is GroupState.PREPARING_REBALANCE


def test_who_waits_for_the_leader_does_not_lose_its_session_meanwhile() -> None:
    table = pair()
    table.sync("b", "b-2")
    for _ in range(5):
        table.advance(SESSION_MS - 1)
        assert table.heartbeat("a-1") is ErrorCode.NONE
    table.sync("a", "a-1", assignments={"b-2": b"y"})
    assert table.synced("b").assignment == b"y"
    table.advance(SESSION_MS - 1)
    assert table.heartbeat("a-1") is ErrorCode.NONE
    table.advance(1)
    assert table.heartbeat("a-1") is ErrorCode.REBALANCE_IN_PROGRESS, "its session began anew with the answer, and is over"


def test_cooperative_members_pass_their_partitions_on_over_two_generations() -> None:
    """KIP-429: the machine hands on what members own and what the leader gives; nobody has to be given anything new."""
    owns = {"cooperative-sticky": subscription("t", version=1, rest=b"owns 0,1")}
    table = GroupTable()
    table.join("a", protocols=owns)
    table.hand_out({"a": table.joined("a").member_id})
    table.join("b", protocols={"cooperative-sticky": subscription("t", version=1)})
    table.join_again()
    told = table.joined("a")
    table.joined("b")
    assert [member.metadata for member in told.members] == [owns["cooperative-sticky"], subscription("t", version=1)]
    table.sync("a", "a-1", assignments={"a-1": b"keep 0", "b-2": b""})
    table.sync("b", "b-2")
    assert table.synced("a").assignment == b"keep 0"
    assert table.synced("b").assignment == b""
    table.join("a", "a-1", protocols={"cooperative-sticky": subscription("t", version=1, rest=b"owns 0")})
    table.join_again()
    assert (table.joined("a").generation, table.joined("b").generation) == (3, 3)
    table.sync("b", "b-2")
    table.sync("a", "a-1", assignments={"a-1": b"keep 0", "b-2": b"take 1"})
    assert table.synced("b").assignment == b"take 1"
