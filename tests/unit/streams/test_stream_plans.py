"""What is read in the text of Spark's plans. Spark is not started: the texts are those of Spark 4."""

from moldau.streams.plans import window_lengths

TIME = "precise_timestamp_conversion(event_time#{}-T600000ms, TimestampType, LongType)"
REMAINDER = f"(({TIME} - {{}}) % 1200000000)"
WINDOW = (
    "named_struct(start, precise_timestamp_conversion((({0} - CASE WHEN ({1} < 0) THEN ({1} + 1200000000) ELSE {1} END) - {2}), LongType, "
    "TimestampType), end, ((... - {2}) + 3600000000)), event_time#{3}-T600000ms"
)


def sliding(number: int, offset: int = 0) -> str:
    """An hour every 20 minutes, over the column of this number."""
    time, remainder = TIME.format(number), REMAINDER.format(number, offset)
    return f"List({', '.join('List(' + WINDOW.format(time, remainder, 1_200_000_000 * each, number) + ')' for each in range(3))})"


def test_numbers_of_columns_are_no_lengths() -> None:
    """They are others in each plan, and grow."""
    assert window_lengths(sliding(7)) == window_lengths(sliding(1234)) == window_lengths(sliding(123_456_789)) == "3600 s, 2400 s, 1200 s"


def test_each_length_counts() -> None:
    """The slide where an offset is less, and an offset of less than a second."""
    assert window_lengths(sliding(7, 300_000_000)) == "3600 s, 2400 s, 1200 s, 300 s"
    assert window_lengths(sliding(7, 1_000)) == "3600 s, 2400 s, 1200 s, 0.001 s"


def test_the_gap_of_a_session() -> None:
    gap = "CAST('15 minutes' AS INTERVAL)"
    assert window_lengths(f"NAMED_STRUCT('start', `event_time`, 'end', CAST(`event_time` + {gap} AS TIMESTAMP))") == "15 minutes"
