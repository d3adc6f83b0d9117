"""Runs the machine of one group's members: carries its effects out, and tells it when time is over.

There is one timer for a group, and it is set anew only for a deadline before the one it is set for: a heartbeat moves a member's deadline
and leaves the timer alone, which may then go off with nothing to do, about once in a session timeout.
"""

import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID

from moldau.broker.groups.membership import Membership
from moldau.broker.groups.membership_core import Limits
from moldau.broker.groups.membership_events import Due, Event, Loaded, Store, Stored, Unloaded
from moldau.model.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.groups.coordinator import GroupCoordinator
    from moldau.broker.groups.group import Group
    from moldau.broker.groups.state import GroupState
    from moldau.model.errors import PeerError
    from moldau.ports.clock import Timer

_LOG = logging.getLogger(__name__)

MS = 1000


class GroupRunner:
    """The token of a request is the function that takes its answer."""

    __slots__ = ("_clock", "_coordinator", "_events", "_group", "_stepping", "_timer", "_timer_due_ms", "membership")

    def __init__(self, coordinator: "GroupCoordinator", group: "Group", state: "GroupState | None") -> None:
        """`state`: what was loaded of the group, whose members' sessions begin now; None for a new one."""
        self._coordinator = coordinator
        self._clock = coordinator.clock
        self._group = group
        self._events: deque[Event] = deque()
        self._stepping = False
        self._timer: Timer | None = None
        self._timer_due_ms = inf
        config = coordinator.config
        limits = Limits(config.int("group.initial.rebalance.delay.ms"), config.int("group.max.size"), config.int("group.max.bytes"))
        if state is None:
            self.membership = Membership(group.group_id, limits, group.account)
        else:
            self.membership = Membership.restored(group.group_id, limits, state, group.account)
            self.take(Loaded())

    def take(self, event: Event) -> None:
        """Something has happened. What an effect brings about meanwhile is taken after all effects of its cause."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                for effect in self.membership.step(self._events.popleft(), self._now_ms(), self._clock.time_ms()):
                    if isinstance(effect, Store):
                        self._store(effect)
                    else:
                        self._answer(effect)
        finally:
            self._stepping = False
            self._set_timer()

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """As `Membership.heartbeat`, now."""
        error = self.membership.heartbeat(member_id, group_instance_id, generation, self._now_ms())
        if self.membership.earliest_ms < self._timer_due_ms:
            self._set_timer()
        return error

    def heard_from(self, member_id: str) -> None:
        """A member committed: as good as a heartbeat."""
        self.membership.heard_from(member_id, self._now_ms())
        self._set_timer()

    def close(self, error: "PeerError") -> None:
        """The group ends here: whoever waits is answered `error`."""
        self.take(Unloaded(error.code))

    def new_member_id(self, name: str) -> str:
        """An id for a new member, beginning with its client's or its instance's name, as Kafka's do."""
        return f"{name}-{UUID(bytes=self._coordinator.random_bytes(16), version=4)}"

    @property
    def has_timer(self) -> bool:
        """Whether a timer is set."""
        return self._timer is not None

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * MS)

    def _answer(self, effect: Any) -> None:
        try:
            effect.token(effect)
        except Exception:  # a bug on the way to one client is none of the others' business
            _LOG.exception("answer lost by a bug: group=%s", self._group.group_id)

    def _store(self, effect: Store) -> None:
        def done(error: "PeerError | None") -> None:
            self.take(Stored(effect.ticket, _told(error)))

        self._coordinator.store_group(self._group, effect.state, done)

    def _set_timer(self) -> None:
        due_ms = self.membership.earliest_ms
        if due_ms < self._timer_due_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due_ms = due_ms
            self._timer = self._clock.call_later(max(due_ms - self._now_ms(), 0) / MS, self._time_over)
        elif due_ms == inf and self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_due_ms = None, inf

    def _time_over(self) -> None:
        self._timer, self._timer_due_ms = None, inf
        self.take(Due())


def _told(error: "PeerError | None") -> ErrorCode:
    """What members are told when the group could not be stored. A group that is too large for the topic is no fault of the one who asks."""
    if error is None:
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.MESSAGE_TOO_LARGE else error.code
