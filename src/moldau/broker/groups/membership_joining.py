"""JoinGroup: who is let in, who is given an id first, and who starts a rebalance.

A request is refused, in this order: when the group is full, when its kind or its protocols do not go with those of the members, when its
member is not known. Somebody without an id is new; somebody with one was here before, or comes back with the id that it was given.
"""

import logging
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import NO_MEMBER, Join, Joined
from moldau.broker.groups.membership_rebalance import complete_if_all_joined, rebalance_or_complete
from moldau.broker.groups.membership_roster import Member, member_size, pending_size, protocols_size
from moldau.broker.groups.membership_states import State
from moldau.broker.groups.membership_static import replace
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.membership_core import MembershipCore

_LOG = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a new member may wait. It cannot be heard from before it is told a generation, and its client may be gone. Kafka's figure."""
NOTES_INTERVAL_MS = 60_000
"""How often the log says of a group that it is full."""


def join(group: "MembershipCore", event: Join) -> None:
    """JoinGroup, in any state."""
    if group.state is State.DEAD:
        _refuse(group, event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not _has_room(group, event):
        _put_out(group, event)
    elif not _goes_with(group, event):
        _refuse(group, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif event.member_id == NO_MEMBER:
        _join_without_id(group, event)
    elif event.member_id in group.roster.pending and event.group_instance_id is None:
        _add(group, event, event.member_id)
    else:
        _join_again(group, event)


def _join_without_id(group: "MembershipCore", event: Join) -> None:
    if event.group_instance_id is not None:
        away = group.roster.static.get(event.group_instance_id)
        if away is None:
            _add(group, event, event.new_member_id)
        else:
            replace(group, group.roster.members[away], event)
    elif event.needs_known_id:
        group.roster.give_id(event.new_member_id, group.remind(event.session_timeout_ms))
        _refuse(group, event, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
    else:
        _add(group, event, event.new_member_id)


def _add(group: "MembershipCore", event: Join, member_id: str) -> None:
    if group.gathering is not None:
        group.gathering.grew = True
    if not group.roster.members:
        group.protocol_type = event.protocol_type
    member = Member(
        member_id,
        event.group_instance_id,
        event.client_id,
        event.client_host,
        event.session_timeout_ms,
        event.rebalance_timeout_ms,
        event.protocols,
    )
    group.roster.add(member)
    group.wait_to_join(member, event.token)
    group.begin_session(member, NEW_MEMBER_TIMEOUT_MS)
    rebalance_or_complete(group, f"member {member_id} joins: {event.reason}")


def _join_again(group: "MembershipCore", event: Join) -> None:
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        _refuse(group, event, error)
        return
    member = group.roster.members[event.member_id]
    leads = group.roster.leader == member.member_id
    # In a stable group the leader starts a rebalance by joining again: it has seen something that matters to the assignment, such as
    # new partitions. Anybody else, and anybody while the leader works, who has nothing new is told what it may have missed.
    settled = group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not leads)
    if settled and member.supports(event.protocols):
        told = group.roster.told(group.protocol) if leads else ()
        group.do(
            Joined(
                event.token,
                ErrorCode.NONE,
                member.member_id,
                group.generation,
                group.protocol_type,
                group.protocol,
                group.roster.leader or NO_MEMBER,
                members=told,
            )
        )
        return
    group.update(member, event)
    rebalance_or_complete(group, f"member {member.member_id} joins again: {event.reason}")


def _has_room(group: "MembershipCore", event: Join) -> bool:
    roster, limits = group.roster, group.limits
    known = roster.members.get(event.member_id) or roster.members.get(roster.static.get(event.group_instance_id or "", NO_MEMBER))
    grows = protocols_size(event.protocols)
    if known is not None:
        grows -= known.sent_bytes
    else:
        grows += member_size(event.member_id or event.new_member_id, event.group_instance_id, event.client_id, event.client_host)
        if event.member_id in roster.pending:
            grows -= pending_size(event.member_id)
    if roster.held_bytes + grows > limits.bytes_max:
        return False
    if not roster.account.has_room(
        grows, f"JoinGroup of client '{event.client_id}' in group '{group.group_id}'", new=group.generation == 0
    ):
        return False
    match group.state:
        case State.EMPTY:
            return True
        case State.PREPARING_REBALANCE:
            # Those who wait are counted, not the members: after the limit was lowered, the last to join again are put out.
            return (known is not None and known.joining is not None) or roster.joining < limits.size_max
        case _:
            return known is not None or len(roster) < limits.size_max


def _put_out(group: "MembershipCore", event: Join) -> None:
    if group.now_ms - group.full_since_ms >= NOTES_INTERVAL_MS:
        group.full_since_ms = group.now_ms
        _LOG.warning(
            "group is full: group=%s members=%d bytes=%d client=%s",
            group.group_id,
            len(group.roster),
            group.roster.held_bytes,
            event.client_id,
        )
    member = group.roster.members.get(event.member_id)
    if member is not None:
        group.remove(member)
    group.roster.take_back_id(event.member_id)
    _refuse(group, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
    if member is not None and group.state is not State.PREPARING_REBALANCE:
        rebalance_or_complete(group, f"member {event.member_id} no longer fits into the group")
    else:
        complete_if_all_joined(group)


def _goes_with(group: "MembershipCore", event: Join) -> bool:
    if not event.protocol_type or not event.protocols:
        return False
    if group.state is State.EMPTY:
        return True
    return group.protocol_type == event.protocol_type and group.roster.can_take(event.protocols)


def _refuse(group: "MembershipCore", event: Join, error: ErrorCode, member_id: str | None = None) -> None:
    group.do(Joined(event.token, error, event.member_id if member_id is None else member_id))
