"""An event loop in virtual time: coroutines run on it as on any other, and while all of them wait, the schedule makes its steps.

The loop is the standard library's own, with a selector that waits for nothing real: `select` runs the schedule until an event has woken a
coroutine, or until the next timer of the loop is due.
"""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any, TypeVarTuple, Unpack

from moldau.testing.simulation.schedule import Schedule

Ts = TypeVarTuple("Ts")


class StuckError(Exception):
    """Nothing can happen any more, and what is waited for has not come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._waker = _Waker(schedule)
        super().__init__(self._waker)

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._schedule.now

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        """Call in the next turn."""
        self._waker.is_awake = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a time."""
        self._waker.is_awake = True
        return super().call_at(when, callback, *args, context=context)


class _Waker(selectors.BaseSelector):
    """A selector whose wait is the schedule's."""

    def __init__(self, schedule: Schedule) -> None:
        self.is_awake = False
        self._schedule = schedule
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Keep what the loop registers, its own wake-up socket; it is never ready."""
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget it."""
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What is registered."""
        return self._keys

    def close(self) -> None:
        """Forget all."""
        self._keys.clear()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Run the schedule; see the module."""
        if timeout is not None and timeout <= 0:
            return []
        schedule = self._schedule
        until = None if timeout is None else schedule.now + timeout
        self.is_awake = False
        while not self.is_awake:
            due = schedule.next_due()
            if due is None and until is None:
                raise StuckError("nothing can happen any more")
            if due is None or (until is not None and due > until):
                assert until is not None
                schedule.now = max(schedule.now, until)
                break
            schedule.step()
        return []
