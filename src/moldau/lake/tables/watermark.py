"""Up to which time a table is complete: what the audit says, in the table's properties, and the wait for it.

The property ``completionWatermark`` is a time in UTC (``2013-07-01T10:00:00.000Z``): every event before it that any producer has sent
is in the table or in its dead letters.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from moldau.lake.tables.committing import set_properties
from moldau.lake.tables.format import TableFormat
from moldau.lake.tables.opening import open_table

COMPLETION_WATERMARK = "completionWatermark"
POLL_S = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IncompleteTableError(TimeoutError):
    """The table was not complete up to the time in time; the message says how far it is."""


def completion_watermark(path: str) -> datetime | None:
    """The time up to which the table is complete; None if there is no table or nobody has said yet. TableError."""
    snapshot = open_table(path)
    text = None if snapshot is None else snapshot.properties.get(COMPLETION_WATERMARK)
    return None if text is None else datetime.fromisoformat(text)


def set_watermark(tables: TableFormat, path: str, watermark_ms: int) -> int | None:
    """Say up to when the table is complete (ms since 1970); the version, or None if it said so already."""
    moment = _EPOCH + timedelta(milliseconds=watermark_ms)
    text = f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    return set_properties(tables, path, {COMPLETION_WATERMARK: text})


def wait_until_complete(
    path: str,
    until: datetime,
    timeout_s: float,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> datetime:
    """Wait until the table is complete up to `until` (a time zone is needed); the watermark then.

    IncompleteTableError after `timeout_s`; the table need not be there when the wait begins.
    """
    if until.tzinfo is None:
        raise ValueError(f"{until} has no time zone; with .replace(tzinfo=UTC) it is UTC")
    deadline = monotonic() + timeout_s
    while True:
        found = completion_watermark(path)
        if found is not None and found >= until:
            return found
        left = deadline - monotonic()
        if left <= 0:
            state = "nobody has said yet how far it is complete" if found is None else f"it is complete up to {found.isoformat()}"
            raise IncompleteTableError(f"{path}: not complete up to {until.isoformat()} after {timeout_s:g} s; {state}")
        sleep(min(POLL_S, left))
