"""Long work of requests, run in turns on the broker's thread, so that other requests do not wait for it.

Work is a generator: each step does a piece of well below 1 ms. `SliceScheduler.run` runs the first turn at once. What is left follows in
turns of the clock; between two turns the loop serves sockets and timers. The works share a turn round robin; a connection has at most
one of them, because it is held meanwhile (see `connection`), and beside it the fetches that are read again (`handlers.fetch.long`).

Rules for a generator that is run here:

* At a bare `yield` the work may be dropped, because its connection is lost or the broker stops: what was done so far must be consistent.
  `yield UNFINISHED` says that it is not; the work then runs without its connection until a bare `yield` or its end. Only a stop drops it
  there too, as a crash would.
* `yield Elsewhere(...)` takes the work out of the turns until something has happened elsewhere, such as a sync in a background thread;
  otherwise it is as `yield UNFINISHED`.
* Between two steps anything may change. Look again at what was looked up before, or hold a snapshot that never changes.
"""

from collections import deque
from collections.abc import Callable

from moldau.model.steps import Steps, Suspension
from moldau.ports.clock import Clock

TURN_S = 0.010
"""Time that all works together take before the loop gets its turn."""
QUANTUM_S = 0.002
"""Time that one work takes before the next one's turn."""
Ended = Callable[[Exception | None], object]
"""Called with the error that ended the work, a bug; None at its end."""


class SlicedWork:
    """Some work and how far it has come."""

    __slots__ = ("_droppable", "_dropped", "_ended", "_resume", "_steps", "is_elsewhere")

    def __init__(self, steps: Steps, ended: Ended, *, droppable: bool) -> None:
        self._steps = steps
        self._ended = ended
        self._droppable = droppable
        self._dropped = False
        self._resume: Callable[[SlicedWork], object] | None = None
        self.is_elsewhere = False
        """Whether the next step has to wait for something."""

    def drop(self) -> None:
        """No request waits for the outcome: only what consistency needs is still done, and `ended` is called only for a bug."""
        self._dropped = True

    def advance(self, until: float, monotonic: Callable[[], float]) -> bool:
        """Run steps until it is `until`; whether that was the last. Raises what the work raises."""
        for pause in self._steps:
            self._droppable = pause is None
            if isinstance(pause, Suspension):
                self.is_elsewhere = True
                pause.begin(self._is_back)
                if self.is_elsewhere:
                    return False
            if monotonic() >= until or (self._dropped and self._droppable):
                return False
        return True

    def run_turn(self, until: float, monotonic: Callable[[], float]) -> bool:
        """As `advance`, and `ended` is called at the end; True also for work that was dropped."""
        if self._dropped and self._droppable:
            self.close()
            return True
        try:
            if not self.advance(until, monotonic):
                return False
        except Exception as error:
            self._ended(error)
            return True
        if not self._dropped:
            self._ended(None)
        return True

    def when_back(self, resume: "Callable[[SlicedWork], object]") -> None:
        """Call once when the next step need not wait any more."""
        self._resume = resume

    def _is_back(self) -> None:
        self.is_elsewhere = False
        resume, self._resume = self._resume, None
        if resume is not None:
            resume(self)

    def close(self) -> None:
        """Do nothing more of it."""
        self._steps.close()


class SliceScheduler:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._works: deque[SlicedWork] = deque()
        self._elsewhere: dict[SlicedWork, None] = {}
        self._later: deque[Callable[[], object]] = deque()
        self._scheduled = False
        self._turn_until: float | None = None
        self._first_turns_s = TURN_S
        """Time left for first turns before the loop's next turn: many connections may have sent long work in this one."""

    @property
    def running(self) -> int:
        """Works that have not come to their end."""
        return len(self._works) + len(self._elsewhere)

    def run(self, steps: Steps, ended: Ended, *, droppable: bool = True) -> SlicedWork | None:
        """Give the work its first turn, and raise what that raises. None if it has ended; otherwise `ended` is called when it has.

        `droppable`: whether it may be dropped before its first step, which waits for a later turn when others have taken this one.
        """
        work = SlicedWork(steps, ended, droppable=droppable)
        if self._first_turns_s > 0:
            monotonic = self._clock.monotonic
            started = monotonic()
            has_ended = work.advance(started + self._first_turns_s, monotonic)
            self._first_turns_s -= monotonic() - started
            if has_ended:
                if self._first_turns_s < TURN_S / 2:
                    self._schedule()
                return None
        self._put_back(work)
        return work

    def _put_back(self, work: SlicedWork) -> None:
        """The work is not at its end."""
        if work.is_elsewhere:
            self._elsewhere[work] = None
            work.when_back(self._take_back)
        else:
            self._works.append(work)
            self._schedule()

    def _take_back(self, work: SlicedWork) -> None:
        if work in self._elsewhere:
            del self._elsewhere[work]
            self._works.append(work)
            self._schedule()

    def call_later(self, callback: Callable[[], object]) -> None:
        """Call in the loop's next turn, or in a later one after all that came before, if those have taken its time."""
        self._later.append(callback)
        self._schedule()

    def turn_is_over(self) -> bool:
        """Whether requests that a peer has sent at once should wait for the loop's next turn: those of all together had theirs."""
        now = self._clock.monotonic()
        if self._turn_until is None:
            self._turn_until = now + TURN_S
            self._clock.call_later(0.0, self._begin_turn)
        return now >= self._turn_until

    def _begin_turn(self) -> None:
        self._turn_until = None

    def close(self) -> None:
        """Drop every work: the broker stops."""
        works, self._works = [*self._works, *self._elsewhere], deque()
        self._elsewhere.clear()
        for work in works:
            work.close()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0.0, self._run_turn)

    def _run_turn(self) -> None:
        self._scheduled = False
        self._first_turns_s = TURN_S
        works, later = self._works, self._later
        if not (works or later):
            return
        monotonic = self._clock.monotonic
        begun = now = monotonic()
        waiting, until = len(later), now + (TURN_S / 2 if works else TURN_S)
        try:
            for _ in range(waiting):
                later.popleft()()
                if monotonic() >= until:
                    break
            now = monotonic()
            until = now + (max(TURN_S - (now - begun), QUANTUM_S) if waiting else TURN_S)
            while works and now < until:
                work = works.popleft()
                if not work.run_turn(min(now + QUANTUM_S, until), monotonic):
                    self._put_back(work)
                now = monotonic()
        finally:
            self._first_turns_s = TURN_S - (monotonic() - begun)  # timers that are due now, too, begin work in this turn of the loop
            if works or later or self._first_turns_s < TURN_S / 2:
                self._schedule()
