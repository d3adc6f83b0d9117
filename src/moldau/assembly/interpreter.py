"""How the interpreter and the C library are set, so that they neither stop the broker for long nor keep memory that was freed.

The garbage collector: a collection of the oldest generation looks at all objects: with 15,000 partitions that takes 280 ms, on the broker's
thread. So what a start has made is frozen (with 1,000 partitions 20 ms of the first collection), and after a collection that took long what
has outlived it: the next looks at what was made since. What is frozen is freed as ever when its last reference goes; only what hangs
together in a circle and is dropped stays. For that everything is looked at again, in a second in which hardly anything is done. If there is
no such second for ten minutes, and most of what was frozen may be garbage, it is done all the same; the next time when a quarter of all
objects may be garbage, going by what that look has found: under all attacks at once it takes 0.4 s, and finds next to nothing. Requests and
connections leave no reference cycles (see `test_dropped_connections`), so that this can wait.

The allocator: an attack's peaks would add up over the hours. By default glibc gives each thread a heap of its own, returns only what is
free at the end of a heap, and after a large block was freed puts blocks of that size into heaps too. Within five minutes of all attacks in
random order a broker had 350 MB, of which 60 to 110 were free; with one heap, in which no large blocks lie, 258 MB at most in an hour.
Large means larger than what a client sends as one batch by default: with 256 KB, batches of 1 MB cost 30 % more processor time, for pages
that are touched again and again.

`malloc_trim` returns free pages from the middle of the heap. It walks the heap, 1 ms for about 10 MB, on the broker's thread. So it is
called only when much more memory is resident than after the last call, or when much was freed since, and no more once a call has taken
longer than a request may. What was freed `mallinfo2` says, which takes 0.3 ms, so it is asked once a second: without it 26 MB of the 200
that were level under all attacks were free, and came on top of the next attack's blocks.
Reaching the C library takes 2 ms and 300 KB, so that it waits for the first thread, or for so much memory.
Without glibc (musl, macOS) nothing is done.
"""

import gc
import logging
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Protocol

from moldau.ports.clock import Clock, Timer

SWITCH_INTERVAL_S = 0.0005
"""The thread that answers asks for the lock after each system call, a few times in a request. With Python's 5 ms every round trip to a
broker took 5.4 ms while searches by time ran, with this 1.4; look-ups in a registry took 50 ms while its 100,000 subjects were listed, with
this 16.
"""

_LOG = logging.getLogger(__name__)

LONG_S = 0.010
"""A pause after which what has outlived it is frozen."""
LOOK_S = 1.0
"""How often to see whether little is done."""
WHOLE_EVERY_S = 600.0
"""No more often than this everything is looked at."""
QUIET_OBJECTS = 200
"""Objects more or fewer than a second ago, without a collection between: little is done."""
FROZEN_S_MAX = 0.4
"""After pauses that took so long together, or as long as the last look at everything if that took longer, no quiet second is waited for: a
pause takes time for the objects that are frozen after it, 1 us for about three of them. To count them would take as long again.
"""
OBJECTS_PER_S = 3_000_000
"""How many a collection looks at: see there."""
GARBAGE_SHARE = 0.25
"""Of all objects: with less garbage than that, no second that is not quiet is taken for a look at everything."""
PATIENCE_S_MAX = 86_400.0
LATE_S = 0.010
"""A look whose turn comes later than this finds requests that wait already. It waits for another second, for `WHOLE_EVERY_S` at most."""
OLDEST = 2
Phase = Literal["start", "stop"]


def collect_again() -> None:
    """Collect garbage, from here on without a look at what was made until now: called when a start, which collects none, has ended."""
    gc.freeze()
    gc.enable()


class Collector(Protocol):
    """What is needed of the module `gc`."""

    callbacks: list[Callable[[Phase, dict[str, int]], object]]

    def collect(self) -> int:
        """Look at everything that is not frozen."""

    def freeze(self) -> None:
        """Look no more at what there is."""

    def unfreeze(self) -> None:
        """Look at it again."""

    def get_count(self) -> tuple[int, int, int]:
        """Objects made and not freed since the last collection, and collections of the two younger generations since one of the next."""


class GarbagePauses:
    """See the module. `close` ends it."""

    def __init__(self, clock: Clock, collector: Collector = gc, seconds: Callable[[], float] = time.perf_counter) -> None:
        """`seconds` measures a pause, on whatever thread it happens."""
        self._clock = clock
        self._collector = collector
        self._seconds = seconds
        self._began_s = 0.0
        self._looking = False
        self._frozen_s = LONG_S
        """Length of the pauses after which objects were frozen, since everything was looked at; the start counts as the shortest."""
        self._whole_s = 0.0
        """How long that took the last time."""
        self._count = (0, 0, 0)
        self._looked_s = clock.monotonic()
        self._patience_s = WHOLE_EVERY_S
        """How long a quiet second is waited for."""
        collector.freeze()
        collector.callbacks.append(self._observe)
        self._due_s = 0.0
        self._timer: Timer
        self._wait()

    def close(self) -> None:
        """Leave the collector to itself, and what was frozen to it."""
        self._timer.cancel()
        self._collector.callbacks.remove(self._observe)
        self._collector.unfreeze()

    def _observe(self, phase: Phase, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST or self._looking:
            return
        if phase == "start":
            self._began_s = self._seconds()
        elif (took_s := self._seconds() - self._began_s) >= LONG_S:
            self._collector.freeze()
            self._frozen_s += took_s

    def _wait(self) -> None:
        self._due_s = self._clock.monotonic() + LOOK_S
        self._timer = self._clock.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        late_s = self._clock.monotonic() - self._due_s
        self._wait()
        before, self._count = self._count, self._collector.get_count()
        since_s = self._clock.monotonic() - self._looked_s
        if not self._frozen_s or since_s < WHOLE_EVERY_S:
            return
        is_quiet = self._count[1:] == before[1:] and abs(self._count[0] - before[0]) <= QUIET_OBJECTS
        too_many = self._frozen_s > max(FROZEN_S_MAX, self._whole_s)
        has_waited = since_s >= self._patience_s and (late_s <= LATE_S or since_s >= self._patience_s + WHOLE_EVERY_S)
        if is_quiet or (too_many and has_waited):
            self._look_at_everything(since_s)

    def _look_at_everything(self, since_s: float) -> None:
        began_s = self._seconds()
        self._looking = True
        try:
            self._collector.unfreeze()
            freed = self._collector.collect()
            self._collector.freeze()
        finally:
            self._looking = False
        self._frozen_s = 0.0
        self._whole_s = self._seconds() - began_s
        self._looked_s = self._clock.monotonic()
        until_share_s = since_s * GARBAGE_SHARE * self._whole_s * OBJECTS_PER_S / max(freed, 1)
        self._patience_s = min(max(until_share_s, WHOLE_EVERY_S), PATIENCE_S_MAX)
        _LOG.info("garbage collected: objects=%d pause_ms=%d", freed, self._whole_s * 1000)


TRIM_LOOK_S = 0.25
"""How often the resident memory is looked at."""
USED_LOOKS = 4
"""At each of so many looks the heap is asked how much of it is used."""
RESIDENT_MIN = 96 << 20
"""With less than this resident, nothing is done."""
GROWTH = 4 << 20
"""Bytes resident beyond those after the last call that are worth the next."""
FREED = 8 << 20
"""So many bytes used less than at most since the last call are worth the next, too."""
LONGEST_S = 0.050
"""A call that took longer was the last one."""
OWN_BLOCK_BYTES = 2 << 20
"""Blocks from this size on are no part of the heap; the system gets them back when they are freed."""
KEPT_AT_END_BYTES = 4 << 20
"""Free memory at the end of the heap that is kept."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_STATM = "/proc/self/statm"


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not report it (not Linux)."""
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def use_one_heap() -> None:
    """For all threads of this process, without large blocks. To be called before there are others that allocate much; once is enough."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, OWN_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_AT_END_BYTES)


class Heap(Protocol):
    """What the C library allocates from."""

    def trim(self) -> None:
        """Return free pages."""

    def used_bytes(self) -> int:
        """Bytes allocated; 0 where this cannot be asked."""


class GlibcHeap:
    """Of all threads, large blocks not counted (`mallinfo2`, from glibc 2.33 on)."""

    _FIELDS, _USED = 10, 7

    def __init__(self, trim: Callable[[int], object]) -> None:
        from ctypes import Structure, c_size_t

        class MallInfo(Structure):
            _fields_ = (("values", c_size_t * self._FIELDS),)

        self._trim = trim
        self._info = _function("mallinfo2")
        if self._info is not None:
            self._info.restype = MallInfo

    def trim(self) -> None:
        """See there."""
        self._trim(0)

    def used_bytes(self) -> int:
        """See there."""
        return 0 if self._info is None else int(self._info().values[self._USED])


def glibc_heap() -> Heap | None:
    """None without glibc."""
    trim = _function("malloc_trim")
    return None if trim is None else GlibcHeap(trim)


def _function(name: str) -> Any:
    import ctypes

    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None


class HeapTrimmer:
    """See the module. `close` ends it."""

    def __init__(
        self,
        clock: Clock,
        resident: Callable[[], int] = resident_bytes,
        find_heap: Callable[[], Heap | None] = glibc_heap,
        seconds: Callable[[], float] = time.perf_counter,
        on_large: Callable[[], object] = lambda: None,
    ) -> None:
        """`seconds` measures a call; `on_large` is called, before the first one, when there is so much resident that it is looked at."""
        self._clock = clock
        self._resident = resident
        self._find_heap = find_heap
        self._seconds = seconds
        self._on_large = on_large
        self._heap: Heap | None = None
        self._least = RESIDENT_MIN
        self._looks = 0
        self._most_used = 0
        """Bytes, since the last call."""
        self._timer: Timer | None = clock.call_later(TRIM_LOOK_S, self._look)

    def close(self) -> None:
        """Leave the heaps as they are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._clock.call_later(TRIM_LOOK_S, self._look)
        before = self._resident()
        if before < RESIDENT_MIN:
            return
        if self._heap is None:
            self._on_large()
            self._heap = self._find_heap()
        if self._heap is None:
            self.close()
        elif before >= self._least or self._is_much_freed(self._heap):
            self._return_pages(self._heap, before)

    def _is_much_freed(self, heap: Heap) -> bool:
        self._looks += 1
        if self._looks % USED_LOOKS:
            return False
        used = heap.used_bytes()
        self._most_used = max(self._most_used, used)
        return self._most_used - used >= FREED

    def _return_pages(self, heap: Heap, before: int) -> None:
        began_s = self._seconds()
        heap.trim()
        took_s = self._seconds() - began_s
        after = self._resident()
        self._least = max(RESIDENT_MIN, after + GROWTH)
        self._most_used = heap.used_bytes()
        _LOG.debug("heap trimmed: resident_before=%d resident_after=%d took_ms=%d", before, after, took_s * 1000)
        if took_s > LONGEST_S:
            self.close()
