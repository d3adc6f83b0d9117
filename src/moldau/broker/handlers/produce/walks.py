"""Produced batches whose records have to be checked: small ones at once, the others on another thread, while their request is held.

What is small: `DIRECT_BYTES_MAX` bytes of records, decompressed, and all batches in one turn of the loop together `TURN_BYTES_MAX`: a few
milliseconds. A batch that goes to another thread is copied if it lies in a buffer that the next read needs. The copies of a request
count in `RequestMemory` until all of them are checked, or until their check is dropped: with the connection of a request that is not
answered then. Without that, clients that send small requests and close would make the copies pile up beyond any bound.

What is recompressed is small up to `RECOMPRESSED_BYTES_MAX`, and each such batch counts as a whole `DIRECT_BYTES_MAX`: gzip of level 9
takes up to 2.5 ms for a KB, and zstd of level 22 up to 10 ms for four. The others have a thread of their own too, which holds no lock while
it compresses: 16 MB may take it a hundred seconds, and neither look-ups nor other batches wait for that.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from moldau.model.errors import BeyondBoundError, ErrorCode, PeerError, StorageError
from moldau.protocol.records.header import HEADER_SIZE

if TYPE_CHECKING:
    from moldau.broker.admission.memory import Holder, RequestMemory
    from moldau.broker.handlers.produce.record_walk import RecordRules
    from moldau.ports.background import Background
    from moldau.ports.clock import Clock
    from moldau.protocol.records.header import BatchHeader

_LOG = logging.getLogger(__name__)

DIRECT_BYTES_MAX = 32 * 1024
TURN_BYTES_MAX = 128 * 1024
RECOMPRESSED_BYTES_MAX = 4 * 1024

Walked = tuple[memoryview, "BatchHeader"]
_NOTHING = memoryview(b"")


class DroppedError(Exception):
    """A walk was dropped before it began."""


class Walk:
    """A walk over a batch, for another thread."""

    __slots__ = ("_begun", "_header", "_now_ms", "_rules", "batch")

    def __init__(self, rules: "RecordRules", batch: memoryview, header: "BatchHeader", now_ms: int) -> None:
        """`batch` is memory that nothing else changes until the walk has ended."""
        self._rules = rules
        self.batch = batch
        self._header = header
        self._now_ms = now_ms
        self._begun = Lock()
        """Held from the beginning or the drop on, whichever is first."""

    @property
    def recompresses(self) -> bool:
        """Whether the batch is recompressed."""
        return self._rules.recompresses(self._header)

    def run(self) -> Walked:
        """The batch as it may be stored, and its header. PeerError, DroppedError."""
        from moldau.broker.handlers.produce.record_walk import walk

        if not self._begun.acquire(blocking=False):
            raise DroppedError
        return walk(self._rules, self.batch, self._header, self._now_ms)

    def drop(self) -> bool:
        """Release the batch, unless the walk has begun; whether it had not."""
        if not self._begun.acquire(blocking=False):
            return False
        self.batch = _NOTHING
        return True


if TYPE_CHECKING:

    class WaitingBatch(Protocol):
        """A batch that is, or may be, checked on another thread; without its `records` where it has an `error`."""

        records: memoryview
        header: "BatchHeader"
        error: PeerError | StorageError | None
        walk: Walk | None


class RunningWalks:
    """The walks of one request, some of which a thread has begun."""

    __slots__ = ("_batches", "_dropped", "_holder", "_left", "_memory", "_size", "_then")

    def __init__(self, memory: "RequestMemory", holder: "Holder", batches: "Sequence[WaitingBatch]", then: Callable[[], object]) -> None:
        self._memory = memory
        self._holder = holder
        self._batches = batches
        self._then = then
        self._left = sum(each.walk is not None for each in batches)
        self._size = sum(len(each.records) for each in batches if each.error is None)
        self._dropped = False
        memory.keep(holder, self._size)

    def done(self, batch: "WaitingBatch", walked: "Walked | None", error: BaseException | None) -> None:
        """The outcome for a batch."""
        batch.walk = None
        if self._dropped:
            pass
        elif walked is not None:
            batch.records, batch.header = walked
        elif isinstance(error, PeerError):
            batch.error = error
        else:
            _LOG.error("produced batch refused by a bug", exc_info=error)
            batch.error = PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch could not be checked because of a bug, see the log")
        self._left -= 1
        if self._left == 0:
            self._batches = ()
            self._memory.finish(self._holder, self._size)
            then, self._then = self._then, _nothing  # it refers to what has these walks
            then()

    def drop(self) -> None:
        """Call `then` no more, and release what no thread has begun; what one has begun counts to its end."""
        if self._left == 0:
            return
        self._dropped = True
        self._then = _nothing
        size, self._size = self._size, 0
        for each in self._batches:
            if each.walk is not None and not each.walk.drop():
                self._size += len(each.records)
            else:
                each.records = _NOTHING
        self._batches = ()
        self._memory.keep(self._holder, self._size)
        self._memory.finish(self._holder, size)


def _nothing() -> None:
    """For walks that were dropped, or have ended."""


class BatchWalks:
    """Checks the records of batches."""

    __slots__ = ("_clock", "_compute", "_left", "_memory", "_recompress", "_resets")

    def __init__(self, clock: "Clock", memory: "RequestMemory", compute: "Background", recompress: "Background") -> None:
        """`compute` runs the walks, `recompress` those that recompress."""
        self._clock = clock
        self._memory = memory
        self._compute = compute
        self._recompress = recompress
        self._left = TURN_BYTES_MAX
        self._resets = False

    def begin(self, rules: "RecordRules", batch: memoryview, header: "BatchHeader", now_ms: int, *, is_kept: bool) -> "Walked | Walk":
        """The batch as it may be stored; or what has to run elsewhere to get it, with a copy unless it `is_kept` anyway. PeerError."""
        from moldau.broker.handlers.produce.record_walk import walk_decompressed
        from moldau.protocol.records.batch import decompressed_records

        recompresses = rules.recompresses(header)
        bytes_max = RECOMPRESSED_BYTES_MAX if recompresses else DIRECT_BYTES_MAX
        if len(batch) <= bytes_max + HEADER_SIZE and self._left > 0:
            self._take(DIRECT_BYTES_MAX if header.compression or recompresses else len(batch))
            try:
                data = decompressed_records(batch, header, min(bytes_max, rules.decompressed_bytes_max))
            except BeyondBoundError:
                pass
            else:
                return walk_decompressed(rules, batch, data, header, now_ms)
        return Walk(rules, batch if is_kept else memoryview(bytearray(batch)), header, now_ms)

    def run(self, holder: "Holder", batches: "Sequence[WaitingBatch]", then: Callable[[], object]) -> "RunningWalks":
        """Check those that have a `walk`, one after the other: each gets its batch and header, or its refusal. Then call `then`.

        `batches` count for the connection `holder` until then.
        """
        running = RunningWalks(self._memory, holder, batches, then)
        for each in [each for each in batches if each.walk is not None]:
            assert each.walk is not None
            thread = self._recompress if each.walk.recompresses else self._compute
            thread.run(each.walk.run, partial(running.done, each))
        return running

    def _take(self, count: int) -> None:
        self._left -= count
        if not self._resets:
            self._resets = True
            self._clock.call_later(0.0, self._reset)

    def _reset(self) -> None:
        self._resets = False
        self._left = TURN_BYTES_MAX
