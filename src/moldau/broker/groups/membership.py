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
from typing import NamedTuple, assert_never

from moldau.broker.groups.membership_events import (
    NO_MEMBER,
    Due,
    Effect,
    Event,
    Join,
    Joined,
    Leave,
    Loaded,
    Stored,
    Sync,
    Synced,
    Token,
    Unloaded,
)
from moldau.broker.groups.membership_joining import join
from moldau.broker.groups.membership_leaving import due, leave
from moldau.broker.groups.membership_rebalance import Gathering, prepare_rebalance
from moldau.broker.groups.membership_roster import Member, Roster
from moldau.broker.groups.membership_states import MOVES, State
from moldau.broker.groups.membership_static import Replacement, replacement_stored
from moldau.broker.groups.membership_syncing import AssignmentTicket, assignment_stored, sync
from moldau.broker.groups.state import NO_TIMESTAMP, GroupState
from moldau.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from moldau.model.errors import ErrorCode

_LOG = logging.getLogger(__name__)


class Limits(NamedTuple):
    """Bounds of a group and its first delay."""

    initial_rebalance_delay_ms: int
    """``group.initial.rebalance.delay.ms``"""
    size_max: int
    """Members; ``group.max.size``."""
    bytes_max: int
    """What members sent and were assigned, with something for each of them; ``group.max.bytes``."""


class Membership:
    """See the module."""

    def __init__(self, group_id: str, limits: Limits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """What kind of group its members made it: ``consumer``, ``connect``, ...; None if it never had any."""
        self.protocol: str | None = None
        """How this generation shares out partitions; None without members."""
        self.state_timestamp_ms = NO_TIMESTAMP
        """When it came into its state, by the wall's clock."""
        self.roster = Roster()
        self.topics: frozenset[str] | None = None
        """What consumers are subscribed to; None where that is not known, or not said."""

        self.earliest_ms = inf
        """No deadline is before this."""
        self.join_deadline_ms = inf
        """When members that have not joined again are given up."""
        self.sync_deadline_ms = inf
        """When members that have not asked for their assignment are given up."""
        self.gathering: Gathering | None = None
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

    @classmethod
    def restored(cls, group_id: str, limits: Limits, state: GroupState) -> "Membership":
        """The group that was kept as `state`. Its sessions begin with the event `Loaded`."""
        group = cls(group_id, limits)
        for each in state.members:
            group.roster.add(Member.restored(each, state.protocol))
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

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether this is a member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID if another took its place (KIP-345), or NONE.

        COORDINATOR_NOT_AVAILABLE for a dead group.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            known = self.roster.static.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.roster.members else ErrorCode.UNKNOWN_MEMBER_ID

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
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers, rather than workers of Kafka Connect or the like."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, nor anybody who was told how to become one."""
        return self.state is State.EMPTY and not self.roster.pending

    @property
    def deadlines(self) -> int:
        """How many deadlines are kept."""
        kept = [self.join_deadline_ms, self.sync_deadline_ms, *(member.deadline_ms for member in self.roster.members.values())]
        return sum(deadline < inf for deadline in kept) + len(self.roster.pending)

    # What the rules are made of

    def do(self, effect: Effect) -> None:
        """Have it done at the end of the step."""
        self._effects.append(effect)

    def go_to(self, state: State) -> None:
        """The only way to another state."""
        if state not in MOVES[self.state]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.state = state
        self.state_timestamp_ms = self.time_ms

    def begin_session(self, member: Member, timeout_ms: int | None = None) -> None:
        """Expect to hear from a member within its session timeout, or another."""
        member.deadline_ms = self.remind(member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def remind(self, delay_ms: int) -> float:
        """A deadline so far from now."""
        deadline_ms = self.now_ms + delay_ms
        if deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        return deadline_ms

    def update(self, member: Member, event: Join) -> None:
        """A member joins again: what it says now counts."""
        member.take(event.protocols)
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.session_timeout_ms = event.session_timeout_ms
        self.wait_to_join(member, event.token)

    def wait_to_join(self, member: Member, token: Token) -> None:
        """Answer this JoinGroup later. One that waited before is answered: its client has given it up."""
        self.answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.joining = token

    def answer_join(self, member: Member, error: ErrorCode, member_id: str | None = None) -> None:
        """Tell a member that waits to join that it did not."""
        if member.joining is not None:
            self.do(Joined(member.joining, error, member.member_id if member_id is None else member_id))
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
            self.do(Synced(member.syncing, error, self.protocol_type, self.protocol, member.assignment))
        else:
            self.do(Synced(member.syncing, error))
        member.syncing = None

    def remove(self, member: Member) -> None:
        """Let a member go; whatever it waits for, it is unknown now."""
        self.answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)
        self.answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member)

    def look_up_topics(self) -> None:
        """Read what this generation is subscribed to."""
        if not self.is_consumer_group:
            self.topics = None
            return
        self.topics = subscribed_topics(member.metadata(self.protocol) for member in self.roster.members.values())
        if self.topics is None:
            _LOG.warning("subscriptions cannot be read: group=%s protocol=%s", self.group_id, self.protocol)

    def snapshot(self, assignments: dict[str, bytes]) -> GroupState:
        """What is kept of the group if its members are given these."""
        members = tuple(each.stored(self.protocol, assignments[each.member_id]) for each in self.roster.members.values())
        return GroupState(self.protocol_type or "", self.generation, self.protocol, self.roster.leader, self.state_timestamp_ms, members)

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
        self.roster.pending.clear()
        self.unsynced.clear()
        self.storing = None
        self.join_deadline_ms = self.sync_deadline_ms = self.earliest_ms = inf
        if self.state is not State.DEAD:
            self.go_to(State.DEAD)
