"""Records in and out of batches: values of 200 bytes without keys, and tracked events with a key and two headers, in the four codecs."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from codec.timing import per_call_us
from moldau.protocol.records.batch import CREATE_TIME, Columns, Compression, Record, encode_batch, iterate, read_columns
from moldau.protocol.records.header import HEADER_SIZE, read_header
from moldau.protocol.records.validate import validate_records

TARGET_PER_SECOND = 500_000
MAX_BYTES = 1 << 27


def plain(count: int) -> list[Record]:
    """As the paper's producer test has them."""
    return [Record(offset, 1_700_000_000_000 + offset // 8, CREATE_TIME, None, bytes(200), []) for offset in range(count)]


def tracked(count: int) -> list[Record]:
    """JSON of a flight or so, keyed, with two headers."""
    random = Random(7)
    return [
        Record(
            offset,
            1_700_000_000_000 + offset * 37,
            CREATE_TIME,
            b"N%05d" % random.randrange(4000),
            b'{"carrier":"UA","flight":%d,"delay":%d,"origin":"EWR","distance":%d,"hour":%d}'
            % (random.randrange(9999), random.randrange(200), random.randrange(3000), random.randrange(24)),
            [("line", b"%d" % offset), ("trace", random.randbytes(16))],
        )
        for offset in range(count)
    ]


def measure() -> Iterator[dict[str, Any]]:
    """Records per second of each way to read them, and of writing them."""
    for name, make in (("plain", plain), ("tracked", tracked)):
        for count in (1, 50, 4800):
            records = make(count)
            view = memoryview(encode_batch(records))
            yield rate(f"iterate, {name}", partial(consume, view), count, TARGET_PER_SECOND if name == "plain" and count > 1 else None)
            yield rate(f"read columns, {name}", partial(columns, view), count)
            yield rate(f"validate, {name}", partial(validate_records, bytes(view[HEADER_SIZE:]), read_header(view)), count)
            yield rate(f"encode batch, {name}", partial(encode_batch, records), count)
    for codec in Compression:
        view = memoryview(encode_batch(tracked(4800), compression=codec))
        yield rate(f"iterate, tracked, {codec.name.lower()}", partial(consume, view), 4800, batch_bytes=len(view))


def rate(name: str, function: Callable[[], object], count: int, target: int | None = None, **facts: Any) -> dict[str, Any]:
    """One line: records per second, from the median, the greatest and the least time of a call."""
    times = per_call_us(function)
    measured = {key: round(count / times[source] * 1e6) for key, source in (("median", "median"), ("min", "max"), ("max", "min"))}
    verdict = {} if target is None else {"target": target, "met": measured["median"] >= target}
    return {"benchmark": name, "unit": "records/s", "records": count, **measured, **verdict, **facts}


def consume(view: memoryview) -> None:
    """Every record as an object, none kept."""
    deque(iterate(view, max_decompressed_bytes=MAX_BYTES), maxlen=0)


def columns(view: memoryview) -> None:
    """Every record, into lists."""
    read_columns(view, Columns(), max_decompressed_bytes=MAX_BYTES)
