"""Keeps the C library from holding memory that was freed: an attack's peaks would add up over the hours.

By default glibc gives each thread a heap of its own, returns only what is free at the end of a heap, and after a large block was freed
puts blocks of that size into heaps too. Within five minutes of all attacks in random order a broker had 350 MB, of which 60 to 110 were
free; with one heap, in which no large blocks lie, 258 MB at most in an hour. Large means larger than what a client sends as one batch by
default: with 256 KB, batches of 1 MB cost 30 % more processor time, for pages that are touched again and again.

`malloc_trim` returns free pages from the middle of the heap. It walks the heap, 1 ms for about 10 MB, on the broker's thread. So it is
called only when much more memory is resident than after the last call, and no more once a call has taken longer than a request may.
Reaching the C library takes 2 ms and 300 KB, so that it waits for the first thread, or for so much memory.
Without glibc (musl, macOS) nothing is done.
"""

import logging
import os
import time
from collections.abc import Callable
from functools import cache

from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

LOOK_S = 0.25
"""How often the resident memory is looked at."""
RESIDENT_MIN = 96 << 20
"""With less than this resident, nothing is done."""
GROWTH = 4 << 20
"""Bytes resident beyond those after the last call that are worth the next."""
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


def glibc_trim() -> Callable[[], object] | None:
    """What returns free pages, None without glibc."""
    trim = _function("malloc_trim")
    return None if trim is None else lambda: trim(0)


def _function(name: str) -> Callable[..., object] | None:
    import ctypes

    try:
        found: Callable[..., object] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    return found


class HeapTrimmer:
    """See the module. `close` ends it."""

    def __init__(
        self,
        clock: Clock,
        resident: Callable[[], int] = resident_bytes,
        find_trim: Callable[[], Callable[[], object] | None] = glibc_trim,
        seconds: Callable[[], float] = time.perf_counter,
        on_large: Callable[[], object] = lambda: None,
    ) -> None:
        """`seconds` measures a call; `on_large` is called, before the first one, when there is so much resident that it is looked at."""
        self._clock = clock
        self._resident = resident
        self._find_trim = find_trim
        self._seconds = seconds
        self._on_large = on_large
        self._trim: Callable[[], object] | None = None
        self._least = RESIDENT_MIN
        self._timer: Timer | None = clock.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Leave the heaps as they are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._clock.call_later(LOOK_S, self._look)
        before = self._resident()
        if before < self._least:
            return
        if self._trim is None:
            self._on_large()
            self._trim = self._find_trim()
        if self._trim is None:
            self.close()
            return
        began_s = self._seconds()
        self._trim()
        took_s = self._seconds() - began_s
        after = self._resident()
        self._least = max(RESIDENT_MIN, after + GROWTH)
        _LOG.debug("heap trimmed: resident_before=%d resident_after=%d took_ms=%d", before, after, took_s * 1000)
        if took_s > LONGEST_S:
            self.close()
