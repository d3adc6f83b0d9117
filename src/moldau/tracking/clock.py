"""The time, as events and counts have it. It needs nothing that is only there for producers and auditors."""

import time
from datetime import UTC, datetime, timedelta


def now_ms() -> int:
    """The time now, in ms since 1970."""
    return time.time_ns() // 1_000_000


def since_boot_s() -> float:
    """Seconds that pass on a suspended machine too, as they do for those who wait for it, where the system counts them so (Linux)."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def moment(time_ms: int) -> str:
    """A time as people read it, in UTC: ``2013-01-01T12:00:05Z``; one beyond the years that there are as a number."""
    try:
        return f"{(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time_ms // 1000)).isoformat()[:19]}Z"
    except OverflowError:
        return f"@{time_ms}"
