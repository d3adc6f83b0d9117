"""The members of a group: the classic group protocol as a machine.

`Membership.step` takes an event and its time, and returns effects: answers, and states to store. It has no clock and makes up no ids. The
parts of the machine, lowest first:

=============  =====================================================================================================
`states`       the states of a group and the moves between them, drawn; what is stored of a group
`events`       events and effects
`members`      the members, their leader and protocols, and what they take of memory
`rebalance`    from the reason for a rebalance to the stored assignment of the next generation; SyncGroup
`joining`      JoinGroup: who is accepted, who receives an id first; static members that come back
`membership`   heartbeats, commits, LeaveGroup, and what ends at a deadline
=============  =====================================================================================================

A table of states × requests × outcomes is in ``docs/groups.md``. Facts: Kafka's `GroupMetadataManager` and `ClassicGroup`.

Rules that hold here:

* A generation's assignment is stored before any member receives it. Joins and heartbeats are not stored and may be lost with the broker.
* A request that waits is answered once: by what it waited for, by the same member's next request, or because its member or group ends.
* Deadlines are numbers, not timers. `earliest_ms` is never later than the first of them, so a group needs one timer, and a heartbeat costs
  one assignment.
"""

import logging
from math import inf
from typing import assert_never

from moldau.broker.admission.state import Account
from moldau.broker.groups.joining import Replacement, join, replacement_stored
from moldau.broker.groups.members import Member
from moldau.broker.groups.rebalance import AssignmentTicket, Limits, RebalanceMachine
from moldau.broker.groups.states import (
    NO_MEMBER,
    DeadlineReached,
    Effect,
    Event,
    GroupLoaded,
    GroupSnapshot,
    GroupState,
    GroupStored,
    GroupUnloaded,
    Join,
    Leave,
    LeaveResult,
    LeavingMember,
    Sync,
)
from moldau.model.errors import ErrorCode

_LOG = logging.getLogger(__name__)


class Membership(RebalanceMachine):
    """See the module."""

    @classmethod
    def restored(cls, group_id: str, limits: Limits, state: GroupSnapshot, account: Account | None = None) -> "Membership":
        """The group that was stored as `state`. Its sessions begin with the event `GroupLoaded`."""
        group = cls(group_id, limits, account)
        for each in state.members:
            group.roster.add(Member.restored(each, state.protocol))
        group.roster.expect_assignment(sum(len(each.assignment) for each in state.members))
        group.state = GroupState.STABLE if state.members else GroupState.EMPTY
        group.generation = state.generation
        group.protocol_type = state.protocol_type or None
        group.protocol = state.protocol
        if state.leader in group.roster.members:
            group.roster.leader = state.leader
        group.state_timestamp_ms = state.state_timestamp_ms
        group.look_up_topics()
        return group

    def step(self, event: Event, now_ms: float, time_ms: int) -> list[Effect]:
        """What is to be done because of `event`, in this order. Times: of a clock that never goes back, and since 1970."""
        self.now_ms = now_ms
        self.time_ms = time_ms
        effects: list[Effect] = []
        self._effects = effects
        match event:
            case Join():
                join(self, event)
            case Sync():
                self.sync(event)
            case Leave():
                self._leave(event)
            case DeadlineReached():
                self._due()
            case GroupStored():
                self._stored(event)
            case GroupLoaded():
                self._loaded()
            case GroupUnloaded():
                self._unloaded(event.error)
            case _:
                assert_never(event)
        return effects

    # Questions, answered at once

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation: int, now_ms: float) -> ErrorCode:
        """A member says that it lives: REBALANCE_IN_PROGRESS if it has to join again.

        COORDINATOR_NOT_AVAILABLE for a dead group, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        error = self.check_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.heard_from(member_id, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def heard_from(self, member_id: str, now_ms: float) -> None:
        """A member lives: its session begins again. Kafka takes a commit for that too, in the states Stable and PreparingRebalance."""
        member = self.roster.members.get(member_id)
        if member is not None:
            self.now_ms = now_ms
            member.deadline_ms = self.remind(member.session_timeout_ms)

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False) -> ErrorCode:
        """Whether offsets may be committed in this name.

        Without a member and a generation (``""``, None, -1): by a consumer that assigns itself, while the group is empty; in a transaction
        always, since older producers do not say for whom they commit (KIP-447). COORDINATOR_NOT_AVAILABLE for a dead group,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS while the leader works out the next assignment.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id != NO_MEMBER or group_instance_id is not None:
            error = self.check_member(member_id, group_instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional and self.state is not GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes `topic`. Where consumers' subscriptions cannot be read, it may be so."""
        return topic in self.topics if self.topics is not None else self.is_consumer_group

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and has given no id that may still be used."""
        return self.state is GroupState.EMPTY and not self.roster.pending

    @property
    def deadlines(self) -> int:
        """How many deadlines are kept."""
        kept = [self.join_deadline_ms, self.sync_deadline_ms, *(member.deadline_ms for member in self.roster.members.values())]
        return sum(deadline < inf for deadline in kept) + len(self.roster.pending)

    # Leaving, and time

    def _leave(self, event: Leave) -> None:
        """LeaveGroup, in any state. What follows for the others is done once for all who leave."""
        if self.state is GroupState.DEAD:
            self.do(LeaveResult(event.token, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        before = len(self.roster)
        answers = [(leaver, self._leave_one(leaver)) for leaver in event.members]
        if len(self.roster) < before:
            self.rebalance_or_complete(f"members left: {before - len(self.roster)}")
        else:
            self.complete_if_all_joined()
        self.do(LeaveResult(event.token, ErrorCode.NONE, answers))

    def _leave_one(self, leaver: LeavingMember) -> ErrorCode:
        roster = self.roster
        member_id = leaver.member_id
        if member_id == NO_MEMBER:  # put out by an administrator, who knows the name of its instance alone
            member_id = roster.static.get(leaver.group_instance_id or "", NO_MEMBER)
            error = ErrorCode.UNKNOWN_MEMBER_ID if member_id == NO_MEMBER else ErrorCode.NONE
        elif roster.take_back_id(member_id):
            return ErrorCode.NONE
        else:
            error = self.check_member(member_id, leaver.group_instance_id)
        if error is ErrorCode.NONE:
            _LOG.info("member left: group=%s member=%s reason=%s", self.group_id, member_id, leaver.reason)
            self.remove(roster.members[member_id])
        return error

    def _due(self) -> None:
        """End what has come to its end by now; then look up when the next end is."""
        now_ms = self.now_ms
        for member_id in [member_id for member_id, deadline_ms in self.roster.pending.items() if deadline_ms <= now_ms]:
            self.roster.take_back_id(member_id)
            self.complete_if_none_missing()
        for member in [member for member in self.roster.members.values() if member.deadline_ms <= now_ms]:
            self._session_over(member)
        if self.join_deadline_ms <= now_ms:
            self.join_time_over()
        if self.sync_deadline_ms <= now_ms:
            self._sync_time_over()
        self.earliest_ms = min(
            self.join_deadline_ms,
            self.sync_deadline_ms,
            *self.roster.pending.values(),
            *(member.deadline_ms for member in self.roster.members.values()),
        )

    def _session_over(self, member: Member) -> None:
        if member.deadline_ms > self.now_ms or self.roster.members.get(member.member_id) is not member:
            return  # what the end of another member's session brought about has changed it
        if member.waits:
            member.deadline_ms = inf  # its session begins again with the answer
            return
        _LOG.info("member was not heard from: group=%s member=%s timeout_ms=%d", self.group_id, member.member_id, member.session_timeout_ms)
        self.remove(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_none_missing()
        else:
            self.rebalance_or_complete(f"member {member.member_id} was not heard from")

    def _sync_time_over(self) -> None:
        self.sync_deadline_ms = inf
        missing = [self.roster.members[member_id] for member_id in sorted(self.unsynced)]
        for member in missing:
            _LOG.info("member did not sync: group=%s generation=%d member=%s", self.group_id, self.generation, member.member_id)
            self.remove(member)
        if missing:
            self.prepare_rebalance(f"members did not ask for their assignment: {len(missing)}")

    # Stores, the beginning and the end

    def _stored(self, event: GroupStored) -> None:
        match event.ticket:
            case AssignmentTicket():
                self.assignment_stored(event.ticket, event.error)
            case Replacement():
                replacement_stored(self, event.ticket, event.error)
            case _ if event.error is not ErrorCode.NONE:
                # An older generation may come back after a crash; it is without living members then, and ends by itself.
                _LOG.warning("empty group not stored: group=%s error=%s", self.group_id, event.error.name)

    def _loaded(self) -> None:
        for member in self.roster.members.values():
            self.begin_session(member)
        if len(self.roster) > self.limits.size_max:
            self.prepare_rebalance("more members were loaded than group.max.size allows")

    def _unloaded(self, error: ErrorCode) -> None:
        for member in self.roster.members.values():
            self.answer_join(member, error)
            self.answer_sync(member, error)
            member.deadline_ms = inf
        for member_id in list(self.roster.pending):
            self.roster.take_back_id(member_id)
        self.unsynced.clear()
        self.storing = None
        self.join_deadline_ms = self.sync_deadline_ms = self.earliest_ms = inf
        if self.state is not GroupState.DEAD:
            self.go_to(GroupState.DEAD)
