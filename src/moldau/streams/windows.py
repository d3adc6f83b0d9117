"""Counts in windows of event time, rows without their repetitions, and joins of two streams within a bound of time.

Each is a few lines of Spark's own DataFrame functions, with the bound that its state needs. Rows that come after the watermark are dropped
by Spark; `moldau stream status` and the log have how many.
"""

from collections.abc import Sequence
from typing import Any

from moldau.lake.reading.event_times import COLUMN as EVENT_TIME
from moldau.lake.reading.watermark import COLUMN as WATERMARK
from moldau.streams.inputs import check_duration, duration_ms

COUNT = "count"
_KEPT_FOR = "spark.watermarkDelayMs"
"""In the metadata of the time's column: for how long Spark keeps keys of rows. A second watermark for another time is refused by Spark."""


def tumbling(frame: Any, length: str, *keys: str, offset: str | None = None) -> Any:
    """Rows counted by window of `length` and by `keys`: columns `window`, the keys, `count`. `offset` shifts the windows from 1970."""
    return sliding(frame, length, length, *keys, offset=offset)


def sliding(frame: Any, length: str, slide: str, *keys: str, offset: str | None = None) -> Any:
    """As `tumbling`, of windows that begin every `slide`: each row is in several. ValueError."""
    from pyspark.sql import functions

    size, step = check_duration("length", length), check_duration("slide", slide)
    window = (
        functions.window(EVENT_TIME, size, step)
        if offset is None
        else functions.window(EVENT_TIME, size, step, check_duration("offset", offset))
    )
    return frame.groupBy(window.alias("window"), *keys).agg(functions.count(functions.lit(1)).alias(COUNT))


def sessions(frame: Any, gap: str, *keys: str) -> Any:
    """Rows counted by session: a session of the same `keys` ends when none came for `gap`. At least one key is needed. ValueError."""
    from pyspark.sql import functions

    if not keys:
        raise ValueError("sessions are those of something: name a column, such as the member's")
    window = functions.session_window(EVENT_TIME, check_duration("gap", gap))
    return frame.groupBy(window.alias("window"), *keys).agg(functions.count(functions.lit(1)).alias(COUNT))


def closed(late: Any, length: str, slide: str | None = None, *, offset: str | None = None) -> Any:
    """Of late rows those that no window takes: the last one of theirs, of `tumbling` or `sliding` with the same lengths, had ended.

    For `StreamJob.late_to_table`. A row that comes late for a session of `gap` is taken while `_late_ms` is less than the gap. ValueError.
    """
    from pyspark.sql import functions

    size, step = check_duration("length", length), check_duration("slide", slide or length)
    last = functions.window(EVENT_TIME, step, step, *(() if offset is None else (check_duration("offset", offset),)))
    ended = functions.col("_last.start") + functions.expr(f"INTERVAL {size}") <= functions.col(WATERMARK)
    return late.withColumn("_last", last).filter(ended).drop("_last")


def distinct(frame: Any, horizon: str, *keys: str) -> Any:
    """Rows without those that repeat `keys` within `horizon` of event time; by default the guid of tracked events (`header.guid`).

    The state has the keys of the last `horizon`; the watermark stays as it is. Rows after the watermark are dropped. ValueError.
    """
    from pyspark.sql import functions

    given = keys or ("header.guid",)
    names = [key_column(key) for key in given]
    for name, key in zip(names, given, strict=True):
        frame = frame.withColumn(name, functions.col(key))
    frame = frame.withMetadata(EVENT_TIME, {_KEPT_FOR: duration_ms("horizon", horizon)})
    return frame.dropDuplicatesWithinWatermark(names).drop(*names)


def key_column(key: str) -> str:
    """The column beside those of the rows that has a key: its name is part of the job's shape, and has nothing that Spark would resolve."""
    return f"_distinct_{key.replace('.', '/').replace('`', '')}"


def join(left: Any, right: Any, on: str | Sequence[str], *, before: str, after: str, how: str = "inner") -> Any:
    """Pairs of rows with the same `on` whose right row is at most `before` earlier and at most `after` later than the left one.

    Columns of the right rows that the left ones have too get `right_` before their names, `on` apart. `how` is `inner`, or `left_outer`:
    then a left row without a match comes, with nulls, when no match can come any more. ValueError.
    """
    from pyspark.sql import functions

    if how not in ("inner", "left_outer"):
        raise ValueError(f"streams are joined inner or left_outer, not {how!r}")
    early, late = check_duration("before", before), check_duration("after", after)
    keys = [on] if isinstance(on, str) else list(on)
    for side, rows in (("left", left), ("right", right)):
        for key in keys:
            if key not in rows.columns:
                raise ValueError(f"the {side} rows have no column {key}; they have {', '.join(rows.columns)}")
    renamed = {name: f"right_{name}" for name in right.columns if name in left.columns}
    other = right.withColumnsRenamed(renamed)
    theirs, ours = functions.col(f"right_{EVENT_TIME}"), functions.col(EVENT_TIME)
    within = (theirs >= ours - functions.expr(f"INTERVAL {early}")) & (theirs <= ours + functions.expr(f"INTERVAL {late}"))
    for key in keys:
        within = (functions.col(key) == functions.col(f"right_{key}")) & within
    return left.join(other, within, how).drop(*(f"right_{key}" for key in keys))
