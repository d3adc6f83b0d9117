"""Event times that tasks make: as a plain model has them, row by row, and what is counted of the rows."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.reading.batch_order import BatchOrder
from moldau.lake.reading.event_times import TYPE, EventTimes
from moldau.lake.reading.input_counts import InputCounts
from moldau.lake.reading.narrowing import narrowed
from moldau.lake.reading.row_shape import RecordShape

TIMES = EventTimes(("at",), "_timestamp", 1_000)
Row = tuple[int | None, int, str | None]
"""The time in microseconds, that of the record in the log, and why the value cannot be decoded."""


def batch(rows: list[Row], name: str = "at") -> Any:
    own, logged, error = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.record_batch({name: pa.array(own, TYPE), "_timestamp": pa.array(logged, TYPE), "_error": pa.array(error, pa.string())})


def model(rows: list[Row], now_us: int, watermark_ms: int) -> tuple[list[int], InputCounts]:
    times, counts = [], InputCounts()
    for own, logged, error in rows:
        ahead = own is not None and own > now_us + 1_000_000
        time = min(logged, now_us) if own is None or ahead else own
        late = error is None and time <= 1000 * watermark_ms
        times.append(time)
        counts = counts.plus(
            InputCounts(
                rows=1,
                ahead=int(ahead and error is None),
                without_time=int(own is None and error is None),
                undecodable=int(error is not None),
                newest_ms=logged // 1000,
                late=int(late),
                latest_ms=watermark_ms - time // 1000 if late else None,
            )
        )
    return times, counts


MOMENTS = st.integers(-3_000_000, 9_000_000)
ROWS = st.lists(
    st.tuples(st.none() | MOMENTS, MOMENTS, st.sampled_from([None, None, "cut"])).map(lambda row: (None, *row[1:]) if row[2] else row)
)


@given(ROWS, st.integers(0, 4_000), st.integers(0, 5_000))
def test_as_row_by_row(rows: list[Row], now_ms: int, watermark_ms: int) -> None:
    """Claim: times and counts are those of the model, for times on both sides of the bound and of the watermark, before 1970 too."""
    made, counts = TIMES.of_batch(BatchOrder(now_ms, watermark_ms)).applied(batch(rows))
    times, expected = model(rows, 1000 * now_ms, watermark_ms)
    assert made.column("event_time").cast(pa.int64()).to_pylist() == times
    assert made.schema.names == ["at", "_timestamp", "_error", "event_time"]
    assert counts == expected


def test_a_value_that_cannot_be_decoded_is_not_ahead() -> None:
    """Also where the time is that of the record in the log, which such a record has."""
    times = EventTimes(("_timestamp",), "_timestamp", 1_000).of_batch(BatchOrder(2_000))
    _, counts = times.applied(batch([(None, 9_000_000, None), (None, 9_000_000, "cut")]))
    assert (counts.rows, counts.undecodable, counts.ahead) == (2, 1, 1)


def test_a_time_in_a_column() -> None:
    """Where the column is null the time is missing, whatever lies below it."""
    moment = datetime(2013, 1, 1, tzinfo=UTC)
    header = pa.array([{"time": moment}, {"time": None}, None], pa.struct([pa.field("time", pa.timestamp("ms", tz="UTC"))]))
    logged = pa.array([datetime(2013, 1, 2, tzinfo=UTC)] * 3, TYPE)
    times = EventTimes(("header", "time"), "timestamp", 1_000).of_batch(BatchOrder(int(moment.timestamp() * 1000) + 172_800_000))
    made, counts = times.applied(pa.record_batch({"header": header, "timestamp": logged}))
    assert made.column("event_time").to_pylist() == [moment, *[datetime(2013, 1, 2, tzinfo=UTC)] * 2]
    assert counts.without_time == 2


def test_columns_that_are_not_read_are_nulls() -> None:
    """They are not made; those of which the times are made are, and are nulls all the same where the batch does not read them."""
    times = EventTimes(("timestamp",), "timestamp", 1_000)
    shape = RecordShape(("key", "value", "offset", "timestamp"))
    kept, fill = narrowed(shape, times, BatchOrder(9, columns={"t": ["offset", "event_time"]}), "t")
    assert kept.fields == ("offset", "timestamp")
    made, _ = times.of_batch(BatchOrder(9)).applied(pa.record_batch({"offset": [5, 6], "timestamp": pa.array([1, 2], TYPE)}))
    filled = fill(made)
    assert filled.schema.names == ["key", "value", "offset", "timestamp", "event_time"]
    assert [filled.column(name).null_count for name in filled.schema.names] == [2, 2, 0, 2, 0]
    for order in (None, BatchOrder(9), BatchOrder(9, columns={"other": []})):
        all_of_it, fill = narrowed(shape, times, order, "t")
        assert all_of_it is shape
        assert fill(made) is made
