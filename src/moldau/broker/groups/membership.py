"""The members of a group: the classic group protocol as a machine.

`Membership.step` takes what happens and when, and gives what is to be done: answers, and states to store. It has no clock, makes up no
ids, and calls nobody. The states and the moves between them are drawn in :mod:`moldau.broker.groups.membership_states`; the rules are in a
module for each kind of event:

=====================  ==================================================================================================
`membership_joining`   JoinGroup: who is let in, who is given an id first, who starts a rebalance
`membership_static`    JoinGroup of a static member that was away: it takes its old place (KIP-345, KIP-814)
`membership_rebalance` the beginning and the end of the time in which members join; the next generation
`membership_syncing`   SyncGroup: the leader's assignment is stored, then handed out
`membership_leaving`   LeaveGroup, and everything that ends because time is over
=====================  ==================================================================================================

A table of states × requests × outcomes is in ``docs/groups.md``. Facts: Kafka's `GroupMetadataManager` and `ClassicGroup`.

Rules that hold here:

* A generation's assignment is stored before any member is told its part. Joins and heartbeats are not stored and may be lost with the
  broker.
* Who waits is answered once: by what it waited for, by the same member's next request, or because it or the group is gone.
* Deadlines are numbers, not timers. `earliest_ms` is never later than the first of them, so whoever runs the machine needs one timer, and
  a heartbeat costs one assignment.
"""

import logging
from math import inf
from typing import assert_never

from moldau.broker.groups.membership_core import Limits, MembershipCore
from moldau.broker.groups.membership_events import NO_MEMBER, Due, Effect, Event, Join, Leave, Loaded, Stored, Sync, Unloaded
from moldau.broker.groups.membership_joining import join
from moldau.broker.groups.membership_leaving import due, leave
from moldau.broker.groups.membership_rebalance import prepare_rebalance
from moldau.broker.groups.membership_roster import Member
from moldau.broker.groups.membership_states import State
from moldau.broker.groups.membership_static import Replacement, replacement_stored
from moldau.broker.groups.membership_syncing import AssignmentTicket, assignment_stored, sync
from moldau.broker.groups.state import GroupState
from moldau.model.budget import Account
from moldau.model.errors import ErrorCode

_LOG = logging.getLogger(__name__)


class Membership(MembershipCore):
    """See the module."""

    @classmethod
    def restored(cls, group_id: str, limits: Limits, state: GroupState, account: Account | None = None) -> "Membership":
        """The group that was kept as `state`. Its sessions begin with the event `Loaded`."""
        group = cls(group_id, limits, account)
        for each in state.members:
            group.roster.add(Member.restored(each, state.protocol))
        group.roster.expect_assignment(sum(len(each.assignment) for each in state.members))
        group.state = State.STABLE if state.members else State.EMPTY
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
                sync(self, event)
            case Leave():
                leave(self, event)
            case Due():
                due(self)
            case Stored():
                self._stored(event)
            case Loaded():
                self._loaded()
            case Unloaded():
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
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def heard_from(self, member_id: str, now_ms: float) -> None:
        """A member lives: its session begins anew. Kafka takes a commit for that too, in the states Stable and PreparingRebalance."""
        member = self.roster.members.get(member_id)
        if member is not None:
            self.now_ms = now_ms
            self.begin_session(member)

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False) -> ErrorCode:
        """Whether offsets may be committed in this name.

        Without a member and a generation (``""``, None, -1): by a consumer that assigns itself, while the group is empty; in a transaction
        always, since older producers do not say for whom they commit (KIP-447). COORDINATOR_NOT_AVAILABLE for a dead group,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS while the leader works out the next assignment.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id != NO_MEMBER or group_instance_id is not None:
            error = self.check_member(member_id, group_instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional and self.state is not State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes `topic`. Where consumers' subscriptions cannot be read, it may be so."""
        return topic in self.topics if self.topics is not None else self.is_consumer_group

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, nor anybody who was told how to become one."""
        return self.state is State.EMPTY and not self.roster.pending

    @property
    def deadlines(self) -> int:
        """How many deadlines are kept."""
        kept = [self.join_deadline_ms, self.sync_deadline_ms, *(member.deadline_ms for member in self.roster.members.values())]
        return sum(deadline < inf for deadline in kept) + len(self.roster.pending)

    # The short rules

    def _stored(self, event: Stored) -> None:
        match event.ticket:
            case AssignmentTicket():
                assignment_stored(self, event.ticket, event.error)
            case Replacement():
                replacement_stored(self, event.ticket, event.error)
            case _ if event.error is not ErrorCode.NONE:
                # An older generation may come back after a crash; it is without living members then, and ends by itself.
                _LOG.warning("empty group not stored: group=%s error=%s", self.group_id, event.error.name)

    def _loaded(self) -> None:
        for member in self.roster.members.values():
            self.begin_session(member)
        if len(self.roster) > self.limits.size_max:
            prepare_rebalance(self, "more members were loaded than group.max.size allows")

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
        if self.state is not State.DEAD:
            self.go_to(State.DEAD)
