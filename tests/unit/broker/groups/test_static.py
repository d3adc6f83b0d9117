"""Static members: they come back into their place without a rebalance, whoever uses their old id is fenced (KIP-345, KIP-814)."""

import pytest

from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.states import GroupState
from moldau.model.errors import ErrorCode
from support.memberships import RANGE, SESSION_MS, GroupTable, subscription

INSTANCES = {"a": "one", "b": "two"}


def static_pair(*, holds_stores: bool = False) -> GroupTable:
    """one-1, who leads, and two-2, in a stable group of generation 2; one-3 would be the next id."""
    table = GroupTable()
    table.stable("a", "b", instances=INSTANCES)
    table.holds_stores = holds_stores
    return table


def test_a_static_member_needs_no_id_first() -> None:
    table = GroupTable()
    table.join("a", instance="one", version=9)
    answer = table.joined("a")
    assert (answer.error, answer.member_id) == (ErrorCode.NONE, "one-1")
    assert answer.members[0].group_instance_id == "one"


def test_a_follower_comes_back_without_a_rebalance_and_keeps_its_assignment() -> None:
    table = static_pair()
    table.join("b", instance="two", version=5)
    answer = table.joined("b")
    assert (answer.error, answer.member_id, answer.generation, answer.leader) == (ErrorCode.NONE, "two-3", 2, "one-1")
    assert (answer.protocol_type, answer.protocol, answer.members) == ("consumer", "range", ())
    assert table.where() is GroupState.STABLE
    table.sync("b", "two-3", instance="two")
    assert table.synced("b").assignment == b"b"
    assert table.heartbeat("one-1", instance="one") is ErrorCode.NONE
    assert [member.member_id for member in table.stores[-1].state.members] == ["one-1", "two-3"]


def test_the_new_id_is_stored_before_it_is_told() -> None:
    table = static_pair(holds_stores=True)
    table.join("b", instance="two")
    assert table.waiting == {"b"}
    table.stored()
    assert table.joined("b").member_id == "two-3"


def test_whoever_uses_the_old_id_is_fenced() -> None:
    table = static_pair()
    table.join("b", instance="two")
    table.joined("b")
    assert table.heartbeat("two-2", instance="two") is ErrorCode.FENCED_INSTANCE_ID
    table.sync("old", "two-2", instance="two")
    assert table.synced("old").error is ErrorCode.FENCED_INSTANCE_ID
    table.join("old", "two-2", instance="two")
    answer = table.joined("old")
    assert (answer.error, answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "two-2")
    assert table.leave(("two-2", "two")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert table.group.check_commit("two-2", "two", 2) is ErrorCode.FENCED_INSTANCE_ID
    assert table.heartbeat("two-2") is ErrorCode.UNKNOWN_MEMBER_ID, "who does not say its instance is simply not known"


def test_an_instance_that_is_not_there_is_unknown() -> None:
    table = static_pair()
    assert table.heartbeat("one-1", instance="three") is ErrorCode.UNKNOWN_MEMBER_ID
    table.join("x", "one-1", instance="three")
    assert table.joined("x").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment_if_it_can() -> None:
    table = static_pair()
    table.join("a", instance="one", version=9)
    answer = table.joined("a")
    assert (answer.member_id, answer.leader, answer.skip_assignment) == ("one-3", "one-3", True)
    assert [member.group_instance_id for member in answer.members] == ["two", "one"]
    table.sync("a", "one-3", instance="one")
    assert table.synced("a").assignment == b"a"


def test_an_older_leader_that_comes_back_takes_itself_for_a_follower() -> None:
    """It would hand out an assignment that a stable group does not take."""
    table = static_pair()
    table.join("a", instance="one", version=8)
    answer = table.joined("a")
    assert (answer.member_id, answer.leader, answer.skip_assignment, answer.members) == ("one-3", "one-1", False, ())
    assert table.group.roster.leader == "one-3", "it does lead"


def test_who_comes_back_with_another_subscription_of_the_same_protocol_keeps_the_group_stable() -> None:
    """As Kafka: the leader sees the new subscription with the next rebalance."""
    table = static_pair()
    table.join("b", instance="two", protocols={"range": subscription("u")})
    assert table.joined("b").error is ErrorCode.NONE
    assert table.where() is GroupState.STABLE
    assert table.stores[-1].state.members[1].subscription == subscription("u")


def test_who_changes_the_groups_protocol_by_coming_back_starts_a_rebalance() -> None:
    table = GroupTable()
    both = {"range": b"", "sticky": b""}
    table.join("a", instance="one", protocols=both)
    table.hand_out({"a": table.joined("a").member_id})
    table.join("a", instance="one", protocols={"sticky": b"", "range": b""})
    answer = table.joined("a")
    assert (answer.generation, answer.protocol, answer.member_id) == (2, "sticky", "one-2")


def test_while_the_leader_works_a_static_member_that_comes_back_starts_over() -> None:
    table = static_pair()
    table.join("a", "one-1", instance="one")
    table.join_again()
    table.joined("a")
    table.joined("b")
    table.sync("b", "two-2", instance="two")
    table.join("b2", instance="two")
    assert table.synced("b").error is ErrorCode.FENCED_INSTANCE_ID
    assert table.where() is GroupState.PREPARING_REBALANCE
    table.join("a", "one-1", instance="one")
    assert [member.member_id for member in table.joined("a").members] == ["one-1", "two-3"]


def test_in_a_rebalance_a_static_member_that_comes_back_counts_as_joined() -> None:
    table = static_pair()
    table.join("a", "one-1", instance="one")
    table.join("b", instance="two")
    assert table.joined("a").generation == table.joined("b").generation == 3


def test_in_a_rebalance_who_waits_under_the_old_id_is_fenced() -> None:
    table = static_pair()
    table.join("old", "two-2", instance="two", protocols={"range": b"new"})
    table.join("b", instance="two")
    answer = table.joined("old")
    assert (answer.error, answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "two-2")
    assert table.waiting == {"b"}


@pytest.mark.parametrize("who", ["a", "b"])
def test_if_the_new_id_cannot_be_stored_the_old_one_stays(who: str) -> None:
    table = static_pair(holds_stores=True)
    old = {"a": "one-1", "b": "two-2"}[who]
    table.join(who, instance=INSTANCES[who], protocols={"range": b"new"}, session_ms=7000)
    table.stored(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = table.joined(who)
    assert (answer.error, answer.member_id, answer.leader) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", "one-1")
    assert table.group.roster.leader == "one-1"
    assert table.heartbeat(old, instance=INSTANCES[who]) is ErrorCode.NONE
    member = table.group.roster.members[old]
    assert (member.protocols, member.session_timeout_ms) == (RANGE, SESSION_MS)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_a_rebalance_that_begins_before_the_new_id_is_stored_takes_the_member_along(error: ErrorCode) -> None:
    table = static_pair(holds_stores=True)
    table.join("b", instance="two")
    table.join("a", "one-1", instance="one")
    assert table.joined("b").generation == 3
    table.stored(error)
    assert table.joined("a").generation == 3
    assert table.waiting == set()


def test_the_session_of_a_member_whose_id_takes_long_to_store_begins_with_the_answer() -> None:
    table = static_pair(holds_stores=True)
    table.join("b", instance="two")
    for _ in range(4):
        table.advance(SESSION_MS // 2)
        table.heartbeat("one-1")
    table.stored()
    assert table.joined("b").error is ErrorCode.NONE
    table.advance(SESSION_MS - 1)
    table.heartbeat("one-1")
    table.advance(1)
    assert table.heartbeat("one-1") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_comeback_in_a_rebalance_waits_longer_than_a_session_though_it_was_never_told_a_generation() -> None:
    table = GroupTable()
    table.join("a", instance="one")
    table.hand_out({"a": table.joined("a").member_id})
    table.join("b", instance="two")
    table.join("again", instance="two")
    assert table.joined("b").error is ErrorCode.FENCED_INSTANCE_ID
    for _ in range(4):
        table.advance(SESSION_MS // 2)
        table.heartbeat("one-1")
    assert table.waiting == {"again"}


def test_who_leaves_before_its_new_id_is_stored_is_told_once() -> None:
    table = static_pair(holds_stores=True)
    table.join("b", instance="two")
    assert table.leave(("", "two")) == [ErrorCode.NONE]
    assert table.joined("b").error is ErrorCode.UNKNOWN_MEMBER_ID
    table.stored()
    assert table.waiting == set()


def test_two_comebacks_before_the_first_is_stored_leave_the_second() -> None:
    table = static_pair(holds_stores=True)
    table.join("b", instance="two")
    table.join("c", instance="two")
    assert table.joined("b").error is ErrorCode.FENCED_INSTANCE_ID
    table.stored()
    assert table.waiting == {"c"}
    table.stored()
    assert table.joined("c").member_id == "two-4"


def test_a_member_that_is_away_longer_than_its_session_loses_its_place() -> None:
    table = static_pair()
    table.advance(SESSION_MS // 2)
    table.heartbeat("one-1", instance="one")
    table.advance(SESSION_MS // 2)
    assert table.heartbeat("one-1", instance="one") is ErrorCode.REBALANCE_IN_PROGRESS
    table.join("b", instance="two")
    assert table.where() is GroupState.PREPARING_REBALANCE
    assert table.waiting == {"b"}


def test_a_comeback_before_the_first_assignment_was_asked_for_is_not_put_out_for_it() -> None:
    """The old id owed a SyncGroup; the new one owes it now."""
    table = GroupTable()
    table.join("a", instance="one")
    table.join("b", instance="two")
    table.join_again()
    table.joined("a")
    table.joined("b")
    table.sync("a", "one-1", assignments={"two-2": b"y"})
    table.synced("a")
    table.join("b", instance="two")
    member_id = table.joined("b").member_id
    assert table.group.unsynced == {member_id}
    table.sync("b", member_id)
    assert table.synced("b").assignment == b"y"
    assert table.group.unsynced == set()


def test_a_full_group_takes_its_static_members_back() -> None:
    table = GroupTable(Limits(0, 2, 1 << 30))
    table.stable("a", "b", instances=INSTANCES)
    table.join("b", instance="two")
    assert table.joined("b").error is ErrorCode.NONE
    table.join("c", instance="three")
    assert table.joined("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
