"""Event times: what a caller may give, in milliseconds, and their bytes in the header."""

from datetime import UTC, datetime, timedelta
from typing import Final

from moldau.tracking.errors import EventError
from moldau.tracking.header import TIME_MAX_MS, TIME_MIN_MS
from moldau.tracking.schemas.numbers import varint_encoder

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def event_time_ms(given: datetime | int, path: str) -> int:
    """A time with its zone, or milliseconds since 1970, as the latter; parts of a millisecond are cut off. EventError."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise EventError(path, f"{given.isoformat()} has no time zone; datetime.now(UTC) has one")
        time_ms = (given - _EPOCH) // _MILLISECOND
    elif not isinstance(given, int) or isinstance(given, bool):
        raise EventError(path, f"needs a datetime with its zone or milliseconds since 1970, not {given!r}")
    else:
        time_ms = given
    if not TIME_MIN_MS <= time_ms <= TIME_MAX_MS:
        raise EventError(path, f"{time_ms} ms since 1970 is not in the years 1 to 9999")
    return time_ms


def time_bytes(time_ms: int) -> bytes:
    """As Avro writes a long: zigzag, then 7 bits to a byte, the lowest first."""
    return varint_encoder()((time_ms << 1) ^ (time_ms >> 63))


def text_bytes(text: str) -> bytes:
    """As Avro writes a string: its length in bytes, then UTF-8."""
    encoded = text.encode()
    return time_bytes(len(encoded)) + encoded
