"""Members that go: by LeaveGroup, or because they were not heard from in time."""

import logging
from math import inf
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import NO_MEMBER, Leave, Leaver, Left
from moldau.broker.groups.membership_rebalance import (
    complete_if_all_joined,
    complete_if_nobody_missing,
    join_time_over,
    prepare_rebalance,
    rebalance_or_complete,
)
from moldau.broker.groups.membership_states import State
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.membership_core import MembershipCore
    from moldau.broker.groups.membership_roster import Member

_LOG = logging.getLogger(__name__)


def leave(group: "MembershipCore", event: Leave) -> None:
    """LeaveGroup, in any state. What follows for the others is done once for all who leave."""
    if group.state is State.DEAD:
        group.do(Left(event.token, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    before = len(group.roster)
    answers = [(leaver, _leave(group, leaver)) for leaver in event.members]
    if len(group.roster) < before:
        rebalance_or_complete(group, f"members left: {before - len(group.roster)}")
    else:
        complete_if_all_joined(group)
    group.do(Left(event.token, ErrorCode.NONE, answers))


def _leave(group: "MembershipCore", leaver: Leaver) -> ErrorCode:
    roster = group.roster
    member_id = leaver.member_id
    if member_id == NO_MEMBER:  # put out by an administrator, who knows the name of its instance alone
        member_id = roster.static.get(leaver.group_instance_id or "", NO_MEMBER)
        error = ErrorCode.UNKNOWN_MEMBER_ID if member_id == NO_MEMBER else ErrorCode.NONE
    elif roster.take_back_id(member_id):
        return ErrorCode.NONE
    else:
        error = group.check_member(member_id, leaver.group_instance_id)
    if error is ErrorCode.NONE:
        _LOG.info("member left: group=%s member=%s reason=%s", group.group_id, member_id, leaver.reason)
        group.remove(roster.members[member_id])
    return error


def due(group: "MembershipCore") -> None:
    """End what has come to its end by now; then look up when the next end is."""
    now_ms = group.now_ms
    for member_id in [member_id for member_id, deadline_ms in group.roster.pending.items() if deadline_ms <= now_ms]:
        group.roster.take_back_id(member_id)
        complete_if_nobody_missing(group)
    for member in [member for member in group.roster.members.values() if member.deadline_ms <= now_ms]:
        _session_over(group, member)
    if group.join_deadline_ms <= now_ms:
        join_time_over(group)
    if group.sync_deadline_ms <= now_ms:
        _sync_time_over(group)
    group.earliest_ms = min(
        group.join_deadline_ms,
        group.sync_deadline_ms,
        *group.roster.pending.values(),
        *(member.deadline_ms for member in group.roster.members.values()),
    )


def _session_over(group: "MembershipCore", member: "Member") -> None:
    if member.deadline_ms > group.now_ms or group.roster.members.get(member.member_id) is not member:
        return  # what the end of another member's session brought about has changed it
    if member.waits:
        member.deadline_ms = inf  # its session begins anew with the answer
        return
    _LOG.info("member was not heard from: group=%s member=%s timeout_ms=%d", group.group_id, member.member_id, member.session_timeout_ms)
    group.remove(member)
    if group.state is State.PREPARING_REBALANCE:
        complete_if_nobody_missing(group)
    else:
        rebalance_or_complete(group, f"member {member.member_id} was not heard from")


def _sync_time_over(group: "MembershipCore") -> None:
    group.sync_deadline_ms = inf
    missing = [group.roster.members[member_id] for member_id in sorted(group.unsynced)]
    for member in missing:
        _LOG.info("member did not sync: group=%s generation=%d member=%s", group.group_id, group.generation, member.member_id)
        group.remove(member)
    if missing:
        prepare_rebalance(group, f"members did not ask for their assignment: {len(missing)}")
