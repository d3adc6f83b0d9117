"""The time of day, as events and counts have it. It needs nothing that is only there for producers and auditors."""

import time


def now_ms() -> int:
    """The time now, in ms since 1970."""
    return time.time_ns() // 1_000_000
