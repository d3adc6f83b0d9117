"""A rebalance: from the reason for it to the next generation.

Members learn of it by their heartbeats and join again. It ends when all have, or with the longest rebalance timeout of the members; dynamic
members that are missing then are removed, static ones keep their place until their session ends (KIP-345). If no member at all has come it
continues.

The first rebalance of an empty group is different: no member is missing, so it lasts ``group.initial.rebalance.delay.ms``, and another as
long after each such delay in which a member joined, up to the rebalance timeout (KIP-134). Worked example: delay 3 s, rebalance timeout
60 s, members join at 0 s, 2 s and 7 s. At 3 s a member has joined since the beginning: it is extended to 6 s. None has joined since: the
generation has two members, and the third starts a rebalance at 7 s.

Then the leader sends the assignment with its SyncGroup. It is stored, and every member that asks receives its part: one that asks early
waits, one that asks late is answered at once. A member that has not asked by the rebalance timeout is removed.
"""

import logging
from collections.abc import Mapping
from math import inf
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.groups.members import CONSUMER_PROTOCOL_TYPE, Member, Roster, subscribed_topics
from moldau.broker.groups.states import (
    MOVES,
    NO_MEMBER,
    NO_TIMESTAMP,
    Effect,
    GroupSnapshot,
    GroupState,
    Join,
    JoinResult,
    StoreGroup,
    Sync,
    SyncResult,
    Token,
)
from moldau.model.errors import ErrorCode
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.admission.state import Account

_LOG = logging.getLogger(__name__)

TOPIC_COST = 70
"""Bytes that a topic of a subscription takes beside its name."""


class Limits(NamedTuple):
    """Bounds of a group and its first delay."""

    initial_rebalance_delay_ms: int
    """``group.initial.rebalance.delay.ms``"""
    size_max: int
    """Members; ``group.max.size``."""
    bytes_max: int
    """What members sent and were assigned, with something for each of them; ``group.max.bytes``."""


class InitialRebalanceDelay:
    """How long the first rebalance of an empty group still waits."""

    __slots__ = ("delay_ms", "grew", "remaining_ms")

    def __init__(self, delay_ms: int, remaining_ms: int) -> None:
        self.delay_ms = delay_ms
        """The delay that is running."""
        self.remaining_ms = remaining_ms
        """What may be added to it."""
        self.grew = False
        """Whether a member joined during this delay."""


class AssignmentTicket:
    """An assignment that is being stored."""

    __slots__ = ("assignments",)

    def __init__(self, assignments: dict[str, bytes]) -> None:
        self.assignments = assignments
        """By member id, of all members."""


class RebalanceMachine:
    """The state of a group, and what forms its generations. `step` of :class:`moldau.broker.groups.membership.Membership` enters it."""

    def __init__(self, group_id: str, limits: Limits, account: "Account | None" = None) -> None:
        """`account` counts the memory of the members; its budget bounds that of all groups."""
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """What kind of group its members made it: ``consumer``, ``connect``, ...; None if it never had any."""
        self.protocol: str | None = None
        """How this generation shares out partitions; None without members."""
        self.state_timestamp_ms = NO_TIMESTAMP
        """When it came into its state, by the wall's clock."""
        self.roster = Roster(account)
        self.topics: frozenset[str] | None = None
        """What consumers are subscribed to; None where that is not known, or not said."""
        self._topics_bytes = 0
        """What the account has for `topics`."""
        self.full_since_ms = -inf
        """When the log last said that the group is full."""

        self.earliest_ms = inf
        """No deadline is before this."""
        self.join_deadline_ms = inf
        """When members that have not joined again are given up."""
        self.sync_deadline_ms = inf
        """When members that have not asked for their assignment are given up."""
        self.gathering: InitialRebalanceDelay | None = None
        """In the first rebalance of an empty group: how long it still waits for members to come."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self.storing: AssignmentTicket | None = None
        """This generation's assignment, while it is being stored."""

        self.now_ms: float = 0
        """The time of the step, by a clock that never goes back."""
        self.time_ms = 0
        """The same by the wall's clock."""
        self._effects: list[Effect] = []

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers, rather than workers of Kafka Connect or the like."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether this is a member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID if another took its place (KIP-345), or NONE.

        COORDINATOR_NOT_AVAILABLE for a dead group.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            known = self.roster.static.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.roster.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Steps

    def do(self, effect: Effect) -> None:
        """Have it done at the end of the step."""
        self._effects.append(effect)

    def go_to(self, state: GroupState) -> None:
        """The only way to another state."""
        if state not in MOVES[self.state]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.state = state
        self.state_timestamp_ms = self.time_ms

    # Time

    def begin_session(self, member: Member, timeout_ms: int | None = None) -> None:
        """Expect to hear from a member within its session timeout, or another."""
        member.deadline_ms = self.remind(member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def remind(self, delay_ms: int) -> float:
        """A deadline so far from now."""
        deadline_ms = self.now_ms + delay_ms
        if deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        return deadline_ms

    # Who waits

    def wait_to_join(self, member: Member, token: Token) -> None:
        """Answer this JoinGroup later. One that waited before is answered: its client has given it up."""
        self.answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.joining = token

    def answer_join(self, member: Member, error: ErrorCode, member_id: str | None = None) -> None:
        """Tell a member that waits to join that it did not."""
        if member.joining is not None:
            self.do(JoinResult(member.joining, error, member.member_id if member_id is None else member_id))
            member.joining = None

    def wait_to_sync(self, member: Member, token: Token) -> None:
        """Answer this SyncGroup later. One that waited before is answered."""
        self.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.syncing = token

    def answer_sync(self, member: Member, error: ErrorCode) -> None:
        """Give a member that waits its assignment, or say why not."""
        if member.syncing is None:
            return
        if error is ErrorCode.NONE:
            self.do(SyncResult(member.syncing, error, self.protocol_type, self.protocol, member.assignment))
        else:
            self.do(SyncResult(member.syncing, error))
        member.syncing = None

    # Members

    def update(self, member: Member, event: Join) -> None:
        """A member joins again: what it says now counts."""
        self.roster.update(member, event.protocols)
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.session_timeout_ms = event.session_timeout_ms
        self.wait_to_join(member, event.token)

    def remove(self, member: Member) -> None:
        """Remove a member; a request of it that waits gets UNKNOWN_MEMBER_ID."""
        self.answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)
        self.answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member)

    def look_up_topics(self) -> None:
        """Read what this generation is subscribed to, if there is room for it."""
        account = self.roster.account
        account.add(-self._topics_bytes)
        self.topics, self._topics_bytes = None, 0
        if not self.is_consumer_group:
            return
        topics = subscribed_topics(member.metadata(self.protocol) for member in self.roster.members.values())
        if topics is None:
            _LOG.warning("subscriptions cannot be read: group=%s protocol=%s", self.group_id, self.protocol)
            return
        size = sum(map(getsizeof, topics)) + TOPIC_COST * len(topics)
        if account.has_room(size, f"subscription of group '{self.group_id}'"):
            account.add(size)
            self.topics, self._topics_bytes = topics, size

    def snapshot(self, assignments: dict[str, bytes]) -> GroupSnapshot:
        """What is kept of the group if its members are given these."""
        members = tuple(each.stored(self.protocol, assignments[each.member_id]) for each in self.roster.members.values())
        return GroupSnapshot(self.protocol_type or "", self.generation, self.protocol, self.roster.leader, self.state_timestamp_ms, members)

    # Rebalances

    def rebalance_or_complete(self, reason: str) -> None:
        """Something has changed: rebalance, or if that is under way see whether it is at its end."""
        if GroupState.PREPARING_REBALANCE in MOVES[self.state]:
            self.prepare_rebalance(reason)
        else:
            self.complete_if_all_joined()

    def prepare_rebalance(self, reason: str) -> None:
        """Have all members join again."""
        _LOG.info("group rebalances: group=%s generation=%d state=%s reason=%s", self.group_id, self.generation, self.state.value, reason)
        was_empty = self.state is GroupState.EMPTY
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.give_up_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        self.unsynced.clear()
        self.sync_deadline_ms = inf
        self.go_to(GroupState.PREPARING_REBALANCE)
        timeout_ms = self.roster.rebalance_timeout_ms
        if was_empty:
            delay_ms = self.limits.initial_rebalance_delay_ms
            if delay_ms <= 0:
                self._complete()
            else:
                self.gathering = InitialRebalanceDelay(delay_ms, max(timeout_ms - delay_ms, 0))
                self.join_deadline_ms = self.remind(delay_ms)
        elif self.roster.all_joined:
            self._complete()
        else:
            self.join_deadline_ms = self.remind(timeout_ms)

    def give_up_assignment(self, error: ErrorCode) -> None:
        """Tell who waits for this generation's assignment that there will be none."""
        self.storing = None
        for member in self.roster.members.values():
            member.assignment = b""
            if member.syncing is not None:
                self.answer_sync(member, error)
                self.begin_session(member)

    def complete_if_all_joined(self) -> None:
        """A member joined or is no longer expected: it may have been the last. A first rebalance lasts its time."""
        if self.state is GroupState.PREPARING_REBALANCE and self.gathering is None and self.roster.all_joined:
            self._complete()

    def complete_if_none_missing(self) -> None:
        """A member's time is over: no other may be expected. That ends a first rebalance too, as in Kafka."""
        if self.state is GroupState.PREPARING_REBALANCE and self.roster.all_joined:
            self._complete()

    def join_time_over(self) -> None:
        """The deadline for joining has passed."""
        gathering = self.gathering
        if gathering is not None and gathering.grew and gathering.remaining_ms > 0:
            delay_ms = min(self.limits.initial_rebalance_delay_ms, gathering.remaining_ms)
            self.gathering = InitialRebalanceDelay(delay_ms, max(gathering.remaining_ms - gathering.delay_ms, 0))
            self.join_deadline_ms = self.remind(delay_ms)
        else:
            self._complete()

    def _complete(self) -> None:
        """Continue with the members that have joined."""
        self.join_deadline_ms = inf
        self.gathering = None
        missing = [member for member in self.roster.members.values() if member.joining is None and member.group_instance_id is None]
        for member in missing:
            _LOG.info("member did not join again: group=%s member=%s", self.group_id, member.member_id)
            self.remove(member)
        if self.roster.members and not self.roster.choose_leader():
            self.join_deadline_ms = self.remind(self.roster.rebalance_timeout_ms)
            return
        self.generation += 1
        if self.roster.members:
            self._begin_generation()
        else:
            self._be_empty()

    def _be_empty(self) -> None:
        self.protocol = None
        self.look_up_topics()
        self.go_to(GroupState.EMPTY)
        _LOG.info("group is empty: group=%s generation=%d", self.group_id, self.generation)
        self.do(StoreGroup(self.snapshot({}), None))

    def _begin_generation(self) -> None:
        reached("groups: began a generation")
        roster = self.roster
        self.protocol = roster.choose_protocol()
        self.look_up_topics()
        self.go_to(GroupState.COMPLETING_REBALANCE)
        _LOG.info(
            "generation formed: group=%s generation=%d members=%d protocol=%s", self.group_id, self.generation, len(roster), self.protocol
        )
        for member in roster.members.values():
            leads = member.member_id == roster.leader
            if member.joining is not None:
                self.do(
                    JoinResult(
                        member.joining,
                        ErrorCode.NONE,
                        member.member_id,
                        self.generation,
                        self.protocol_type,
                        self.protocol,
                        roster.leader or NO_MEMBER,
                        members=roster.joined_members(self.protocol) if leads else (),
                    )
                )
                member.joining = None
            member.is_new = False
            self.begin_session(member)
            self.unsynced.add(member.member_id)
        self.sync_deadline_ms = self.remind(roster.rebalance_timeout_ms)

    # The assignment

    def sync(self, event: Sync) -> None:
        """SyncGroup, in any state."""
        error = self._check_sync(event)
        if error is not ErrorCode.NONE:
            self.do(SyncResult(event.token, error))
            return
        member = self.roster.members[event.member_id]
        self.unsynced.discard(member.member_id)
        if not self.unsynced:
            self.sync_deadline_ms = inf
        self.wait_to_sync(member, event.token)
        if self.state is GroupState.STABLE:
            self.answer_sync(member, ErrorCode.NONE)
        elif member.member_id == self.roster.leader and self.storing is None:
            self._store_assignment(event.assignments)

    def assignment_stored(self, ticket: AssignmentTicket, error: ErrorCode) -> None:
        """The assignment is stored, or is not. If a rebalance has begun meanwhile it is of no use any more."""
        if self.storing is not ticket:
            return
        if error is not ErrorCode.NONE:
            self._fail_assignment(error)
            return
        self.storing = None
        self.go_to(GroupState.STABLE)
        self.roster.assign(ticket.assignments)
        for member in self.roster.members.values():
            if member.syncing is not None:
                self.answer_sync(member, ErrorCode.NONE)
                self.begin_session(member)

    def _store_assignment(self, given: Mapping[str, bytes]) -> None:
        assignments = {member_id: given.get(member_id, b"") for member_id in self.roster.members}
        for member_id in self.roster.members:
            if member_id in given:
                continue
            _LOG.warning("leader forgot a member: group=%s generation=%d member=%s", self.group_id, self.generation, member_id)
        roster = self.roster
        grows = max(sum(map(len, assignments.values())) - roster.assigned_bytes, 0)
        has_room = roster.account.has_room(grows, f"assignment of group '{self.group_id}'")
        if roster.held_bytes + grows > self.limits.bytes_max or not has_room:
            _LOG.warning(
                "assignment is too large: group=%s generation=%d bytes=%d", self.group_id, self.generation, roster.assigned_bytes + grows
            )
            self._fail_assignment(ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        roster.expect_assignment(grows)
        self.storing = AssignmentTicket(assignments)
        self.do(StoreGroup(self.snapshot(assignments), self.storing))

    def _fail_assignment(self, error: ErrorCode) -> None:
        self.give_up_assignment(error)
        self.prepare_rebalance(f"the assignment could not be stored: {error.name}")

    def _check_sync(self, event: Sync) -> ErrorCode:
        error = self.check_member(event.member_id, event.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if event.protocol_type not in (None, self.protocol_type) or event.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE
