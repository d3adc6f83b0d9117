"""Runs the machines of the members of a partition's groups: answers requests, stores generations, wakes machines at their deadlines.

A group has one deadline in the clock, for the earliest of its members, and it is set again only for an earlier one: a heartbeat moves its
member's deadline and leaves that of the group alone, which may then come with nothing to do, about once in a session timeout.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from moldau.broker.coordinators.machine_runner import MachineRunner
from moldau.broker.groups.group import Group
from moldau.broker.groups.membership import Membership
from moldau.broker.groups.rebalance import Limits
from moldau.broker.groups.records import group_key, group_value
from moldau.broker.groups.states import (
    NO_MEMBER,
    DeadlineReached,
    Effect,
    Event,
    GroupLoaded,
    GroupStored,
    GroupUnloaded,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    StoreGroup,
    Sync,
    SyncResult,
)
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.state_log import KeyValue
    from moldau.broker.groups.states import GroupSnapshot
    from moldau.model.config import BrokerConfig
    from moldau.model.errors import PeerError
    from moldau.ports.clock import Clock


class GroupRunner:
    """A :class:`moldau.broker.coordinators.machine_runner.MachineKind`, with the runner of its machines. The token of a request is the
    function that takes its answer.
    """

    __slots__ = ("_clock", "_config", "_coordinator", "take")

    store = StoreGroup
    requests = (Join, Sync, Leave)

    def __init__(self, coordinator: "PartitionCoordinator[Any]", clock: "Clock", config: "BrokerConfig") -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._config = config
        machines: MachineRunner[Group, Event, Effect] = MachineRunner(coordinator, self)
        self.take = machines.take
        """Hand an event to the members of a group that has a membership."""

    def start(self, group: Group) -> None:
        """The group may have members from now on."""
        group.membership = Membership(group.group_id, self._limits(), group.account)

    def restore(self, group: Group, state: "GroupSnapshot") -> None:
        """The group was stored with these members; their sessions begin now."""
        group.is_stored = True
        group.membership = Membership.restored(group.group_id, self._limits(), state, group.account)
        self.take(group, GroupLoaded())

    def heartbeat(self, group: Group, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """As `Membership.heartbeat`, now; UNKNOWN_MEMBER_ID in a group that never had members."""
        membership = group.membership
        if membership is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = membership.heartbeat(member_id, group_instance_id, generation, self._coordinator.now_ms())
        if membership.earliest_ms < group.due_ms:
            self._set_deadline(group, membership)
        return code

    def heard_from(self, group: Group, member_id: str) -> None:
        """A member committed: as good as a heartbeat."""
        membership = group.membership
        if membership is not None:
            membership.heard_from(member_id, self._coordinator.now_ms())
            if membership.earliest_ms < group.due_ms:
                self._set_deadline(group, membership)

    def close(self, group: Group, error: "PeerError") -> None:
        """A group that has a membership ends here: answer `error` to members that wait."""
        self.take(group, GroupUnloaded(error.code))

    # The kind of machine

    def step(self, group: Group, event: Event) -> Iterable[Effect]:
        """Take the step, and set the group's deadline."""
        membership = group.membership
        assert membership is not None
        effects = membership.step(event, self._coordinator.now_ms(), self._clock.time_ms())
        self._set_deadline(group, membership)
        return effects

    def records(self, group: Group, effect: StoreGroup) -> "Sequence[KeyValue]":
        """The record of the group."""
        group.queued += 1
        return ((group_key(group.group_id), group_value(effect.state)),)

    def stored(self, group: Group, effect: StoreGroup, error: "PeerError | None") -> Event:
        """What the group's members have agreed on is stored, or not."""
        group.queued -= 1
        if error is None:
            group.is_stored = True
        return GroupStored(effect.ticket, _code_for_members(error))

    def carry_out(self, _group: Group, effect: Any) -> None:
        """Answer a request."""
        effect.token(effect)

    def refuse(self, cause: Event | Effect) -> bool:
        """Answer UNKNOWN_SERVER_ERROR to a request, or in place of an answer."""
        match cause:
            case Join(token) | JoinResult(token):
                answer: Any = JoinResult(token, ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER)
            case Sync(token) | SyncResult(token):
                answer = SyncResult(token, ErrorCode.UNKNOWN_SERVER_ERROR)
            case Leave(token) | LeaveResult(token):
                answer = LeaveResult(token, ErrorCode.UNKNOWN_SERVER_ERROR)
            case _:
                return False
        answer.token(answer)
        return True

    # Time

    def _limits(self) -> Limits:
        config = self._config
        return Limits(config.int("group.initial.rebalance.delay.ms"), config.int("group.max.size"), config.int("group.max.bytes"))

    def _set_deadline(self, group: Group, membership: Membership) -> None:
        due_ms = membership.earliest_ms
        if due_ms < group.due_ms:
            group.due_ms = due_ms
            self._coordinator.deadline(group, due_ms, partial(self._due, group))
        elif due_ms == inf != group.due_ms:
            group.due_ms = inf
            self._coordinator.deadline(group, None, partial(self._due, group))

    def _due(self, group: Group) -> None:
        group.due_ms = inf
        self.take(group, DeadlineReached())


def _code_for_members(error: "PeerError | None") -> ErrorCode:
    """The code for members when the group could not be stored. A group that is too large for the topic is no fault of a member."""
    if error is None:
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.MESSAGE_TOO_LARGE else error.code
