"""JoinGroup: who is let in, who is given an id first, and who starts a rebalance.

A request is refused, in this order: when the group is full, when its kind or its protocols do not go with those of the members, when its
member is not known. A client without an id is new; one with an id was a member before, or comes back with the id that it was given.

A static member that comes back without its id takes its old place under a new one (KIP-345), and a client that still uses the old id is
fenced. In a stable group whose protocol does not change by it, no other member notices: the new id is stored, and the member continues with
the assignment that it had. A leader that comes back learns that it leads only if it can skip the assignment (KIP-814); older clients
receive their former id as the leader's, so that they do not compute one that a stable group would ignore.
"""

import logging
from typing import TYPE_CHECKING

from moldau.broker.groups.members import Member, member_size, pending_size, protocols_size
from moldau.broker.groups.states import NO_MEMBER, GroupState, Join, JoinResult, Protocols, StoreGroup
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.rebalance import RebalanceMachine

_LOG = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a new member may wait. It sends no heartbeat before it has a generation, and its client may be gone. Kafka's figure."""
NOTES_INTERVAL_MS = 60_000
"""How often the log says of a group that it is full."""


class Replacement:
    """A static member's new id, while it is being stored, and what to go back to if that fails."""

    __slots__ = ("can_skip_assignment", "generation", "leader", "member", "member_id", "old")

    def __init__(self, group: "RebalanceMachine", member: Member, event: Join) -> None:
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


def join(group: "RebalanceMachine", event: Join) -> None:
    """JoinGroup, in any state."""
    if group.state is GroupState.DEAD:
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


def _join_without_id(group: "RebalanceMachine", event: Join) -> None:
    if event.group_instance_id is not None:
        away = group.roster.static.get(event.group_instance_id)
        if away is None:
            _add(group, event, event.new_member_id)
        else:
            _replace(group, group.roster.members[away], event)
    elif event.needs_known_id:
        group.roster.give_id(event.new_member_id, group.remind(event.session_timeout_ms))
        _refuse(group, event, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
    else:
        _add(group, event, event.new_member_id)


def _add(group: "RebalanceMachine", event: Join, member_id: str) -> None:
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
    group.rebalance_or_complete(f"member {member_id} joins: {event.reason}")


def _join_again(group: "RebalanceMachine", event: Join) -> None:
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        _refuse(group, event, error)
        return
    member = group.roster.members[event.member_id]
    leads = group.roster.leader == member.member_id
    # In a stable group the leader starts a rebalance by joining again: it has seen something that matters to the assignment, such as
    # new partitions. Any other member, and any while the leader works, that has nothing new receives what it may have missed.
    settled = group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and not leads)
    if settled and member.supports(event.protocols):
        members = group.roster.joined_members(group.protocol) if leads else ()
        group.do(
            JoinResult(
                event.token,
                ErrorCode.NONE,
                member.member_id,
                group.generation,
                group.protocol_type,
                group.protocol,
                group.roster.leader or NO_MEMBER,
                members=members,
            )
        )
        return
    group.update(member, event)
    group.rebalance_or_complete(f"member {member.member_id} joins again: {event.reason}")


def _has_room(group: "RebalanceMachine", event: Join) -> bool:
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
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            # Those who wait are counted, not the members: after the limit was lowered, the last to join again are put out.
            return (known is not None and known.joining is not None) or roster.joining < limits.size_max
        case _:
            return known is not None or len(roster) < limits.size_max


def _put_out(group: "RebalanceMachine", event: Join) -> None:
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
    if member is not None and group.state is not GroupState.PREPARING_REBALANCE:
        group.rebalance_or_complete(f"member {event.member_id} no longer fits into the group")
    else:
        group.complete_if_all_joined()


def _goes_with(group: "RebalanceMachine", event: Join) -> bool:
    if not event.protocol_type or not event.protocols:
        return False
    if group.state is GroupState.EMPTY:
        return True
    return group.protocol_type == event.protocol_type and group.roster.can_take(event.protocols)


def _refuse(group: "RebalanceMachine", event: Join, error: ErrorCode, member_id: str | None = None) -> None:
    group.do(JoinResult(event.token, error, event.member_id if member_id is None else member_id))


def _replace(group: "RebalanceMachine", member: Member, event: Join) -> None:
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
    if group.state is GroupState.STABLE and group.roster.choose_protocol() == group.protocol:
        assignments = {member_id: each.assignment for member_id, each in group.roster.members.items()}
        group.do(StoreGroup(group.snapshot(assignments), replacement))
    elif group.state is GroupState.PREPARING_REBALANCE:
        group.complete_if_all_joined()
    else:
        # In CompletingRebalance the leader may know the member by its old id, which would leave the new one without partitions.
        group.prepare_rebalance(reason)


def replacement_stored(group: "RebalanceMachine", replacement: Replacement, error: ErrorCode) -> None:
    """The new id is stored, or is not.

    If a rebalance has begun meanwhile the member waits for its end like the others, and the next generation is stored with the new id. A
    request was answered before if the member has come back once more, as a later request says, of which the id was not stored.
    """
    member = replacement.member
    settled = group.state is GroupState.STABLE and group.generation == replacement.generation
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
    if token is not None:
        group.do(
            JoinResult(
                token,
                error,
                member_id,
                group.generation,
                group.protocol_type,
                group.protocol,
                leader,
                skip_assignment=skip,
                members=group.roster.joined_members(group.protocol) if skip else (),
            )
        )
    group.begin_session(member)


def _rename(group: "RebalanceMachine", member: "Member", member_id: str) -> None:
    if member.member_id in group.unsynced:
        group.unsynced.remove(member.member_id)
        group.unsynced.add(member_id)
    group.roster.rename(member, member_id)
