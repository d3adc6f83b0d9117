"""What the rules about members work on: the state of a group, and the few things that they do to it.

The rules themselves are functions in the modules that :mod:`moldau.broker.groups.membership` names.
"""

import logging
from math import inf
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.groups.membership_events import NO_MEMBER, Effect, Join, Joined, Synced, Token
from moldau.broker.groups.membership_roster import Member, Roster
from moldau.broker.groups.membership_states import MOVES, State
from moldau.broker.groups.state import NO_TIMESTAMP, GroupState
from moldau.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.membership_rebalance import Gathering
    from moldau.broker.groups.membership_syncing import AssignmentTicket
    from moldau.model.budget import Account

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


class MembershipCore:
    """See the module."""

    def __init__(self, group_id: str, limits: Limits, account: "Account | None" = None) -> None:
        """`account` counts the memory of the members; its budget bounds that of all groups."""
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

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers, rather than workers of Kafka Connect or the like."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

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

    # Steps

    def do(self, effect: Effect) -> None:
        """Have it done at the end of the step."""
        self._effects.append(effect)

    def go_to(self, state: State) -> None:
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

    # Members

    def update(self, member: Member, event: Join) -> None:
        """A member joins again: what it says now counts."""
        self.roster.update(member, event.protocols)
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.session_timeout_ms = event.session_timeout_ms
        self.wait_to_join(member, event.token)

    def remove(self, member: Member) -> None:
        """Let a member go; whatever it waits for, it is unknown now."""
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

    def snapshot(self, assignments: dict[str, bytes]) -> GroupState:
        """What is kept of the group if its members are given these."""
        members = tuple(each.stored(self.protocol, assignments[each.member_id]) for each in self.roster.members.values())
        return GroupState(self.protocol_type or "", self.generation, self.protocol, self.roster.leader, self.state_timestamp_ms, members)
