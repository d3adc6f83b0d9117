"""Carries out what the controller decides: reads and writes the store, sends to brokers, answers who asked, keeps time.

One event at a time: what comes while a step's effects are carried out waits until they are. Long work takes turns with others.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from moldau.cluster import queries
from moldau.cluster.control import Control, ControlReply
from moldau.cluster.controller.events import (
    Answer,
    BecameController,
    Continue,
    ContinueLater,
    ControllerFailed,
    ControllerResigned,
    Effect,
    EffectCompleted,
    EpochsRaised,
    Event,
    Read,
    RequestReceived,
    Send,
    Wake,
    WakeUp,
    Write,
)

if TYPE_CHECKING:
    from moldau.cluster.controller.requests import Request

from moldau.cluster.controller.machine import Controller
from moldau.cluster.queries import LiveBroker
from moldau.cluster.store import MetadataStore
from moldau.model.errors import CoordinationError
from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

TURN_S = 0.005
"""So long steps follow each other before others have their turn."""
SendTo = Callable[[LiveBroker, Control, Callable[[ControlReply], object]], object]


class ControllerRunner:
    """See the module."""

    def __init__(
        self,
        controller: Controller,
        store: MetadataStore,
        clock: Clock,
        send: SendTo,
        *,
        soon: Callable[[Callable[[], object]], object],
        became_controller: Callable[[], object] = lambda: None,
        failed: Callable[[CoordinationError], object] = lambda _error: None,
        raised_epochs: Callable[[int], object] = lambda _partitions: None,
        brokers_changed: Callable[[Mapping[int, LiveBroker]], object] = lambda _brokers: None,
        controller_changed: Callable[[int | None], object] = lambda _broker_id: None,
    ) -> None:
        """`send` sends to a broker and calls back with its reply; `soon` calls back when others have had their turn, or at once.

        `brokers_changed` is called with the brokers that a controller sends to, none where this one is not controller;
        `controller_changed` with the broker that is controller, None while that is not known.
        """
        self._controller = controller
        self._store = store
        self._clock = clock
        self._send = send
        self._soon = soon
        self._became_controller = became_controller
        self._failed = failed
        self._raised_epochs = raised_epochs
        self._brokers_changed = brokers_changed
        self._controller_changed = controller_changed
        self._live = controller.image.live
        self._events: deque[Event] = deque()
        self._is_running = False
        self._is_paused = False
        self._is_handing_over = False
        self._timers: dict[int, Timer] = {}
        self._last_timer = 0
        self._last_ticket = 0
        self._asked: dict[int, Callable[[Any], object]] = {}
        store.listen(self.take)

    def stop(self) -> None:
        """Keep no time any more: the broker stops."""
        for timer in self._timers.values():
            timer.cancel()

    def ask(self, request: "Request", done: Callable[[Any], object]) -> None:
        """Have a request carried out; `done` with its outcome, now or later."""
        self._last_ticket += 1
        self._asked[self._last_ticket] = done
        self.take(RequestReceived(self._last_ticket, request))

    def take(self, event: Event) -> None:
        """Have the controller know of an event."""
        self._events.append(event)
        if not self._is_running:
            self._run()

    def _run(self) -> None:
        """Take steps until nothing is left to do, or others should have their turn."""
        self._is_running = True
        until = self._clock.monotonic() + TURN_S
        try:
            while self._events:
                for effect in self._step(self._events.popleft()):
                    try:
                        self._carry_out(effect)
                    except Exception as error:  # the others count all the same
                        _LOG.error("effect of the controller not carried out because of a bug: %s", type(effect).__name__, exc_info=error)
                if self._events and self._clock.monotonic() >= until:
                    self._is_paused = self._is_handing_over = True
                    self._soon(self._resume)
                    self._is_handing_over = False
                    if self._is_paused:
                        return
                    until = self._clock.monotonic() + TURN_S
        finally:
            self._is_running = self._is_paused

    def _step(self, event: Event) -> list[Effect]:
        controller, before = self._controller, self._controller.controller_id
        effects = controller.step(event, self._clock.time_ms())
        if controller.image.live is not self._live:
            self._live = controller.image.live
            self._brokers_changed(controller.image.brokers)
        if controller.controller_id != before:
            self._controller_changed(controller.controller_id)
        return effects

    def _resume(self) -> None:
        """Others have had their turn, or there are none, and `_run` continues by itself."""
        self._is_paused = False
        if not self._is_handing_over:
            self._run()

    def _woken(self, timer: int) -> None:
        del self._timers[timer]
        self.take(WakeUp())

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Read(ticket, query):
                queries.answer(self._store, query, lambda outcome: self.take(EffectCompleted(ticket, outcome)))
            case Write(ticket, changes, epoch_version):
                self._store.write(changes, lambda outcome: self.take(EffectCompleted(ticket, outcome)), epoch_version)
            case Send(ticket, broker, control):
                self._send(broker, control, lambda reply: self.take(EffectCompleted(ticket, reply)))
            case Answer(ticket, outcome):
                self._asked.pop(ticket)(outcome)
            case ContinueLater():
                self._soon(partial(self.take, Continue()))
            case Wake(delay_ms):
                self._last_timer += 1
                self._timers[self._last_timer] = self._clock.call_later(delay_ms / 1000, partial(self._woken, self._last_timer))
            case BecameController(epoch):
                _LOG.info("became controller: epoch=%d", epoch)
                self._became_controller()
            case ControllerResigned():
                _LOG.warning("controller resigned: another broker is controller, or the session with the coordination tree has ended")
            case EpochsRaised(partitions):
                self._raised_epochs(partitions)
            case ControllerFailed(error):
                self._failed(error)
            case _:
                assert_never(effect)
