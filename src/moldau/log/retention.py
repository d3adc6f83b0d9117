"""Which segments are to go: by age, by the size of the whole, by the start offset. Decides only; the log removes.

Kafka's rules: from the oldest on, up to the first segment that stays; nothing that reaches beyond the high watermark; and the active
segment only if it holds records, in which case it is rolled first. Beyond Kafka's: age and size take nothing of a transaction that
is not decided, nor what follows it. DeleteRecords may.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from moldau.log.config import LogConfig
from moldau.log.segment import Segment
from moldau.model.value import Value


class Bounds(NamedTuple):
    """Offsets of the log that limit what may go."""

    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int


class Expired(Value):
    """So many segments from the first on are to go, for this reason."""

    segments: int
    reason: str


def expired(segments: Sequence[Segment], config: LogConfig, bounds: Bounds, now_ms: int) -> Expired | None:
    """The first rule that some segments break, or None. To be asked again after they are gone."""
    unseen = before_start(segments, bounds)
    if unseen is not None or not config.deletes:
        return unseen
    bounds = bounds._replace(high_watermark=bounds.last_stable_offset)
    if config.retention_bytes >= 0:
        count = _over_size(segments, config.retention_bytes, bounds)
        if count:
            return Expired(count, f"retention.bytes {config.retention_bytes} exceeded")
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        count = _leading(segments, bounds, lambda segment, _: segment.retention_timestamp() < oldest_ms)
        if count:
            return Expired(count, f"retention.ms {config.retention_ms} exceeded")
    return None


def before_start(segments: Sequence[Segment], bounds: Bounds) -> Expired | None:
    """The segments that hold nothing from the start offset on, or None."""
    count = _leading(segments, bounds, lambda segment, end: end <= bounds.start_offset, keep_active=True)
    return Expired(count, f"before the start offset {bounds.start_offset}") if count else None


def _over_size(segments: Sequence[Segment], retention_bytes: int, bounds: Bounds) -> int:
    surplus = sum(segment.size for segment in segments) - retention_bytes

    def goes(segment: Segment, _: int) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return _leading(segments, bounds, goes)


def _leading(segments: Sequence[Segment], bounds: Bounds, goes: Callable[[Segment, int], bool], *, keep_active: bool = False) -> int:
    """How many segments from the first on may go, `goes` being told each with the offset that it reaches to."""
    count = 0
    for slot, segment in enumerate(segments):
        active = slot + 1 == len(segments)
        end = bounds.end_offset if active else segments[slot + 1].base_offset
        if end > bounds.high_watermark or (active and (keep_active or not segment.size)) or not goes(segment, end):
            break
        count += 1
    return count
