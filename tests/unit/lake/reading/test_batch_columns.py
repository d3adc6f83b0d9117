"""The last column of a stream: that of the event times where they are those of a column, else that of the watermark."""

import pytest
from pyspark.sql.types import DateType, LongType, StructType, TimestampNTZType, TimestampType

from moldau.lake.reading.batch_columns import with_batch_column, without_batch_column
from moldau.lake.reading.event_times import EventTimes
from moldau.lake.reading.offsets import OptionError
from moldau.lake.reading.options import OptionScope, ReadOptions, parse_options

HEADER = StructType().add("Time", TimestampType()).add("day", DateType())
EVENTS = StructType().add("at", TimestampType()).add("local", TimestampNTZType()).add("n", LongType()).add("header", HEADER)
RECORDS = StructType([*EVENTS.fields]).add("_timestamp", TimestampType())


def options(**given: str) -> ReadOptions:
    decoded = {"format": "avro", "registry": "http://r:1"}
    return parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **decoded, **given}, OptionScope.STREAM)


def test_there_is_none_unless_it_is_wanted() -> None:
    assert with_batch_column(RECORDS, options()) is RECORDS
    assert without_batch_column(RECORDS, options()) == (RECORDS, None)


@pytest.mark.parametrize(("text", "path"), [("at", ("at",)), ("AT", ("at",)), ("header.time", ("header", "Time")), ("`at`", ("at",))])
def test_the_time_of_a_column(text: str, path: tuple[str, ...]) -> None:
    """Found as Spark finds it, whatever the case of its letters; also one in a column."""
    given = options(eventTime=text, eventTimeFuture="5m", countedAs="t")
    columns = with_batch_column(RECORDS, given)
    assert columns.names == [*RECORDS.names, "event_time"]
    assert without_batch_column(columns, given) == (RECORDS, EventTimes(path, "_timestamp", 300_000))


@pytest.mark.parametrize(
    "text", ["header.day", "local", "n", "header", "nothing", "at + INTERVAL 1 HOUR", "at.more", "timestamp_millis(n)"]
)
def test_another_time_is_left_to_spark(text: str) -> None:
    """Of an expression, or of another type than a timestamp: the stream has its watermark instead."""
    columns = with_batch_column(RECORDS, options(eventTime=text))
    assert columns.names == [*RECORDS.names, "_watermark"]
    assert without_batch_column(columns, options(eventTime=text)) == (RECORDS, "_watermark")


def test_two_columns_that_differ_in_case_are_left_to_spark() -> None:
    both = StructType([*RECORDS.fields]).add("At", TimestampType())
    assert with_batch_column(both, options(eventTime="at")).names[-1] == "_watermark"


def test_what_is_refused() -> None:
    watermark = options(watermarkColumn="true")
    with pytest.raises(OptionError, match="watermarkColumn: makes the column _watermark the last one of a schema"):
        without_batch_column(RECORDS, watermark)
    with pytest.raises(OptionError, match="watermarkColumn: would add a column _watermark, which is a field of the events"):
        with_batch_column(with_batch_column(RECORDS, watermark), watermark)
    with pytest.raises(OptionError, match="eventTime: makes the column event_time the last one of a schema"):
        without_batch_column(StructType([*RECORDS.fields]).add("other", LongType()), options(eventTime="at"))
    with pytest.raises(OptionError, match="eventTime: would add a column event_time, which is a field of the events"):
        with_batch_column(StructType([*RECORDS.fields]).add("event_time", LongType()), options(eventTime="at"))
    with pytest.raises(OptionError, match="eventTime: needs the column _timestamp"):
        with_batch_column(EVENTS, options(eventTime="at"))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"eventTime": "at", "watermarkColumn": "true"}, "watermarkColumn: cannot be given together with eventTime"),
        ({"eventTimeFuture": "1h"}, "eventTimeFuture: has no meaning without eventTime"),
        ({"countedAs": "t"}, "countedAs: has no meaning without eventTime"),
        ({"eventTime": "at", "eventTimeFuture": "soon"}, "eventTimeFuture: needs a time such as 15m"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        options(**given)


@pytest.mark.parametrize(("name", "value"), [("watermarkColumn", "true"), ("eventTime", "at")])
def test_a_batch_has_none(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: has no meaning for a batch: it has no watermark"):
        parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", name: value}, OptionScope.BATCH)
