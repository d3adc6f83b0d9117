"""A static member that comes back without its id: it takes its old place under a new one (KIP-345).

Whoever still uses the old id is fenced. In a stable group whose protocol does not change by it, nobody else notices: the new id is
stored and the member goes on with the assignment that it had. A leader that comes back is told so only if it can skip working out an
assignment (KIP-814); older clients are told that their former id leads, lest they hand out one that a stable group would ignore.
"""

import logging
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import NO_MEMBER, Join, Joined, Protocols, Store
from moldau.broker.groups.membership_rebalance import complete_if_all_joined, prepare_rebalance
from moldau.broker.groups.membership_states import State
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.membership_core import MembershipCore
    from moldau.broker.groups.membership_roster import Member

_LOG = logging.getLogger(__name__)


class Replacement:
    """A static member's new id, while it is being stored, and what to go back to if that fails."""

    __slots__ = ("can_skip_assignment", "generation", "leader", "member", "member_id", "old")

    def __init__(self, group: "MembershipCore", member: "Member", event: Join) -> None:
        self.member = member
        self.member_id = event.new_member_id
        self.generation = group.generation
        self.can_skip_assignment = event.can_skip_assignment
        self.leader = group.roster.leader or NO_MEMBER
        """Who led before."""
        self.old: tuple[str, Protocols, int, int] = (
            member.member_id,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
        )


def replace(group: "MembershipCore", member: "Member", event: Join) -> None:
    """`member` has come back, as `event` says, without its id."""
    replacement = Replacement(group, member, event)
    group.answer_join(member, ErrorCode.FENCED_INSTANCE_ID)
    group.answer_sync(member, ErrorCode.FENCED_INSTANCE_ID)
    _LOG.info(
        "static member is back: group=%s instance=%s old=%s new=%s",
        group.group_id,
        member.group_instance_id,
        member.member_id,
        event.new_member_id,
    )
    _rename(group, member, event.new_member_id)
    member.is_new = False
    group.update(member, event)
    group.begin_session(member)
    reason = f"static member {member.group_instance_id} is back: {event.reason}"
    if group.state is State.STABLE and group.roster.choose_protocol() == group.protocol:
        assignments = {member_id: each.assignment for member_id, each in group.roster.members.items()}
        group.do(Store(group.snapshot(assignments), replacement))
    elif group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(group)
    else:
        # In CompletingRebalance the leader may know the member by its old id, which would leave the new one without partitions.
        prepare_rebalance(group, reason)


def replacement_stored(group: "MembershipCore", replacement: Replacement, error: ErrorCode) -> None:
    """The new id is stored, or is not.

    If a rebalance has begun meanwhile the member waits for its end like the others, and the next generation is stored with the new id.
    """
    member = replacement.member
    settled = group.state is State.STABLE and group.generation == replacement.generation
    if not settled or group.roster.members.get(replacement.member_id) is not member:
        return
    token, member.joining = member.joining, None
    member_id, leader, skip = member.member_id, group.roster.leader or NO_MEMBER, False
    if error is not ErrorCode.NONE:
        _LOG.warning("static member not stored: group=%s instance=%s error=%s", group.group_id, member.group_instance_id, error.name)
        old_id, protocols, member.rebalance_timeout_ms, member.session_timeout_ms = replacement.old
        group.roster.update(member, protocols)
        _rename(group, member, old_id)
        member_id, leader = NO_MEMBER, replacement.leader
    elif replacement.can_skip_assignment:
        skip = leader == member_id
    else:
        leader = replacement.leader
    group.do(
        Joined(
            token,
            error,
            member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            leader,
            skip_assignment=skip,
            members=group.roster.told(group.protocol) if skip else (),
        )
    )
    group.begin_session(member)


def _rename(group: "MembershipCore", member: "Member", member_id: str) -> None:
    if member.member_id in group.unsynced:
        group.unsynced.remove(member.member_id)
        group.unsynced.add(member_id)
    group.roster.rename(member, member_id)
