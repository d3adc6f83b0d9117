"""The time of a tracked event is read from its bytes before it is decoded, and never wrongly."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.loading.decode import event_times
from moldau.lake.tables.data_files import partition_of, slots_of
from moldau.tracking.header import TIME_MAX_MS, TIME_MIN_MS


def zigzag(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])


def framed(schema_id: int, time_ms: int, rest: bytes = b"abc") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + zigzag(time_ms) + rest


def times(*values: bytes | None, tracked: tuple[int, ...] = (7,)) -> list[int]:
    array = pa.array([b"before", *values], pa.binary()).slice(1)
    return list(event_times(array, np.arange(-1, -1 - len(values), -1), tracked))


@given(st.lists(st.integers(TIME_MIN_MS, TIME_MAX_MS), max_size=20))
def test_the_time_of_the_header_is_found(wanted: list[int]) -> None:
    assert times(*(framed(7, each) for each in wanted)) == wanted


def test_whatever_is_no_tracked_event_has_the_time_of_its_record() -> None:
    assert times(None, b"", b"\0\0\0\0\7", framed(8, 5), b"\1" + framed(7, 5)[1:], framed(7, 5)) == [-1, -2, -3, -4, -5, 5]
    assert times(b"\0\0\0\0\7" + b"\xff" * 12, b"\0\0\0\0\7\xff\xff", framed(7, TIME_MAX_MS + 1)) == [-1, -2, -3]
    assert times(framed(7, 5), tracked=()) == [-1]
    assert times() == []


def test_large_schema_ids_are_told_apart() -> None:
    assert times(framed(0x7FFFFF07, 5), framed(0x7FFFFF08, 5), tracked=(0x7FFFFF07,)) == [5, -2]


def test_a_record_from_no_year_that_there_is_has_the_nearest_day() -> None:
    """Microseconds where milliseconds belong are the year 45000: a producer's mistake, and no reason for a load to stand still."""
    array = pa.array([b"", b""], pa.binary())
    assert list(event_times(array, np.array([1_372_680_000_000_000, -(2**62)]), ())) == [TIME_MAX_MS, TIME_MIN_MS]
    assert list(event_times(array, np.array([1_372_680_000_000_000, 5]), (7,))) == [TIME_MAX_MS, 5]
    assert partition_of(int(slots_of(TIME_MAX_MS, "hour")), "hour") == {"event_day": "9999-12-31", "event_hour": "23"}
    assert partition_of(int(slots_of(TIME_MIN_MS, "hour")), "hour") == {"event_day": "0001-01-01", "event_hour": "0"}
