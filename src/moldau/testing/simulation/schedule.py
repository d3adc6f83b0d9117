"""Virtual time, and who acts next; and an event loop in that time.

An *actor* is a thread of events that happen in order: a broker's thread, one of its disk threads, one direction of a connection. Each
keeps its events by the time at which they are due. A step takes one of the actors that have a due event, at random, and runs the first of
its events; where none is due, time jumps to the next that will be. So whatever the order of events leaves open is drawn from the seed, and
nothing else decides it.

A *group* is what ends or stands still together: a process with all its threads and what arrives for it.

Coroutines run on the loop as on any other, and while all of them wait, the schedule makes its steps. It is the standard library's own, with
a selector that waits for nothing real: `select` runs the schedule until an event has woken a coroutine, or until the next timer of the loop
is due.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from heapq import heappop, heappush
from math import inf
from random import Random
from struct import Struct
from typing import Any, TypeVarTuple, Unpack
from zlib import crc32

START_MS = 1_700_000_000_000
"""The wall's clock when a run starts, in milliseconds since 1970."""


_STEP = Struct("<dI")
"""Time and actor of a step."""


class ScheduledCall:
    """A call that is due at a time. It serves as the timer of a clock."""

    __slots__ = ("actor", "call", "due")

    def __init__(self, actor: "Actor", due: float, call: Callable[[], object]) -> None:
        self.actor = actor
        self.due = due
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Forget the call; harmless when it has run."""
        self.call = None


class Actor:
    """See the module. Invariant: it is in the schedule's list of those that may run while it has due events and its group runs."""

    __slots__ = ("due", "group", "name", "number", "place", "slowness")

    def __init__(self, name: str, number: int, group: "ActorGroup | None") -> None:
        self.name = name
        self.number = number
        self.group = group
        self.due: deque[ScheduledCall] = deque()
        self.place = -1
        """In the list of those that may run; -1 outside."""
        self.slowness = 1.0
        """Its delays are multiplied by this."""


class ActorGroup:
    """See the module."""

    __slots__ = ("actors", "is_over", "is_paused", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.actors: list[Actor] = []
        self.is_over = False
        self.is_paused = False


class Schedule:
    """See the module."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.steps = 0
        self.crc = 0
        """Of all that has happened so far: two runs of a seed differ in it as soon as they differ at all."""
        self.observer: Callable[[Actor], object] | None = None
        """Called after each step, with the actor that ran."""
        self._draw = random.random
        self._later: list[tuple[float, int, ScheduledCall]] = []
        self._ready: list[Actor] = []
        self._posted = 0
        self._actors = 0

    def actor(self, name: str, group: ActorGroup | None = None) -> Actor:
        """One more."""
        self._actors += 1
        actor = Actor(name, self._actors, group)
        if group is not None:
            group.actors.append(actor)
        return actor

    def post(self, actor: Actor, call: Callable[[], object], delay_s: float = 0.0) -> ScheduledCall:
        """Have an actor make a call, after what it has to do by then."""
        self._posted += 1
        event = ScheduledCall(actor, self.now + delay_s * actor.slowness, call)
        if actor.group is None or not actor.group.is_over:
            heappush(self._later, (event.due, self._posted, event))
        return event

    def time_ms(self) -> int:
        """The wall's time."""
        return START_MS + int(self.now * 1000)

    def note(self, what: str) -> None:
        """Have something count among what has happened."""
        self.crc = crc32(what.encode(), self.crc)

    def observe(self, observer: Callable[[Actor], object]) -> None:
        """Call one more after each step, with the actor that ran."""
        before = self.observer

        def both(actor: Actor) -> None:
            assert before is not None, "there is one"
            before(actor)
            observer(actor)

        self.observer = observer if before is None else both

    def next_due(self) -> float:
        """Before this time nothing happens that is planned now; infinite if nothing is."""
        return self.now if self._ready else self._later[0][0] if self._later else inf

    def step(self, until: float = inf) -> bool:
        """Run one event, if one is due now; else go to the time of the next. False, with nothing done, if there is none up to `until`.

        Not beyond that time, even if what is due there cannot run: an event of a process that stands still leaves it to the caller
        whether to continue.
        """
        later, ready, now = self._later, self._ready, self.now
        if not ready:
            while later:
                due, _, event = later[0]
                group = event.actor.group
                if event.call is not None and (group is None or not group.is_over):
                    now = max(now, due)
                    break
                heappop(later)
            else:
                return False
        if now > until:
            return False
        self.now = now
        while later and later[0][0] <= now:
            event = heappop(later)[2]
            actor = event.actor
            group = actor.group
            if event.call is None or (group is not None and group.is_over):
                continue
            actor.due.append(event)
            if actor.place < 0 and (group is None or not group.is_paused):
                actor.place = len(ready)
                ready.append(actor)
        while ready:
            count = len(ready)
            chosen = ready[int(self._draw() * count)] if count > 1 else ready[0]
            events = chosen.due
            event = events.popleft()
            if not events:
                self._withdraw(chosen)
            call = event.call
            if call is None:
                continue
            event.call = None
            self.steps += 1
            self.crc = crc32(_STEP.pack(now, chosen.number), self.crc)
            call()
            if self.observer is not None:
                self.observer(chosen)
            break
        return True

    def pause(self, group: ActorGroup) -> None:
        """Nothing of the group happens until `resume`."""
        group.is_paused = True
        for actor in group.actors:
            self._withdraw(actor)

    def resume(self, group: ActorGroup) -> None:
        """Have it continue."""
        group.is_paused = False
        for actor in group.actors:
            if actor.due and actor.place < 0:
                actor.place = len(self._ready)
                self._ready.append(actor)

    def end(self, group: ActorGroup) -> None:
        """Forget the group's events, and those to come."""
        group.is_over = True
        for actor in group.actors:
            self._withdraw(actor)
            actor.due.clear()

    def _withdraw(self, actor: Actor) -> None:
        place = actor.place
        if place < 0:
            return
        last = self._ready.pop()
        if last is not actor:
            self._ready[place] = last
            last.place = place
        actor.place = -1


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

    def next_due(self) -> float:
        """Before this time nothing happens, in the schedule or on the loop; infinite if nothing is planned."""
        if self._ready:  # type: ignore[attr-defined]
            return self._schedule.now
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return min(self._schedule.next_due(), timers[0].when() if timers else inf)

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        """Call in the next turn."""
        self._waker.is_awake = True
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # what the base does, without its checks of threads: a run calls it very often
        return handle

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
        until = inf if timeout is None else schedule.now + timeout
        self.is_awake = False
        while not self.is_awake:
            if not schedule.step(until):
                if timeout is None:
                    raise StuckError("nothing can happen any more")
                schedule.now = max(schedule.now, until)
                break
        return []
