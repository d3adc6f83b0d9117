"""Produced batches that have to be looked into: small ones at once, the others on another thread, while their request is held.

What is small: `DIRECT_BYTES_MAX` bytes of records, decompressed, and all batches in one turn of the loop together `TURN_BYTES_MAX`: a few
milliseconds. A batch that goes to another thread is copied, for it lies in a buffer that the next read needs.

What is compressed anew is small up to `RECOMPRESSED_BYTES_MAX`, and each such batch counts as a whole `DIRECT_BYTES_MAX`: gzip of level 9
takes up to 2.5 ms for a KB, and zstd of level 22 up to 10 ms for four. The others have a thread of their own too, which holds no lock while
it compresses: 16 MB may take it a hundred seconds, and neither look-ups nor other batches wait for that.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from moldau.model.errors import BeyondBoundError, ErrorCode, PeerError
from moldau.protocol.records.header import HEADER_SIZE

if TYPE_CHECKING:
    from moldau.broker.record_walk import RecordRules
    from moldau.ports.background import Background
    from moldau.ports.clock import Clock
    from moldau.protocol.records.header import BatchHeader

_LOG = logging.getLogger(__name__)

DIRECT_BYTES_MAX = 32 * 1024
TURN_BYTES_MAX = 128 * 1024
RECOMPRESSED_BYTES_MAX = 4 * 1024

Walked = tuple[memoryview, "BatchHeader"]


class Walk:
    """A walk over a copy of a batch, for another thread."""

    __slots__ = ("_batch", "_header", "_now_ms", "_rules")

    def __init__(self, rules: "RecordRules", batch: memoryview, header: "BatchHeader", now_ms: int) -> None:
        self._rules = rules
        self._batch = memoryview(bytearray(batch))
        self._header = header
        self._now_ms = now_ms

    @property
    def recompresses(self) -> bool:
        """Whether the batch is compressed anew."""
        return self._rules.recompresses(self._header)

    def run(self) -> Walked:
        """The batch as it may be stored, and its header. PeerError."""
        from moldau.broker.record_walk import walk

        return walk(self._rules, self._batch, self._header, self._now_ms)


class WaitingBatch(Protocol):
    """A batch that is, or may be, looked into elsewhere."""

    batch: memoryview
    header: "BatchHeader"
    refusal: PeerError | None
    walk: Walk | None


class BatchWalks:
    """Who looks into batches."""

    __slots__ = ("_clock", "_compute", "_left", "_recompress", "_resets")

    def __init__(self, clock: "Clock", compute: "Background", recompress: "Background") -> None:
        """`compute` runs the walks, `recompress` those that end in compressing anew."""
        self._clock = clock
        self._compute = compute
        self._recompress = recompress
        self._left = TURN_BYTES_MAX
        self._resets = False

    def begin(self, rules: "RecordRules", batch: memoryview, header: "BatchHeader", now_ms: int) -> "Walked | Walk":
        """The batch as it may be stored; or what has to run elsewhere to get it. PeerError."""
        from moldau.broker.record_walk import walk_decompressed
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
        return Walk(rules, batch, header, now_ms)

    def run(self, batches: Sequence[WaitingBatch], then: Callable[[], object]) -> None:
        """Look into those that have a `walk`, one after the other: each gets its batch and header, or its refusal. Then call `then`."""
        waiting = [each for each in batches if each.walk is not None]
        left = len(waiting)

        def done(batch: WaitingBatch, walked: "Walked | None", error: BaseException | None) -> None:
            nonlocal left
            batch.walk = None
            if walked is not None:
                batch.batch, batch.header = walked
            elif isinstance(error, PeerError):
                batch.refusal = error
            else:
                _LOG.error("produced batch refused by a bug", exc_info=error)
                batch.refusal = PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch could not be looked into by a bug, see the log")
            left -= 1
            if left == 0:
                then()

        for each in waiting:
            assert each.walk is not None
            thread = self._recompress if each.walk.recompresses else self._compute
            thread.run(each.walk.run, partial(done, each))

    def _take(self, count: int) -> None:
        self._left -= count
        if not self._resets:
            self._resets = True
            self._clock.call_later(0.0, self._reset)

    def _reset(self) -> None:
        self._resets = False
        self._left = TURN_BYTES_MAX
