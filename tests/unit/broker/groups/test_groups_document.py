"""The table of states and requests in docs/groups.md is what the machine does, cell by cell."""

from collections.abc import Callable

import pytest

from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.states import GroupState, JoinResult, LeaveResult, SyncResult
from moldau.model.errors import ErrorCode
from support.groups_document import NO_SUCH_REQUEST, STATES, cell, title_and_rows
from support.memberships import RANGE, GroupTable, subscription

LEADER, FOLLOWER, FORMER = "one-1", "two-3", "two-2"
TITLES, ROWS = title_and_rows()


def in_state(state: GroupState) -> GroupTable:
    """one-1 leads, two-3 follows and was two-2 before; in PreparingRebalance a third waits."""
    table = GroupTable(Limits(3000, 100, 1 << 20))
    if state is GroupState.EMPTY:
        return table
    table.join("a", instance="one")
    table.join("b", instance="two")
    table.advance(6000)
    table.hand_out({"a": table.joined("a").member_id, "b": table.joined("b").member_id})
    table.join("b", instance="two")
    assert table.joined("b").member_id == FOLLOWER
    if state is GroupState.PREPARING_REBALANCE:
        table.join("third")
    elif state is GroupState.COMPLETING_REBALANCE:
        table.join("a", LEADER)
        table.join("b", FOLLOWER)
        table.answers.clear()
    elif state is GroupState.DEAD:
        table.unload()
    assert table.where() is state
    return table


def come_with_id(table: GroupTable) -> None:
    table.join("told", version=4)
    told = table.joined("told")
    table.join("x", told.member_id or "nobody", version=4)


def come_when_full(table: GroupTable) -> None:
    """In a rebalance those who wait are counted."""
    roster = table.group.roster
    table.group.limits = Limits(3000, roster.joining or len(roster), 1 << 20)
    table.join("x")


REQUESTS: dict[str, Callable[[GroupTable], object]] = {
    "JoinGroup: new, before version 4": lambda table: table.join("x"),
    "JoinGroup: new, from version 4": lambda table: table.join("x", version=4),
    "JoinGroup: with the id it was given": come_with_id,
    "JoinGroup: new, static": lambda table: table.join("x", instance="three"),
    "JoinGroup: new, group.max.size reached": come_when_full,
    "JoinGroup: of another protocol type": lambda table: table.join("x", kind="connect"),
    "JoinGroup: without a common protocol": lambda table: table.join("x", protocols={"sticky": b""}),
    "JoinGroup: unknown id": lambda table: table.join("x", "nobody"),
    "JoinGroup: leader again": lambda table: table.join("x", LEADER),
    "JoinGroup: follower again, nothing new": lambda table: table.join("x", FOLLOWER, protocols=RANGE),
    "JoinGroup: follower again, other subscription": lambda table: table.join("x", FOLLOWER, protocols={"range": subscription("u")}),
    "JoinGroup: static follower that lost its id": lambda table: table.join("x", instance="two"),
    "JoinGroup: static, under a former id": lambda table: table.join("x", FORMER, instance="two"),
    "SyncGroup: leader": lambda table: table.sync("x", LEADER),
    "SyncGroup: follower": lambda table: table.sync("x", FOLLOWER),
    "SyncGroup: of another generation": lambda table: table.sync("x", FOLLOWER, generation=0),
    "SyncGroup: of another type or protocol": lambda table: table.sync("x", FOLLOWER, protocol="sticky"),
    "SyncGroup: unknown id": lambda table: table.sync("x", "nobody"),
    "SyncGroup: static, under a former id": lambda table: table.sync("x", FORMER, instance="two"),
    "Heartbeat: member": lambda table: table.heartbeat(FOLLOWER),
    "Heartbeat: of another generation": lambda table: table.heartbeat(FOLLOWER, 0),
    "Heartbeat: unknown id": lambda table: table.heartbeat("nobody"),
    "Heartbeat: static, under a former id": lambda table: table.heartbeat(FORMER, instance="two"),
    "LeaveGroup: member": lambda table: table.leave_all("x", FOLLOWER),
    "LeaveGroup: by the name of its instance": lambda table: table.leave_all("x", ("", "two")),
    "LeaveGroup: all members at once": lambda table: table.leave_all("x", LEADER, FOLLOWER),
    "LeaveGroup: unknown id": lambda table: table.leave_all("x", "nobody"),
    "LeaveGroup: static, under a former id": lambda table: table.leave_all("x", (FORMER, "two")),
    "OffsetCommit: member": lambda table: table.group.check_commit(FOLLOWER, None, table.group.generation),
    "OffsetCommit: of another generation": lambda table: table.group.check_commit(FOLLOWER, None, 0),
    "OffsetCommit: without a member": lambda table: table.group.check_commit("", None, -1),
    "TxnOffsetCommit: member": lambda table: table.group.check_commit(FOLLOWER, None, table.group.generation, transactional=True),
    "TxnOffsetCommit: without a member": lambda table: table.group.check_commit("", None, -1, transactional=True),
}


def outcome(table: GroupTable, request: str) -> str:
    """What a cell should say."""
    before = table.where()
    result = REQUESTS[request](table)
    if isinstance(result, ErrorCode):
        said = result.name
    elif "x" in table.waiting:
        said = "waits"
    else:
        answer = table.answers.pop("x")
        assert isinstance(answer, JoinResult | SyncResult | LeaveResult)
        said = answer.error.name
        if isinstance(answer, LeaveResult) and answer.error is ErrorCode.NONE:
            (said,) = {code.name for _, code in answer.members}
    return cell(said, before, table.where())


@pytest.mark.parametrize("request_", ROWS)
def test_every_cell_is_so(request_: str) -> None:
    for state, says in ROWS[request_].items():
        if says != NO_SUCH_REQUEST:
            assert (state, outcome(in_state(state), request_)) == (state, says)


def test_every_request_has_its_row() -> None:
    assert [*TITLES] == ["request", *(state.value for state in STATES)]
    assert list(ROWS) == list(REQUESTS)
