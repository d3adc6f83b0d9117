"""Events counted one by one, in pure Python: values by their header, and the records of a batch by the headers of their values.

Almost all events of a batch come from one producer and lie a few minutes apart. So their bytes agree from the fourth byte of the time to
the end of the instance: service, host, datacenter and instance, with the upper half of the time before them. One comparison of these
bytes with those of the event before replaces reading them; what is left is three bytes of time, and the guid's hash. An event that is
different is read field by field, and one that is strange by `read_header`, which has the last word.
"""

from collections.abc import Callable, Iterable

from xxhash import xxh64_intdigest

from moldau.audit.tally import NO_TIME, Origin, Tally
from moldau.model.errors import CorruptBatchError
from moldau.protocol.records.walk import long_varint
from moldau.tracking.counts import WINDOW_MS, window_start
from moldau.tracking.header import GUID_BYTES, HASH_SEED, INSTANCE_BYTES, read_header

SchemaCheck = Callable[[int], bool]
"""Whether the events of a schema id are tracked."""

_ORIGINS_MAX = 10_000
_FRAME_BYTES = 5
_USUAL_TIME_BYTES = 6  # 1970-07-16 to 2039-09-07
_LOW_BYTES = 3
_LOW_FLOOR = 0x80 | 0x80 << 7 | 0x80 << 14
"""What the high bits of the three low bytes of a time, set all, add to their sum."""
_NO_TAIL = b""
_SENT_MAX = (1 << 30) - 1
"""Records that are later by more are looked at one by one, all others are compared with numbers of one digit."""
_NEVER = 1 << 62
"""The length of no tail: no event is that long."""


class HeaderReader:
    """Reads headers, and remembers origins that it has seen. `is_tracked` None: whatever has the shape of a header is one."""

    def __init__(self, is_tracked: SchemaCheck | None = None) -> None:
        self.tail = _NO_TAIL
        """Upper bytes of the time, origin and instance of the event that was read last."""
        self.frame = b"\0" if is_tracked is None else b"\xff"
        """How a value starts that is tracked, as far as its schema goes."""
        self.time_base = 0
        self.origin: Origin = ("", "", "", "")
        self._is_tracked = is_tracked
        self._origins: dict[bytes, Origin] = {}

    @property
    def checks_schemas(self) -> bool:
        """Whether the shape alone does not decide."""
        return self._is_tracked is not None

    def knows(self, schema_id: int) -> bool:
        """Whether events of this schema are tracked."""
        return self._is_tracked is None or self._is_tracked(schema_id)

    def read(self, data: bytes, start: int, stop: int) -> int | None:
        """The time of the event at `start`, whose origin is `origin` then; None if it is untracked. Its guid ends 8 bytes after `tail`."""
        if stop - start < _FRAME_BYTES or data[start]:
            return None
        if self._is_tracked is not None:
            if not self._is_tracked(int.from_bytes(data[start + 1 : start + _FRAME_BYTES])):
                return None
            self.frame = data[start : start + _FRAME_BYTES]
        at = start + _FRAME_BYTES
        if start + _FRAME_BYTES + _USUAL_TIME_BYTES + 3 + GUID_BYTES <= stop and self._read_usual(data, at, stop):
            low = data[at] + (data[at + 1] << 7) + (data[at + 2] << 14)
            return self.time_base + (low >> 1)
        header = read_header(data[start:stop])
        if header is None:
            return None
        self.origin = (header.datacenter, header.service, header.host, header.instance)
        self.tail = _NO_TAIL
        return header.time_ms

    def _read_usual(self, data: bytes, at: int, stop: int) -> bool:
        """Whether time, origin and guid lie where they usually do; then they are taken in."""
        first, middle = data[at], data[at + 1] & data[at + 2] & data[at + 3] & data[at + 4]
        if first < 0x80 or first & 1 or middle < 0x80 or data[at + 5] >= 0x80:
            return False
        names = end = at + _USUAL_TIME_BYTES
        for _ in range(3):
            if end >= stop or data[end] & 0x81:
                return False
            end += 1 + (data[end] >> 1)
        if end + GUID_BYTES > stop:
            return False
        region = data[names : end + INSTANCE_BYTES]
        origin = self._origins.get(region)
        if origin is None:
            header = read_header(data[at - _FRAME_BYTES : end + GUID_BYTES])
            if header is None:
                return False
            if len(self._origins) >= _ORIGINS_MAX:
                self._origins.clear()
            origin = self._origins[region] = (header.datacenter, header.service, header.host, header.instance)
        high = (data[at + 3] & 0x7F) << 21 | (data[at + 4] & 0x7F) << 28 | data[at + 5] << 35
        self.time_base = (high - _LOW_FLOOR) >> 1
        self.tail = data[at + _LOW_BYTES : end + INSTANCE_BYTES]
        self.origin = origin
        return True


def count_value(reader: HeaderReader, topic: str, value: bytes | None, timestamp_ms: int, into: Tally, sent_ms: int = NO_TIME) -> None:
    """Count one record's value; `timestamp_ms` is the time of its batch, `sent_ms` its own."""
    header = None
    if value is not None and len(value) >= _FRAME_BYTES and reader.knows(int.from_bytes(value[1:_FRAME_BYTES])):
        header = read_header(value)
    if header is None:
        into.add_untracked(topic, timestamp_ms, 1, len(value or b""))
        return
    origin = (header.datacenter, header.service, header.host, header.instance)
    digest = xxh64_intdigest(header.guid, HASH_SEED)
    assert value is not None
    start_ms = window_start(header.time_ms)
    into.add(topic, start_ms, origin, 1, len(value), digest, header.time_ms, header.time_ms)
    into.add_latency(topic, start_ms, into.sent_alike(sent_ms)[2], 1)


def count_each(topic: str, values: Iterable[bytes | None], timestamp_ms: int = 0, *, is_tracked: SchemaCheck | None = None) -> Tally:
    """Count values one by one: slow and obvious, for a few of them. Their latencies are not counted."""
    reader, tally = HeaderReader(is_tracked), Tally()
    for value in values:
        count_value(reader, topic, value, timestamp_ms, tally)
    return tally


def count_records(data: bytes, count: int, topic: str, timestamp_ms: int, base_ms: int | None, reader: HeaderReader, into: Tally) -> None:
    """Count the `count` records of one batch, decompressed; `timestamp_ms` is its greatest time, `base_ms` what its records' times are
    relative to; None: all have the greatest. CorruptBatchError where bytes do not add up: `into` may have counted some of them then.

    A run of events of one origin and window is added to `into` as one; its latencies whenever the bucket changes. Times of events and
    records are compared as the batch has them, relative to a base and doubled: small numbers, which Python compares much faster.
    """
    starts_with = data.startswith
    frame, tail, base, origin = reader.frame, reader.tail, reader.time_base, reader.origin
    any_schema = not reader.checks_schemas
    tail_bytes = len(tail) or _NEVER
    start_ms = events = size = checksum = least = greatest = 0
    window = window_end = 0
    delta = sent = sent_end = -1
    bucket = dated = 0
    untracked = untracked_size = 0
    p = 0
    try:
        for _ in range(count):
            n = data[p]
            p += 1
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            end = p + (n >> 1)
            p += 1
            n = data[p]  # time of the record
            p += 1
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            if n != delta:
                delta = n
                if n & 1 or not sent <= n < sent_end:
                    if events > dated:
                        into.add_latency(topic, start_ms, bucket, events - dated)
                        dated = events
                    sent, sent_end, bucket = _sent_alike(into, n, timestamp_ms, base_ms)
            while data[p] >= 0x80:  # its offset
                p += 1
            p += 1
            n = data[p]
            p += 1
            if n != 1:
                if n >= 0x80:
                    n, p = long_varint(data, p - 1)
                p += n >> 1
            n = data[p]
            p += 1
            if n & 1:
                untracked += 1
                p = end
                continue
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            length = n >> 1
            stop = p + length
            if stop > end:
                break
            guid = p + 8 + tail_bytes
            if (
                starts_with(tail, p + 8)
                and data[p] == 0
                and (any_schema or starts_with(frame, p))
                and guid + 8 <= stop
                and (low := data[p + 5]) & 0x81 == 0x80
                and (b := data[p + 6]) >= 0x80
                and (n := data[p + 7]) >= 0x80
            ):
                time = low + (b << 7) + (n << 14)
            else:
                time_ms = reader.read(data, p, stop)
                frame = reader.frame
                if time_ms is None:
                    untracked += 1
                    untracked_size += length
                    p = end
                    continue
                if events:
                    into.add(topic, start_ms, origin, events, size, checksum, base + (least >> 1), base + (greatest >> 1))
                    into.add_latency(topic, start_ms, bucket, events - dated)
                    events = dated = window_end = 0
                tail, base, origin = reader.tail, reader.time_base, reader.origin
                tail_bytes = len(tail) or _NEVER
                if not tail:
                    count_value(reader, topic, data[p:stop], timestamp_ms, into, _time_of(delta, timestamp_ms, base_ms))
                    p = end
                    continue
                guid = p + 8 + tail_bytes
                time = time_ms - base << 1
            if window <= time < window_end:
                events += 1
                size += length
                checksum += xxh64_intdigest(data[guid - 8 : guid + 8], HASH_SEED)
                if time < least:
                    least = time
                elif time > greatest:
                    greatest = time
            else:
                if events:
                    into.add(topic, start_ms, origin, events, size, checksum, base + (least >> 1), base + (greatest >> 1))
                    into.add_latency(topic, start_ms, bucket, events - dated)
                    dated = 0
                start_ms = window_start(base + (time >> 1))
                window = start_ms - base << 1
                window_end = window + (WINDOW_MS << 1)
                events, size, least, greatest = 1, length, time, time
                checksum = xxh64_intdigest(data[guid - 8 : guid + 8], HASH_SEED)
            p = end
        else:
            if p == len(data):
                if events:
                    into.add(topic, start_ms, origin, events, size, checksum, base + (least >> 1), base + (greatest >> 1))
                    into.add_latency(topic, start_ms, bucket, events - dated)
                if untracked:
                    into.add_untracked(topic, timestamp_ms, untracked, untracked_size)
                return
    except IndexError:
        pass
    raise CorruptBatchError(f"the {count} records of a batch do not fill its {len(data)} bytes")


def _time_of(delta: int, timestamp_ms: int, base_ms: int | None) -> int:
    """The time of a record whose difference to the base is this varint, in zigzag form."""
    return timestamp_ms if base_ms is None else base_ms + (delta >> 1 ^ -(delta & 1))


def _sent_alike(into: Tally, delta: int, timestamp_ms: int, base_ms: int | None) -> tuple[int, int, int]:
    """The differences that are counted as this one, from one to before another, none of them negative; and their bucket."""
    if base_ms is None:
        return 0, _SENT_MAX, into.sent_alike(timestamp_ms)[2]
    first, beyond, bucket = into.sent_alike(base_ms + (delta >> 1 ^ -(delta & 1)))
    first, beyond = first - base_ms << 1, beyond - base_ms << 1
    return max(0, first), min(_SENT_MAX, beyond), bucket
