"""SyncGroup: the leader's assignment is stored, then every member is told its part.

A member that asks early waits; one that asks late is told at once. Whoever has not asked by the rebalance timeout is put out.
"""

import logging
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import Store, Sync, Synced
from moldau.broker.groups.membership_rebalance import give_up_assignment, prepare_rebalance
from moldau.broker.groups.membership_states import State
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.membership_core import MembershipCore

_LOG = logging.getLogger(__name__)


class AssignmentTicket:
    """An assignment that is being stored."""

    __slots__ = ("assignments",)

    def __init__(self, assignments: dict[str, bytes]) -> None:
        self.assignments = assignments
        """By member id, of all members."""


def sync(group: "MembershipCore", event: Sync) -> None:
    """SyncGroup, in any state."""
    error = _check(group, event)
    if error is not ErrorCode.NONE:
        group.do(Synced(event.token, error))
        return
    member = group.roster.members[event.member_id]
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        group.sync_deadline_ms = inf
    group.wait_to_sync(member, event.token)
    if group.state is State.STABLE:
        group.answer_sync(member, ErrorCode.NONE)
    elif member.member_id == group.roster.leader and group.storing is None:
        _store(group, event.assignments)


def assignment_stored(group: "MembershipCore", ticket: AssignmentTicket, error: ErrorCode) -> None:
    """The assignment is stored, or is not. If a rebalance has begun meanwhile it is of no use any more."""
    if group.storing is not ticket:
        return
    if error is not ErrorCode.NONE:
        _fail(group, error)
        return
    group.storing = None
    group.go_to(State.STABLE)
    group.roster.assign(ticket.assignments)
    for member in group.roster.members.values():
        if member.syncing is not None:
            group.answer_sync(member, ErrorCode.NONE)
            group.begin_session(member)


def _store(group: "MembershipCore", given: Mapping[str, bytes]) -> None:
    assignments = {member_id: given.get(member_id, b"") for member_id in group.roster.members}
    for member_id in group.roster.members:
        if member_id in given:
            continue
        _LOG.warning("leader forgot a member: group=%s generation=%d member=%s", group.group_id, group.generation, member_id)
    roster = group.roster
    grows = max(sum(map(len, assignments.values())) - roster.assigned_bytes, 0)
    has_room = roster.account.has_room(grows, f"assignment of group '{group.group_id}'")
    if roster.held_bytes + grows > group.limits.bytes_max or not has_room:
        _LOG.warning(
            "assignment is too large: group=%s generation=%d bytes=%d", group.group_id, group.generation, roster.assigned_bytes + grows
        )
        _fail(group, ErrorCode.GROUP_MAX_SIZE_REACHED)
        return
    roster.expect_assignment(grows)
    group.storing = AssignmentTicket(assignments)
    group.do(Store(group.snapshot(assignments), group.storing))


def _fail(group: "MembershipCore", error: ErrorCode) -> None:
    give_up_assignment(group, error)
    prepare_rebalance(group, f"the assignment could not be stored: {error.name}")


def _check(group: "MembershipCore", event: Sync) -> ErrorCode:
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if event.protocol_type not in (None, group.protocol_type) or event.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE
