"""A rebalance: from the reason for it to the next generation.

Members learn of it by their heartbeats and join again. It ends when all have, or with the longest rebalance timeout of the members; dynamic
members that are missing then are put out, static ones keep their place until their session ends (KIP-345). If nobody at all has come it
goes on.

The first rebalance of an empty group is different: nobody is missing, so it lasts ``group.initial.rebalance.delay.ms``, and another as
long after each stretch in which somebody came, up to the rebalance timeout (KIP-134). Worked example: delay 3 s, rebalance timeout 60 s,
members come at 0 s, 2 s and 7 s. At 3 s somebody has come since the beginning: on to 6 s. Nobody has come since: the generation has two
members, and the third starts a rebalance at 7 s.
"""

import logging
from math import inf
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import NO_MEMBER, Joined, Store
from moldau.broker.groups.membership_states import MOVES, State
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.membership_core import MembershipCore

_LOG = logging.getLogger(__name__)


class Gathering:
    """How long the first rebalance of an empty group still waits."""

    __slots__ = ("delay_ms", "grew", "remaining_ms")

    def __init__(self, delay_ms: int, remaining_ms: int) -> None:
        self.delay_ms = delay_ms
        """The stretch that is running."""
        self.remaining_ms = remaining_ms
        """What may be added to it."""
        self.grew = False
        """Whether somebody came in this stretch."""


def rebalance_or_complete(group: "MembershipCore", reason: str) -> None:
    """Something has changed: rebalance, or if that is under way see whether it is at its end."""
    if State.PREPARING_REBALANCE in MOVES[group.state]:
        prepare_rebalance(group, reason)
    else:
        complete_if_all_joined(group)


def prepare_rebalance(group: "MembershipCore", reason: str) -> None:
    """Have all members join again."""
    _LOG.info("group rebalances: group=%s generation=%d state=%s reason=%s", group.group_id, group.generation, group.state.value, reason)
    was_empty = group.state is State.EMPTY
    if group.state is State.COMPLETING_REBALANCE:
        give_up_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.unsynced.clear()
    group.sync_deadline_ms = inf
    group.go_to(State.PREPARING_REBALANCE)
    timeout_ms = group.roster.rebalance_timeout_ms
    if was_empty:
        delay_ms = group.limits.initial_rebalance_delay_ms
        if delay_ms <= 0:
            _complete(group)
        else:
            group.gathering = Gathering(delay_ms, max(timeout_ms - delay_ms, 0))
            group.join_deadline_ms = group.remind(delay_ms)
    elif group.roster.all_joined:
        _complete(group)
    else:
        group.join_deadline_ms = group.remind(timeout_ms)


def give_up_assignment(group: "MembershipCore", error: ErrorCode) -> None:
    """Tell who waits for this generation's assignment that there will be none."""
    group.storing = None
    for member in group.roster.members.values():
        member.assignment = b""
        if member.syncing is not None:
            group.answer_sync(member, error)
            group.begin_session(member)


def complete_if_all_joined(group: "MembershipCore") -> None:
    """Somebody joined or is no longer expected: it may have been the last. A first rebalance lasts its time."""
    if group.state is State.PREPARING_REBALANCE and group.gathering is None and group.roster.all_joined:
        _complete(group)


def complete_if_nobody_missing(group: "MembershipCore") -> None:
    """Somebody's time is over: nobody else may be expected. That ends a first rebalance too, as in Kafka."""
    if group.state is State.PREPARING_REBALANCE and group.roster.all_joined:
        _complete(group)


def join_time_over(group: "MembershipCore") -> None:
    """The deadline for joining has passed."""
    gathering = group.gathering
    if gathering is not None and gathering.grew and gathering.remaining_ms > 0:
        delay_ms = min(group.limits.initial_rebalance_delay_ms, gathering.remaining_ms)
        group.gathering = Gathering(delay_ms, max(gathering.remaining_ms - gathering.delay_ms, 0))
        group.join_deadline_ms = group.remind(delay_ms)
    else:
        _complete(group)


def _complete(group: "MembershipCore") -> None:
    """Go on with those who have joined."""
    group.join_deadline_ms = inf
    group.gathering = None
    missing = [member for member in group.roster.members.values() if member.joining is None and member.group_instance_id is None]
    for member in missing:
        _LOG.info("member did not join again: group=%s member=%s", group.group_id, member.member_id)
        group.remove(member)
    if group.roster.members and not group.roster.choose_leader():
        group.join_deadline_ms = group.remind(group.roster.rebalance_timeout_ms)
        return
    group.generation += 1
    if group.roster.members:
        _begin_generation(group)
    else:
        _be_empty(group)


def _be_empty(group: "MembershipCore") -> None:
    group.protocol = None
    group.look_up_topics()
    group.go_to(State.EMPTY)
    _LOG.info("group is empty: group=%s generation=%d", group.group_id, group.generation)
    group.do(Store(group.snapshot({}), None))


def _begin_generation(group: "MembershipCore") -> None:
    roster = group.roster
    group.protocol = roster.choose_protocol()
    group.look_up_topics()
    group.go_to(State.COMPLETING_REBALANCE)
    _LOG.info(
        "generation formed: group=%s generation=%d members=%d protocol=%s", group.group_id, group.generation, len(roster), group.protocol
    )
    for member in roster.members.values():
        leads = member.member_id == roster.leader
        if member.joining is not None:
            group.do(
                Joined(
                    member.joining,
                    ErrorCode.NONE,
                    member.member_id,
                    group.generation,
                    group.protocol_type,
                    group.protocol,
                    roster.leader or NO_MEMBER,
                    members=roster.told(group.protocol) if leads else (),
                )
            )
            member.joining = None
        member.is_new = False
        group.begin_session(member)
        group.unsynced.add(member.member_id)
    group.sync_deadline_ms = group.remind(roster.rebalance_timeout_ms)
