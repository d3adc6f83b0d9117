"""Events counted many at a time, with numpy: the same counts as `moldau.audit.events` gives, at more than twice the speed.

A value starts with its frame, a time of a few bytes, three short texts and the guid; where each of them begins is computed for all values
at once. Numbers are taken eight bytes at a time, as *lanes*: the time is one, the guid two. Events of one origin agree in all bytes from
the first text to the end of the instance, and mostly follow each other: a row whose lanes are those of the row before has its origin.
What does not fit (a text of 64 bytes or more, an odd time) goes to `count_value`, event by event.

XXH64 of the 16 bytes of a guid is a dozen multiplications and rotations of its two lanes, done for all guids at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from moldau.audit.events import HeaderReader, count_value
from moldau.audit.tally import NO_TIME, Origin, Tally
from moldau.protocol.records.vectors import Bytes8, Int64s
from moldau.tracking.counts import WINDOW_MS
from moldau.tracking.header import GUID_BYTES, HASH_SEED, INSTANCE_BYTES, TIME_MAX_MS, TIME_MIN_MS, read_header
from moldau.tracking.latencies import BUCKETS

Lanes = np.ndarray[Any, np.dtype[np.uint64]]

_FRAME_BYTES = 5
_LEAST_BYTES = _FRAME_BYTES + 4 + GUID_BYTES
_STOP_BITS = np.uint64(0x8080808080808080)
_STOPS = np.array([0x80 << 8 * byte for byte in range(8)], np.uint64)
_SEVEN_BITS = [(np.uint64(index), np.uint64(0x7F << 7 * index)) for index in range(8)]
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_FIRST_QUARTER = (1023 << 2) - 1
"""Exponent and two bits of the float 1.0, less one: latencies of 1 ms are in bucket 1."""
_WINDOWS_MANY = 1000
"""Events of so many windows are sorted, instead of having a place for each bucket of each window."""


def lanes_of(data: Bytes8) -> Lanes:
    """The eight bytes at each position, little-endian, without a copy."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


def guid_hashes(first: Lanes, second: Lanes) -> Lanes:
    """`guid_hash` of guids, given as their two lanes."""
    digest = np.full(len(first), HASH_SEED + int(_PRIME_5) + GUID_BYTES, np.uint64)
    for lane in (first, second):
        digest ^= _rotated(lane * _PRIME_2, 31) * _PRIME_1
        digest = _rotated(digest, 27) * _PRIME_1 + _PRIME_4
    digest ^= digest >> np.uint64(33)
    digest *= _PRIME_2
    digest ^= digest >> np.uint64(29)
    digest *= _PRIME_3
    digest ^= digest >> np.uint64(32)
    return digest


def _rotated(lane: Lanes, bits: int) -> Lanes:
    return lane << np.uint64(bits) | lane >> np.uint64(64 - bits)


def count_spans(
    data: Bytes8,
    start: Int64s,
    end: Int64s,
    timestamp_ms: Int64s,
    sent_ms: Int64s | None,
    topic: str,
    reader: HeaderReader,
    into: Tally,
) -> None:
    """Count the values at these places of `data`, which has at least 48 bytes after the last one.

    `timestamp_ms` are the times of their batches, for those that are untracked; `sent_ms` their own, None if latencies are not counted.
    """
    lanes, last = lanes_of(data), len(data) - 48
    length = end - start
    shaped = (length >= _LEAST_BYTES) & (data[start] == 0)
    if reader.checks_schemas:
        shaped &= _of_tracked_schemas(lanes, start, reader, shaped)
    time, time_bytes = _times(lanes[np.minimum(start + _FRAME_BYTES, last)])
    names = start + _FRAME_BYTES + time_bytes
    odd = time_bytes == 0
    shaped &= odd | ((time >= TIME_MIN_MS) & (time <= TIME_MAX_MS))
    guid = names
    for _ in range(3):
        text = data[np.minimum(guid, last)]
        odd |= (text & 0x81) != 0
        guid = guid + 1 + (text >> 1)
    odd &= shaped
    tracked = shaped & ~odd & (guid + GUID_BYTES <= end)
    rows = np.flatnonzero(tracked)
    group, origins = _origins(data, lanes, names, guid + INSTANCE_BYTES, rows)
    if any(origin is None for origin in origins):
        known = np.array([origin is not None for origin in origins])[group]
        tracked[rows[~known]] = False
        rows, group = rows[known], group[known]
    sent = None if sent_ms is None else sent_ms[rows]
    add_events(topic, origins, group, time[rows], length[rows], guid_hashes(lanes[guid[rows]], lanes[guid[rows] + 8]), into, sent)
    for row in np.flatnonzero(odd).tolist():
        one_sent = NO_TIME if sent_ms is None else int(sent_ms[row])
        count_value(reader, topic, data[start[row] : end[row]].tobytes(), int(timestamp_ms[row]), into, one_sent)
    _add_untracked(topic, timestamp_ms, length, ~tracked & ~odd, into)


def _of_tracked_schemas(lanes: Lanes, start: Int64s, reader: HeaderReader, among: Any) -> Any:
    found = np.zeros(len(start), bool)
    rows = np.flatnonzero(among)
    ids, which = np.unique((lanes[start[rows]] >> np.uint64(8)).astype(np.uint32).byteswap(), return_inverse=True)
    found[rows] = np.array([reader.knows(number) for number in ids.tolist()], bool)[which] if len(ids) else False
    return found


def _times(lane: Lanes) -> tuple[Int64s, Int64s]:
    """The zigzag varints that lanes begin with, and of how many bytes they are: 0 for one of more than eight."""
    stops = ~lane & _STOP_BITS
    stop = stops & (~stops + np.uint64(1))
    lane = lane & (stop | (stop - np.uint64(1)))
    number = np.zeros(len(lane), np.uint64)
    for index, mask in _SEVEN_BITS:
        number |= lane >> index & mask
    signed = (number >> np.uint64(1)).astype(np.int64) ^ -(number & np.uint64(1)).astype(np.int64)
    return signed, np.where(stops == 0, 0, np.searchsorted(_STOPS, stop) + 1)


def _origins(data: Bytes8, lanes: Lanes, start: Int64s, end: Int64s, rows: Int64s) -> tuple[Int64s, list[Origin | None]]:
    """The number of each row's origin, and the origins; None for names that are no UTF-8. Names, instance: from `start` to `end`."""
    start, end = start[rows], end[rows]
    size = end - start
    begins = np.ones(len(rows), bool)
    begins[1:] = size[1:] != size[:-1]
    for at in range(0, int(size.max(initial=0)), 8):
        lane = lanes[start + np.minimum(at, size - 8)]
        begins[1:] |= lane[1:] != lane[:-1]
    numbers: dict[bytes, int] = {}
    origins: list[Origin | None] = []
    of_runs: list[int] = []
    for row in np.flatnonzero(begins).tolist():
        region = data[start[row] : end[row]].tobytes()
        number = numbers.get(region)
        if number is None:
            number = numbers[region] = len(origins)
            origins.append(_origin(region))
        of_runs.append(number)
    return np.array(of_runs, np.int64)[np.cumsum(begins) - 1], origins


def _origin(region: bytes) -> Origin | None:
    header = read_header(bytes(_FRAME_BYTES + 1) + region + bytes(GUID_BYTES - INSTANCE_BYTES))
    return None if header is None else (header.datacenter, header.service, header.host, header.instance)


def add_events(
    topic: str,
    origins: Sequence[Origin | None],
    group: Int64s,
    time: Int64s,
    size: Int64s,
    digest: Lanes,
    into: Tally,
    sent_ms: Int64s | None = None,
) -> None:
    """Add events, each of the origin `origins[group]`, by window and origin; their latencies if the times of their records are given."""
    if not len(time):
        return
    window = time // WINDOW_MS
    if sent_ms is not None and into.seen_ms is not None:
        into.add_latencies(topic, _latencies(into.seen_ms, sent_ms, window))
    least = int(window.min())
    code = group * (int(window.max()) - least + 1) + (window - least)
    if (np.diff(code) < 0).any():
        order = np.argsort(code, kind="stable")
        code, group, window, time, size, digest = code[order], group[order], window[order], time[order], size[order], digest[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(code)) + 1])
    columns = (
        group[starts],
        window[starts] * WINDOW_MS,
        np.diff(np.append(starts, len(code))),
        np.add.reduceat(size.astype(np.int64), starts),
        np.add.reduceat(digest, starts),
        np.minimum.reduceat(time, starts),
        np.maximum.reduceat(time, starts),
    )
    for number, start_ms, *rest in zip(*(column.tolist() for column in columns), strict=True):
        origin = origins[number]
        assert origin is not None
        into.add(topic, start_ms, origin, *rest)


def _latencies(seen_ms: int, sent_ms: Int64s, window: Int64s) -> Iterator[tuple[int, int, int]]:
    """The start of each window, each bucket, and how many events; those of records without a time are left out.

    The bucket of a latency is made of its power of two and the two bits after it: a float has them next to each other.
    """
    if sent_ms.min() < 0:
        dated = sent_ms >= 0
        sent_ms, window = sent_ms[dated], window[dated]
        if not len(window):
            return
    latency_ms = seen_ms - sent_ms
    bucket = (np.maximum(latency_ms, 1).astype(np.float64).view(np.int64) >> 50) - _FIRST_QUARTER
    bucket *= latency_ms > 0
    least, windows = int(window.min()), int(window.max()) - int(window.min()) + 1
    if windows > 1:
        bucket = np.minimum(bucket, BUCKETS - 1) + (window - least) * BUCKETS
    if windows < _WINDOWS_MANY:
        counts = np.bincount(bucket)
        found = counts.nonzero()[0]
        counts = counts[found]
    else:
        found, counts = np.unique(bucket, return_counts=True)
    for code, count in zip(found.tolist(), counts.tolist(), strict=True):
        after, of_window = divmod(code, BUCKETS) if windows > 1 else (0, min(code, BUCKETS - 1))
        yield (least + after) * WINDOW_MS, of_window, count


def _add_untracked(topic: str, timestamp_ms: Int64s, length: Int64s, rows: Any, into: Tally) -> None:
    for stamp in np.unique(timestamp_ms[rows]).tolist():
        these = rows & (timestamp_ms == stamp)
        into.add_untracked(topic, stamp, int(these.sum()), int(length[these].sum()))
