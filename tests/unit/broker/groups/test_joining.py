"""JoinGroup in every state: who is let in, who is told an id first, who leads, which protocol is chosen, who starts a rebalance."""

import pytest

from moldau.broker.groups.joining import NEW_MEMBER_TIMEOUT_MS
from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.states import GroupState, JoinedMember
from moldau.model.errors import ErrorCode
from support.memberships import RANGE, SESSION_MS, START_MS, GroupTable, subscription


def test_the_first_member_of_a_group_leads_a_generation_of_its_own() -> None:
    table = GroupTable()
    table.join("a")
    answer = table.joined("a")
    assert answer.error is ErrorCode.NONE
    assert (answer.member_id, answer.leader, answer.generation) == ("a-1", "a-1", 1)
    assert (answer.protocol_type, answer.protocol) == ("consumer", "range")
    assert answer.members == (JoinedMember("a-1", None, subscription("t")),)
    assert not answer.skip_assignment
    assert table.where() is GroupState.COMPLETING_REBALANCE


def test_from_version_4_a_new_member_is_told_its_id_and_comes_back_with_it() -> None:
    table = GroupTable()
    table.join("a", version=4)
    told = table.joined("a")
    assert (told.error, told.member_id, told.generation, told.leader) == (ErrorCode.MEMBER_ID_REQUIRED, "a-1", -1, "")
    assert table.where() is GroupState.EMPTY
    assert not table.group.is_empty, "somebody is about to be a member"
    table.join("a", told.member_id, version=4)
    assert table.joined("a").leader == "a-1"


def test_an_id_that_nobody_comes_back_with_is_forgotten_after_a_session_timeout() -> None:
    table = GroupTable()
    table.join("a", version=4)
    table.joined("a")
    table.advance(SESSION_MS - 1)
    assert not table.group.is_empty
    table.advance(1)
    assert table.group.is_empty
    assert table.group.deadlines == 0
    table.join("a", "a-1", version=4)
    assert table.joined("a").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_who_was_told_an_id_but_not_beyond_its_session_timeout() -> None:
    table = GroupTable()
    members = table.stable("a")
    table.join("b", version=4)
    table.joined("b")
    assert table.where() is GroupState.STABLE, "an id alone is no reason for a rebalance"
    table.join("a", members["a"])
    assert "a" in table.waiting
    table.advance(SESSION_MS)
    assert table.joined("a").generation == 2


def test_the_second_member_starts_a_rebalance_and_is_answered_with_the_first() -> None:
    table = GroupTable()
    members = table.stable("a")
    table.join("b")
    assert table.heartbeat(members["a"]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert table.waiting == {"b"}
    table.join("a", members["a"])
    first, second = table.joined("a"), table.joined("b")
    assert first.generation == second.generation == 2
    assert first.leader == second.leader == members["a"]
    assert [member.member_id for member in first.members] == ["a-1", "b-2"]
    assert second.members == ()


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [("connect", RANGE), ("", RANGE), ("consumer", {"sticky": b""}), ("consumer", {})],
    ids=["another kind", "no kind", "another protocol", "no protocol"],
)
@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_who_does_not_go_with_the_members_is_refused(state: str, kind: str, protocols: dict[str, bytes]) -> None:
    table = GroupTable()
    if state == "Stable":
        table.stable("a")
    elif state != "Empty":
        table.join("a")
        if state == "PreparingRebalance":
            table.join("x")
    assert table.group.state.value == state
    before = set(table.waiting)
    table.join("b", kind=kind, protocols=protocols)
    answer = table.joined("b")
    if state == "Empty" and kind and protocols:
        assert answer.error is ErrorCode.NONE
        return
    assert (answer.error, answer.member_id, answer.generation) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "", -1)
    assert table.group.state.value == state
    assert table.waiting == before


def test_a_group_that_is_empty_again_may_become_of_another_kind() -> None:
    table = GroupTable()
    members = table.stable("a")
    table.leave(members["a"])
    assert table.group.protocol_type == "consumer"
    table.join("b", kind="connect", protocols={"eager": b""})
    assert (table.joined("b").protocol_type, table.group.generation) == ("connect", 3)


def test_the_protocol_is_the_favourite_of_most_among_those_that_all_support() -> None:
    table = GroupTable(Limits(1000, 1 << 30, 1 << 30))
    table.join("a", protocols={"roundrobin": b"", "range": b"1", "sticky": b""})
    table.join("b", protocols={"sticky": b"", "range": b"2"})
    table.join("c", protocols={"range": b"3", "sticky": b""})
    table.advance(2000)
    first = table.joined("a")
    assert first.protocol == "range", "roundrobin has one vote but not everybody's support; range has two of three"
    assert [member.metadata for member in first.members] == [b"1", b"2", b"3"]


def test_of_protocols_with_as_many_votes_the_longest_members_favourite_is_chosen() -> None:
    table = GroupTable(Limits(1000, 1 << 30, 1 << 30))
    table.join("a", protocols={"sticky": b"", "range": b""})
    table.join("b", protocols={"range": b"", "sticky": b""})
    table.advance(2000)
    assert table.joined("a").protocol == "sticky"


def test_a_member_whose_id_is_not_known_is_told_so() -> None:
    for prepare in (lambda table: None, lambda table: table.join("a"), lambda table: table.stable("a")):
        table = GroupTable()
        prepare(table)
        table.join("b", "never-given")
        answer = table.joined("b")
        assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "never-given")


def test_a_follower_that_joins_again_with_nothing_new_is_told_the_generation_it_is_in() -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.join("b", members["b"])
    answer = table.joined("b")
    assert (answer.error, answer.generation, answer.leader, answer.members) == (ErrorCode.NONE, 2, members["a"], ())
    assert table.where() is GroupState.STABLE


@pytest.mark.parametrize("who", ["a", "b"])
def test_the_leader_or_whoever_has_something_new_starts_a_rebalance_by_joining_again(who: str) -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.join(who, members[who], protocols=RANGE if who == "a" else {"range": subscription("t", "u")})
    assert table.where() is GroupState.PREPARING_REBALANCE
    assert table.waiting == {who}
    table.join_again()
    assert table.joined(who).generation == 3


def test_while_the_leader_works_a_lost_answer_is_given_again_and_news_start_over() -> None:
    table = GroupTable()
    table.join("a")
    lost = table.joined("a")
    table.join("a", "a-1")
    assert table.joined("a") == lost
    assert table.where() is GroupState.COMPLETING_REBALANCE
    table.join("a", "a-1", protocols={"range": subscription("u")})
    assert table.joined("a").generation == 2


def test_the_order_of_protocols_is_something_new() -> None:
    table = GroupTable()
    table.join("a", protocols={"range": b"", "sticky": b""})
    assert table.joined("a").protocol == "range"
    table.join("a", "a-1", protocols={"sticky": b"", "range": b""})
    assert table.joined("a").protocol == "sticky"


def test_joining_again_cancels_the_assignment_that_others_wait_for() -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.join("a", members["a"])
    table.join("b", members["b"])
    table.joined("a")
    table.joined("b")
    table.sync("b", members["b"])
    assert table.waiting == {"b"}
    table.join("c")
    assert table.synced("b").error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.join("first", members["a"])
    table.join("second", members["a"])
    given_up = table.joined("first")
    assert (given_up.error, given_up.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, members["a"])
    table.join("b", members["b"])
    assert table.joined("second").generation == 3


def test_a_new_member_whose_client_is_gone_is_waited_with_for_five_minutes() -> None:
    """Its session timeout does not count yet: it cannot be heard from."""
    table = GroupTable()
    members = table.stable("a", "b")
    table.join("c", rebalance_ms=1_000_000)
    table.join("a", members["a"], rebalance_ms=1_000_000)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // SESSION_MS * 2 - 1):
        table.advance(SESSION_MS // 2)
        assert table.heartbeat(members["b"]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert table.waiting == {"a", "c"}
    table.advance(SESSION_MS // 2)
    answer = table.joined("c")
    assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert table.waiting == {"a"}
    table.join("b", members["b"])
    assert [member.member_id for member in table.joined("a").members] == [members["a"], members["b"]]


def test_members_beyond_the_most_are_refused_in_every_state() -> None:
    table = GroupTable(Limits(1000, 2, 1 << 30))
    table.join("a")
    table.join("b")
    table.join("c")
    assert table.joined("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    table.advance(2000)
    table.join("c")
    assert (table.joined("c").error, table.where()) == (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupState.COMPLETING_REBALANCE)
    table.hand_out({"a": table.joined("a").member_id, "b": table.joined("b").member_id})
    table.join("c")
    answer = table.joined("c")
    assert (answer.error, answer.member_id, table.where()) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "", GroupState.STABLE)


def test_who_fits_in_no_longer_because_the_limit_was_lowered_is_put_out_when_it_joins_again() -> None:
    """The group is loaded with three members where two are allowed: the last to join again finds it full."""
    table = GroupTable()
    members = table.stable("a", "b", "c")
    smaller = GroupTable(Limits(0, 2, 1 << 30), state=table.stores[-1].state)
    assert smaller.group.state is GroupState.PREPARING_REBALANCE
    smaller.join("c", members["c"])
    smaller.join("b", members["b"])
    smaller.join("a", members["a"])
    refused = smaller.joined("a")
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    told = smaller.joined("b")
    assert told.generation == smaller.joined("c").generation == 4
    assert told.leader == members["b"]


def test_what_members_send_is_bounded() -> None:
    table = GroupTable(Limits(0, 1 << 30, 10_000))
    members = table.stable("a")
    table.join("b", protocols={"range": bytes(9_000)})
    assert table.joined("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.where() is GroupState.STABLE
    table.join("a", members["a"], protocols={"range": bytes(8_000)})
    assert table.joined("a").error is ErrorCode.NONE
    table.join("a", members["a"], protocols={"range": bytes(9_990)})
    assert table.joined("a").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.where() is GroupState.EMPTY, "who would need more than there is is put out"


def test_ids_that_nobody_comes_back_with_are_bounded() -> None:
    table = GroupTable(Limits(0, 1 << 30, 10_000))
    answers = []
    for index in range(100):
        table.join(f"m{index}", version=4)
        answers.append(table.joined(f"m{index}").error)
    assert 20 < answers.count(ErrorCode.MEMBER_ID_REQUIRED) < 60
    assert answers[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.group.roster.held_bytes <= 10_000


def test_a_group_that_is_gone_sends_everybody_to_look_for_the_coordinator() -> None:
    table = GroupTable()
    members = table.stable("a", "b")
    table.join("c")
    table.unload()
    assert table.joined("c").error is ErrorCode.NOT_COORDINATOR
    table.join("a", members["a"])
    assert table.joined("a").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    table.unload()
    assert table.group.deadlines == 0


def test_the_time_of_a_state_is_the_wall_clocks() -> None:
    table = GroupTable()
    table.advance(5000)
    table.join("a")
    assert table.group.state_timestamp_ms == START_MS + 5000
