"""Event times: with a zone, or in milliseconds; never guessed."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from moldau.tracking import EventError
from moldau.tracking.producer import event_time_ms, text_bytes, time_bytes


def test_a_time_with_its_zone() -> None:
    prague = timezone(timedelta(hours=2))
    assert event_time_ms(datetime(2013, 7, 1, 14, 0, 0, 1_999, tzinfo=prague), "E.header.time") == 1_372_680_000_001
    assert event_time_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), "E.header.time") == -1
    assert event_time_ms(5, "E.header.time") == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (datetime(2013, 7, 1), "2013-07-01T00:00:00 has no time zone"),  # noqa: DTZ001
        (1.5, "needs a datetime with its zone or milliseconds"),
        (True, "needs a datetime"),
        ("now", "needs a datetime"),
        (1 << 60, "is not in the years 1 to 9999"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "-62135604000000 ms since 1970 is not in the years 1 to 9999"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2))), "is not in the years 1 to 9999"),
    ],
)
def test_what_is_no_time(given: Any, message: str) -> None:
    with pytest.raises(EventError, match=message) as caught:
        event_time_ms(given, "E.header.time")
    assert caught.value.path == "E.header.time"


def test_bytes_as_avro_has_them() -> None:
    assert [time_bytes(time_ms) for time_ms in (0, -1, 1, 63, 64, -65)] == [b"\0", b"\1", b"\2", b"\x7e", b"\x80\1", b"\x81\1"]
    assert text_bytes("ß") == b"\4\xc3\x9f"
