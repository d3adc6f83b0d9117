"""A process of coroutines: an event loop of its own, as an actor of the schedule.

It stands still and ends as a broker's process does: nothing of it happens while its group is paused, and after `end` nothing that its
coroutines still do has an effect. They are cancelled there, in a void of timers that never fire and connections that are over, so that each
of them comes to its end then and not when it is collected.
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack

from moldau.ports.transport import ConnectError
from moldau.testing.simulation.network import Accept, ClientNetwork, Party, SimulatedConnectAttempt, SimulatedNetwork
from moldau.testing.simulation.schedule import ActorGroup, Schedule, ScheduledCall

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
VOID_TURNS_MAX = 1000
"""Within so many turns of the loop coroutines that are cancelled have ended, or wait for what never comes."""


class ProcessLoop(asyncio.AbstractEventLoop):
    """See the module. It has what coroutines over ports need, and nothing of sockets, threads and signals."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.group = ActorGroup(name)
        self.is_over = False
        self.errors: list[str] = []
        """What no coroutine has taken."""
        self._schedule = schedule
        self._actor = schedule.actor(f"{name} thread", self.group)
        self._ready: deque[asyncio.Handle] = deque()
        self._turn: ScheduledCall | None = None
        self._turns = 0
        self._planned: dict[int, Callable[[], object]] = {}
        """Calls from outside, by the turns before which they are made."""
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def run(self, call: Callable[[], T]) -> T | None:
        """Make a call of the process: none once it has ended."""
        if self.is_over:
            return None
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return call()
        finally:
            events._set_running_loop(before)

    def end(self) -> None:
        """The process is gone, now."""
        self._schedule.end(self.group)
        tasks = list(self._tasks)

        def cancel() -> None:
            for task in tasks:
                task.cancel()
            for _ in range(VOID_TURNS_MAX):
                if not self._ready:
                    break
                self._run_ready()

        self.run(cancel)
        self.is_over = True

    def post(self, call: Callable[[], object], delay_s: float = 0.0) -> ScheduledCall:
        """Have the process make a call later."""
        return self._schedule.post(self._actor, partial(self.run, call), delay_s)

    def in_turns(self, turns: int, call: Callable[[], object]) -> None:
        """Have the world make a call before so many turns from now: in the middle of what the process does, not while it waits."""
        self._planned[self._turns + turns] = call

    # The loop

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._schedule.now

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        """Call in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_over:
            self._ready.append(handle)
            if self._turn is None or self._turn.call is None:
                self._turn = self.post(self._run_ready)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call after so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.post(partial(_run, handle), max(when - self.time(), 0.0))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        """Run a coroutine."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nothing else has taken."""
        if not self.is_over:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        """Coroutines ask."""
        return False

    def is_running(self) -> bool:
        """Whether the process lives."""
        return not self.is_over

    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self.is_over

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer that is cancelled runs into nothing."""

    def _run_ready(self) -> None:
        self._turns += 1
        planned = self._planned.pop(self._turns, None)
        if planned is not None and not self.group.is_over:
            planned()
            if self.group.is_over:
                return
        for _ in range(len(self._ready)):
            _run(self._ready.popleft())
        if self._ready and not self.group.is_over:
            self._turn = self.post(self._run_ready)


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()


class ProcessTime:
    """A :class:`moldau.ports.clock.Clock` for what runs on a loop."""

    def __init__(self, loop: ProcessLoop, schedule: Schedule) -> None:
        self._loop = loop
        self._schedule = schedule

    def time_ms(self) -> int:
        """The wall's time."""
        return self._schedule.time_ms()

    def monotonic(self) -> float:
        """Seconds since the run began."""
        return self._schedule.now

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ScheduledCall:
        """Have the process make a call."""
        return self._loop.post(callback, max(delay_s, 0.0))


class ProcessNetwork:
    """A :class:`moldau.ports.transport.Network` of a process on a host: it ends with the process."""

    def __init__(self, network: SimulatedNetwork, host: str, loop: ProcessLoop) -> None:
        self._loop = loop
        self._client = ClientNetwork(network, Party(host, loop.group, loop.run))
        self._attempts: dict[SimulatedConnectAttempt, None] = {}

    def connect(self, host: str, port: int, accept: Accept, failed: Callable[[ConnectError], object]) -> SimulatedConnectAttempt:
        """Begin to connect."""
        attempt = self._client.connect(host, port, accept, failed)
        self._attempts = {each: None for each in self._attempts if not each.is_over}
        self._attempts[attempt] = None
        if self._loop.group.is_over:
            attempt.cancel()
        return attempt

    def end(self) -> None:
        """Give up what is being opened."""
        for attempt in self._attempts:
            attempt.cancel()
