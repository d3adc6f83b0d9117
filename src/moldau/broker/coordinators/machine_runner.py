"""Runs the state machines of a partition: members of a group, a transactional id.

A machine takes events and returns effects. The runner carries the effects out in order, and hands an event that an effect causes to its
machine after all effects of the event before: no machine is entered twice. A store is written first, and its `stored` event comes when it
is committed; so a machine changes what others see, and answers, after that.

A bug in the step of a request, or in an answer, harms its own client only, who receives an error. Any other bug fails the partition, since
its machine may wait for what never comes.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.state_log import KeyValue

_LOG = logging.getLogger(__name__)

Machine = TypeVar("Machine", contravariant=True)
Event = TypeVar("Event")
Effect = TypeVar("Effect")


if TYPE_CHECKING:

    class MachineKind(Protocol[Machine, Event, Effect]):
        """What the runner has to know of one kind of machine."""

        def step(self, machine: Machine, event: Event) -> Iterable[Effect]:
            """Let the machine take an event."""

        @property
        def store(self) -> type:
            """The class of the effects that are stores."""

        @property
        def requests(self) -> tuple[type, ...]:
            """The classes of the events that are requests."""

        def records(self, machine: Machine, effect: Any) -> "Sequence[KeyValue]":
            """What a store appends."""

        def stored(self, machine: Machine, effect: Any, error: PeerError | None) -> Event | None:
            """The event that follows a store; None if the machine does not want to know."""

        def carry_out(self, machine: Machine, effect: Effect) -> object:
            """Do what an effect other than a store asks for: answer a token, write markers."""

        def refuse(self, cause: Event | Effect) -> bool:
            """A bug: answer UNKNOWN_SERVER_ERROR to the request that this is, or that it would have answered. False for others."""


class MachineRunner(Generic[Machine, Event, Effect]):
    """See the module. One for each partition: it ends with the partition's coordinator."""

    __slots__ = ("_coordinator", "_events", "_is_running", "_kind")

    def __init__(self, coordinator: "PartitionCoordinator[Any]", kind: "MachineKind[Machine, Event, Effect]") -> None:
        self._coordinator = coordinator
        self._kind = kind
        self._events: deque[tuple[Machine, Event]] = deque()
        self._is_running = False

    def take(self, machine: Machine, event: Event) -> None:
        """Hand the machine an event: now, or after what is being carried out. Raises what its `step` raises if that is now: a PeerError
        changes nothing.
        """
        events = self._events
        if self._is_running:
            events.append((machine, event))
            return
        self._is_running = True
        step = self._kind.step
        try:
            self.carry_out(machine, step(machine, event))
        except PeerError:
            raise
        except Exception:
            if not isinstance(event, self._kind.requests):
                self._coordinator.fail()
            raise
        finally:
            while events:
                machine, event = events.popleft()
                try:
                    self.carry_out(machine, step(machine, event))
                except Exception:
                    _LOG.exception("event lost by a bug: event=%s", type(event).__name__)
                    self._refuse_or_fail(event)
            self._is_running = False

    def carry_out(self, machine: Machine, effects: Iterable[Effect]) -> None:
        """Carry effects out in order. One that raises does not keep the others from being carried out."""
        kind = self._kind
        store = kind.store
        for effect in effects:
            try:
                if type(effect) is store:
                    self._store(machine, effect)
                else:
                    kind.carry_out(machine, effect)
            except Exception:
                _LOG.exception("effect lost by a bug: effect=%s", type(effect).__name__)
                self._refuse_or_fail(effect)

    def _refuse_or_fail(self, cause: Event | Effect) -> None:
        try:
            if not self._kind.refuse(cause):
                self._coordinator.fail()
        except Exception:
            _LOG.exception("answer lost by a bug: cause=%s", type(cause).__name__)

    def _store(self, machine: Machine, effect: Effect) -> None:
        coordinator, kind = self._coordinator, self._kind
        was_over = coordinator.is_over

        def done(error: PeerError | None) -> None:
            if coordinator.is_over is not was_over:
                return  # it has resigned since, and the state has answered those who wait in the machine
            event = kind.stored(machine, effect, error)
            if event is not None:
                self.take(machine, event)

        coordinator.write(kind.records(machine, effect), None, done)
