"""How far each partition of a process has come, how far its source is ahead, and how fast it moves.

`Measures` is the taker in front of the mirror's own: it notes what passes, once for each partition of a response, and nothing for each
record. What was fetched counts as mirrored once the position in the target has passed it.

* Lag in records is an offset minus an offset: gaps of compaction and markers of transactions count too.
* Lag in bytes is an estimate: the lag in records, times the bytes per offset of what was fetched lately.
* Lag in time is the age of the newest mirrored record while there is a lag, and 0 without one.
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror.partitions import Halt, Position, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from moldau.mirror.fetched import Fetched, Taker
    from moldau.ports.clock import Clock

WINDOW_S = 15.0
"""Rates are those of the last one to two of these."""
HELD_S = 10.0
"""After so long a last stable offset that does not move is shown: until then a transaction may be one as any other."""
_NEWEST_WEIGHT = 0.25
"""Of the last response in the mean of bytes per offset."""


class _Pending(NamedTuple):
    """What one response had of the partition, until it is in the target."""

    after: int
    newest_ms: int
    """-1: its records have no timestamps."""
    size: int
    records: int


class _Held(NamedTuple):
    """A last stable offset that is before the high watermark."""

    offset: int
    offsets: int
    """How many are not stable."""
    since_s: float


class _Count(NamedTuple):
    """Totals at one time."""

    time_s: float
    size: int
    records: int


class Meter:
    """The numbers of one partition. `position`, `end` and `newest_ms` are None as long as they are not known."""

    __slots__ = (
        "_bytes_per_offset",
        "_held",
        "_newer",
        "_older",
        "_pending",
        "answered",
        "end",
        "newest_ms",
        "position",
        "records",
        "size",
    )

    def __init__(self, now_s: float, position: int | None = None, end: int | None = None, newest_ms: int | None = None) -> None:
        self.position = position
        """Where it is read next, as the target has it."""
        self.end = end
        """Of the source: the high watermark, or for a merge the last stable offset."""
        self.newest_ms = newest_ms
        """The timestamp of the newest record that is in the target."""
        self.answered = False
        """Whether the source has answered a fetch since this was last set to False."""
        self.size = 0
        """Bytes that were mirrored."""
        self.records = 0
        self._pending: deque[_Pending] = deque()
        self._bytes_per_offset = 0.0
        self._held: _Held | None = None
        self._older = self._newer = _Count(now_s, 0, 0)

    def stable(self, last_stable_offset: int, high_watermark: int, now_s: float) -> None:
        """The source's readers of committed records may read up to here, of what is in all of its in-sync replicas."""
        if last_stable_offset >= high_watermark:
            self._held = None
        else:
            is_still = self._held is not None and self._held.offset == last_stable_offset
            since_s = self._held.since_s if self._held is not None and is_still else now_s
            self._held = _Held(last_stable_offset, high_watermark - last_stable_offset, since_s)

    def held_back(self, now_s: float) -> str:
        """Why nothing of the source can be read that is there, where it is so for longer than most transactions take; else empty."""
        held = self._held
        if held is None or now_s - held.since_s < HELD_S:
            return ""
        return f"a transaction is open in the source from offset {held.offset} on; {held.offsets} offsets wait for it"

    def fetched(self, fetched: "Fetched", end: int) -> None:
        """A response has this of the partition."""
        self.answered = True
        self.end = end
        if not fetched.batches:
            return
        first = fetched.batches[0][0].base_offset
        while self._pending and self._pending[-1].after > first:  # fetched before, and dropped since
            self._pending.pop()
        size = len(fetched.records)
        per_offset = size / max(fetched.position.offset - first, 1)
        known = self._bytes_per_offset
        self._bytes_per_offset = known + _NEWEST_WEIGHT * (per_offset - known) if known else per_offset
        records = sum(header.record_count for header, _ in fetched.batches)
        self._pending.append(_Pending(fetched.position.offset, fetched.batches[-1][0].max_timestamp, size, records))

    def written(self, position: int) -> None:
        """The target has everything before this offset."""
        self.position = position
        while self._pending and self._pending[0].after <= position:
            _, newest_ms, size, records = self._pending.popleft()
            if newest_ms >= 0:
                self.newest_ms = max(newest_ms, self.newest_ms or 0)
            self.size += size
            self.records += records

    def tick(self, now_s: float) -> None:
        """Begin another window if it is time."""
        if now_s - self._newer.time_s >= WINDOW_S:
            self._older, self._newer = self._newer, _Count(now_s, self.size, self.records)

    def rates(self, now_s: float) -> tuple[float, float]:
        """Bytes and records a second."""
        elapsed_s = now_s - self._older.time_s
        if elapsed_s <= 0:
            return 0.0, 0.0
        return (self.size - self._older.size) / elapsed_s, (self.records - self._older.records) / elapsed_s

    @property
    def lag_records(self) -> int | None:
        """Offsets of the source that are not in the target."""
        return None if self.position is None or self.end is None else max(self.end - self.position, 0)

    @property
    def lag_bytes(self) -> int | None:
        """An estimate; None if nothing was fetched yet by which to estimate."""
        lag = self.lag_records
        if not lag:
            return lag
        return round(lag * self._bytes_per_offset) if self._bytes_per_offset else None


class Measures:
    """See the module. A :class:`moldau.mirror.fetched.Taker`."""

    def __init__(self, taker: "Taker", clock: "Clock", *, committed: bool) -> None:
        """`committed`: the end of a source is its last stable offset."""
        self._taker = taker
        self._clock = clock
        self._committed = committed
        self._meters: dict[SourcePartition, Meter] = {}

    def take(self, partition: SourcePartition, fetched: "Fetched") -> bool:
        """Note it, and pass it on."""
        meter = self._meters.get(partition)
        if meter is not None:
            meter.fetched(fetched, fetched.last_stable_offset if self._committed else fetched.high_watermark)
            if self._committed:
                meter.stable(fetched.last_stable_offset, fetched.high_watermark, self._clock.monotonic())
        return self._taker.take(partition, fetched)

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        """Pass it on."""
        self._taker.halt(partition, why, reason)

    def begin(self, partition: SourcePartition, position: int | None = None, newest_ms: int | None = None) -> None:
        """This process has a partition, of which so much is known."""
        self._meters[partition] = Meter(self._clock.monotonic(), position, newest_ms=newest_ms)

    def end(self, partition: SourcePartition) -> None:
        """It does not have it any more."""
        self._meters.pop(partition, None)

    def of(self, partition: SourcePartition) -> Meter | None:
        """The numbers of a partition."""
        return self._meters.get(partition)

    def meters(self) -> "Iterable[tuple[SourcePartition, Meter]]":
        """Those of all partitions."""
        return self._meters.items()

    def sample(self, written: "Mapping[SourcePartition, Position]") -> None:
        """Note the positions in the target."""
        now_s = self._clock.monotonic()
        for partition, position in written.items():
            meter = self._meters.get(partition)
            if meter is not None:
                meter.written(position.offset)
        for meter in self._meters.values():
            meter.tick(now_s)

    def rates(self) -> dict[SourcePartition, float]:
        """Bytes a second."""
        now_s = self._clock.monotonic()
        return {partition: meter.rates(now_s)[0] for partition, meter in self._meters.items()}
