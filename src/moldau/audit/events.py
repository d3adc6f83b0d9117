"""Events counted one by one, in pure Python: values by their header, and the records of a batch by the headers of their values.

Almost all events of a batch come from one producer and lie a few minutes apart. So their bytes agree from the fourth byte of the time to
the end of the instance: service, host, datacenter and instance, with the upper half of the time before them. One comparison of these
bytes with those of the event before replaces reading them; what is left is three bytes of time, and the guid's hash. An event that is
different is read field by field, and one that is strange by `read_header`, which has the last word.
"""

from collections.abc import Callable, Iterable

from xxhash import xxh64_intdigest

from moldau.audit.tally import Origin, Tally
from moldau.model.errors import CorruptBatchError
from moldau.protocol.records.walk import long_varint
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


def count_value(reader: HeaderReader, topic: str, value: bytes | None, timestamp_ms: int, into: Tally) -> None:
    """Count one record's value; `timestamp_ms` is the time of its batch."""
    header = None
    if value is not None and len(value) >= _FRAME_BYTES and reader.knows(int.from_bytes(value[1:_FRAME_BYTES])):
        header = read_header(value)
    if header is None:
        into.add_untracked(topic, timestamp_ms, 1, len(value or b""))
        return
    origin = (header.datacenter, header.service, header.host, header.instance)
    digest = xxh64_intdigest(header.guid, HASH_SEED)
    assert value is not None
    _, _, bucket = into.span_of(header.time_ms)
    into.add_span(topic, origin, bucket, 1, len(value), digest, header.time_ms, header.time_ms)


def count_each(
    topic: str,
    values: Iterable[bytes | None],
    timestamp_ms: int = 0,
    *,
    is_tracked: SchemaCheck | None = None,
    seen_ms: int | None = None,
) -> Tally:
    """Count values one by one: slow and obvious, for a few of them. They were seen at `seen_ms`."""
    reader, tally = HeaderReader(is_tracked), Tally(seen_ms)
    for value in values:
        count_value(reader, topic, value, timestamp_ms, tally)
    return tally


def count_records(data: bytes, count: int, topic: str, timestamp_ms: int, reader: HeaderReader, into: Tally) -> None:
    """Count the `count` records of one batch, decompressed; `timestamp_ms` is its greatest time. CorruptBatchError where bytes do not
    add up: `into` may have counted some of them then.
    """
    starts_with = data.startswith
    frame, tail, base, origin = reader.frame, reader.tail, reader.time_base, reader.origin
    tail_bytes = len(tail) or _NEVER
    start_ms = bucket = events = size = checksum = least = greatest = 0
    end_ms = -1
    counted_origin = origin
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
            while data[p] >= 0x80:  # time of the record
                p += 1
            p += 1
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
                and starts_with(frame, p)
                and guid + 8 <= stop
                and (low := data[p + 5]) & 0x81 == 0x80
                and (b := data[p + 6]) >= 0x80
                and (n := data[p + 7]) >= 0x80
            ):
                time: int | None = base + ((low + (b << 7) + (n << 14)) >> 1)
            else:
                time = reader.read(data, p, stop)
                frame, tail, base, origin = reader.frame, reader.tail, reader.time_base, reader.origin
                tail_bytes = len(tail) or _NEVER
                guid = p + 8 + tail_bytes
            if time is None:
                untracked += 1
                untracked_size += length
                p = end
                continue
            if not tail:
                header = read_header(data[p:stop])
                assert header is not None
                digest = xxh64_intdigest(header.guid, HASH_SEED)
            else:
                digest = xxh64_intdigest(data[guid - 8 : guid + 8], HASH_SEED)
            if start_ms <= time < end_ms and origin is counted_origin:
                events += 1
                size += length
                checksum += digest
                if time < least:
                    least = time
                elif time > greatest:
                    greatest = time
            else:
                if events:
                    into.add_span(topic, counted_origin, bucket, events, size, checksum, least, greatest)
                if not start_ms <= time < end_ms:
                    start_ms, end_ms, bucket = into.span_of(time)
                counted_origin, events, size, checksum, least, greatest = origin, 1, length, digest, time, time
            p = end
        else:
            if p == len(data):
                if events:
                    into.add_span(topic, counted_origin, bucket, events, size, checksum, least, greatest)
                if untracked:
                    into.add_untracked(topic, timestamp_ms, untracked, untracked_size)
                return
    except IndexError:
        pass
    raise CorruptBatchError(f"the {count} records of a batch do not fill its {len(data)} bytes")
