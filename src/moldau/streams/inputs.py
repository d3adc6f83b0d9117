"""A topic as a streaming DataFrame: decoded values, the place of each record, and `event_time` with its watermark.

Whatever the records have as their time, `event_time` is never null and never further ahead than the bound: there the time of the record in
the log stands in its place, which is counted. "Ahead" is measured by the time of the batch, which its checkpoint keeps, so that a batch
that is run again has the same rows.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from moldau.lake.reading.event_times import COLUMN as EVENT_TIME
from moldau.lake.reading.watermark import COLUMN as WATERMARK
from moldau.streams.dead_letters import with_dead_letters
from moldau.streams.json_values import CORRUPT, is_corrupt, json_event, json_schema
from moldau.streams.progress import AHEAD, LATE, LATEST_MS, METRIC, NEWEST_MS, ROWS, UNDECODABLE, WITHOUT_TIME

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMATS: Final = ("bytes", "json", "avro", "protobuf", "tracked")
LATE_MS: Final = "_late_ms"
"""Of late rows, where they are written: how long before the watermark they were."""
STOP, SKIP, DEAD_LETTERS = "stop", "skip", "dead-letters"
_RECORD = ("topic", "partition", "offset", "timestamp", "key")
_BYTES = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
_DURATION = re.compile(r"(\d+) (millisecond|second|minute|hour|day|week)s?")
_UNIT_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_GIVEN, _ERROR, _EVENT, _VALUE = "_given_time", "_error", "_event", "_value"
_TIMES = ("timestamp", "timestamp_ntz", "date")
_TAKEN = re.compile(r"would add a column (\S+), which is a field of the events")
"""What the source says of a column of its own, amid what Spark makes of it."""
_OF_STREAMS = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "limitsfile")
"""Options of the source that a batch has not."""


def check_duration(what: str, text: str) -> str:
    """The duration, as Spark takes it. ValueError."""
    if _DURATION.fullmatch(text.strip()) is None:
        raise ValueError(f"{what} is a time such as '10 minutes' or '1 hour', not {text!r}")
    return text.strip()


def duration_ms(what: str, text: str) -> int:
    """The duration in milliseconds. ValueError."""
    found = _DURATION.fullmatch(check_duration(what, text))
    assert found is not None
    return int(found[1]) * _UNIT_MS[found[2]]


@dataclass(frozen=True, slots=True)
class TopicInput:
    """What is read, and how its records become rows."""

    topic: str
    format: str = "bytes"
    schema: "str | StructType | None" = None
    """Of JSON objects; of Avro values the reader's schema, as text, or None for the latest of the registry."""
    registry: str | None = None
    time: str | None = None
    """A column, or an SQL expression over columns, with the event's time; None: the record's timestamp, of tracked events the header's."""
    delay: str = "10 minutes"
    future: str = "1 hour"
    start: str = "earliest"
    """`earliest`, `latest`, or JSON with an offset of each partition, where the job has no checkpoint yet."""
    records_max: int | None = None
    """No batch reads more offsets than this."""
    undecodable: str = STOP
    """What becomes of a value that cannot be decoded: the job stops, the record is skipped and counted, or it is put aside."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Others of the source."""
    metric: str = ""
    """Under which the input is counted; the topic's name."""

    def __post_init__(self) -> None:
        def must(fine: bool, problem: str) -> None:
            if not fine:
                raise ValueError(f"topic {self.topic}: {problem}")

        must(self.format in FORMATS, f"format is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {self.format!r}")
        must(self.undecodable in (STOP, SKIP, DEAD_LETTERS), f"undecodable is stop, skip or dead-letters, not {self.undecodable!r}")
        must(
            self.format != "json" or self.schema is not None,
            "format json needs the schema of its objects: schema='carrier string, at timestamp'",
        )
        must(self.format != "bytes" or self.schema is None, "format bytes has no schema: decode the column value")
        must(not self.is_decoded or self.registry is not None, f"format {self.format} needs a schema registry: StreamJob(registry=...)")
        must(
            self.format != "bytes" or self.undecodable != DEAD_LETTERS,
            "records of format bytes are not decoded: there are no dead letters",
        )
        must(self.format != "protobuf" or self.schema is None, "the columns of Protobuf values are those of the registry's latest schema")
        must(self.schema is None or not self.is_avro or isinstance(self.schema, str), "the schema of Avro values is its text")
        must(self.records_max is None or self.records_max > 0, f"a batch reads at least one record, not {self.records_max}")
        for what in ("delay", "future"):
            check_duration(f"topic {self.topic}: {what}", getattr(self, what))

    @property
    def is_avro(self) -> bool:
        """Whether the values are Avro."""
        return self.format in ("avro", "tracked")

    @property
    def is_decoded(self) -> bool:
        """Whether the source decodes the values, by a registry's schemas."""
        return self.is_avro or self.format == "protobuf"

    @property
    def language(self) -> str:
        """That of its schemas, in the registry's word."""
        return "AVRO" if self.is_avro else "PROTOBUF"

    @property
    def counted_as(self) -> str:
        """The name of its counts."""
        return self.metric or self.topic


def read_topic(spark: Any, given: TopicInput, *, brokers: str, group: str, dead_letters: str) -> Any:
    """The DataFrame. ValueError for a time that is no column or no time; OptionError of the source."""
    reader = (
        spark.readStream.format("moldau")
        .options(**{"kafka.bootstrap.servers": brokers, "subscribe": given.topic, "startingOffsets": given.start})
        .options(groupId=group, isolationLevel="read_committed")
    )
    if given.records_max is not None:
        reader = reader.option("maxOffsetsPerTrigger", given.records_max)
    reader = reader.options(**given.options)
    time = given.time or _time_of_format(given)
    if given.is_decoded or (given.format == "bytes" and time == _timestamp(given)):
        future = f"{duration_ms('future', given.future)}ms"
        reader = reader.options(eventTime=time, eventTimeFuture=future, countedAs=given.counted_as)
        beside = f"{EVENT_TIME} timestamp"
    else:
        reader = reader.option("watermarkColumn", "true")
        beside = f"{WATERMARK} bigint"
    rows, undecodable = _registered(reader, given, dead_letters) if given.is_decoded else _raw(reader, given, dead_letters, beside)
    if EVENT_TIME in rows.columns:
        return rows.filter(~undecodable).drop(_ERROR).withWatermark(EVENT_TIME, given.delay)
    return _timed(rows, given, undecodable)


Offsets = Mapping[str, int]
"""Of a topic by partition, as text."""


def read_range(spark: Any, given: TopicInput, *, brokers: str, starts: Offsets, ends: Offsets, time_ms: int) -> Any:
    """What a batch has read of a topic, between these offsets, with the rows that the stream has: `time_ms` is the time of the batch."""
    from pyspark.sql import functions

    offsets = {"startingOffsets": starts, "endingOffsets": ends}
    reader = (
        spark.read.format("moldau")
        .options(**{name: json.dumps({given.topic: dict(each)}) for name, each in offsets.items()})
        .options(**{"kafka.bootstrap.servers": brokers, "assign": json.dumps({given.topic: sorted(map(int, ends))})})
        .options(isolationLevel="read_committed")
        .options(**{name: value for name, value in given.options.items() if name.lower() not in _OF_STREAMS})
    )
    given = replace(given, undecodable=SKIP)  # what stops a job has stopped it before, and what was put aside is
    rows, undecodable = _registered(reader, given, "") if given.is_decoded else _raw(reader, given, "")
    now = functions.timestamp_millis(functions.lit(time_ms))
    rows, _ = _with_event_time(rows.filter(~undecodable), given, now)
    return rows.drop(_GIVEN, _ERROR)


def pinned(given: TopicInput) -> TopicInput:
    """The input with the version that is its subject's latest now, so that a second reading decodes by the same one.

    ValueError, RegistryError, RegistryUnavailableError.
    """
    from moldau.registry.client import RegistryClient

    names = {name.lower(): name for name in given.options}
    if not given.is_decoded or given.schema is not None or not names.keys().isdisjoint(("readerschema", "subjectversion")):
        return given
    assert given.registry is not None
    subject = given.options[names["subject"]] if "subject" in names else f"{given.topic}-value"
    with RegistryClient(given.registry) as registry:
        latest = registry.latest(subject)
    if latest.type != given.language:
        raise ValueError(
            f"topic {given.topic}: subject {subject}: version {latest.version} is a schema of type {latest.type}, not {given.language}"
        )
    return replace(given, options={**given.options, "subjectVersion": str(latest.version)})


def _raw(reader: Any, given: TopicInput, dead_letters: str, *beside: str) -> tuple[Any, Any]:
    """Rows, and which of them cannot be decoded. `beside` are columns that the source has too, with their types."""
    from pyspark.sql import functions

    records = reader.schema(", ".join([_BYTES, *beside])).load()
    beside = tuple(each.split()[0] for each in beside)
    if given.format == "bytes":
        return records, functions.lit(False)
    assert given.schema is not None
    schema = json_schema(given.schema)
    _check_names(given, schema.names)
    put_aside = [functions.col("value").alias(_VALUE)] if given.undecodable == DEAD_LETTERS else []
    rows = records.select(
        *put_aside,
        json_event(functions.col("value"), schema).alias(_EVENT),
        (functions.col("value").isNotNull()).alias(_ERROR),
        *(functions.col(name).alias(f"_{name}") for name in _RECORD),
        *beside,
    )
    rows = rows.select(
        *(_VALUE for _ in put_aside),
        *(functions.col(f"{_EVENT}.`{name}`") for name in schema.names),
        *(f"_{name}" for name in _RECORD),
        *beside,
        (functions.col(_ERROR) & is_corrupt(functions.col(_EVENT))).alias(_ERROR),
    )
    if put_aside:
        rows = with_dead_letters(rows, dead_letters, value=_VALUE, error=_ERROR)
    return rows, functions.col(_ERROR)


def _registered(reader: Any, given: TopicInput, dead_letters: str) -> tuple[Any, Any]:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    reader = reader.options(
        format="protobuf" if given.format == "protobuf" else "avro", registry=given.registry, kafkaColumns=",".join(_RECORD)
    )
    if given.schema is not None:
        reader = reader.option("readerSchema", given.schema)
    if given.undecodable != STOP:
        reader = reader.option("mode", "PERMISSIVE")  # rows, to be counted
    if given.undecodable == DEAD_LETTERS:
        reader = reader.option("deadLetterPath", dead_letters)
    try:
        rows = reader.load()
    except PySparkException as error:
        if (taken := _TAKEN.search(str(error))) is not None:
            _check_names(given, [taken[1]])
        raise
    _check_names(given, [name for name in rows.columns[:-1] if not name.startswith("_")])
    return rows, functions.lit(False) if given.undecodable == STOP else functions.col(_ERROR).isNotNull()


def _check_names(given: TopicInput, names: list[str]) -> None:
    reserved = {EVENT_TIME, WATERMARK, LATE_MS, CORRUPT, _GIVEN, _ERROR, _EVENT, _VALUE, *(f"_{name}" for name in _RECORD)}
    for name in names:
        if name.lower() in reserved:
            raise ValueError(f"topic {given.topic}: a field of its events has the name {name}, which is a column of every input")


def _timed(rows: Any, given: TopicInput, undecodable: Any) -> Any:
    """With `event_time`, its watermark, and the counts, where the time is an expression of Spark; without the rows that are skipped."""
    from pyspark.sql import functions

    rows, ahead = _with_event_time(rows, given, functions.current_timestamp())
    late = functions.col(EVENT_TIME) <= functions.timestamp_millis(functions.col(WATERMARK))
    late_ms = functions.col(WATERMARK) - functions.unix_millis(EVENT_TIME)

    def count(which: Any) -> Any:
        return functions.count(functions.when(which, functions.lit(1)))

    rows = rows.observe(
        METRIC + given.counted_as,
        count(functions.lit(True)).alias(ROWS),
        count(ahead & ~undecodable).alias(AHEAD),
        count(functions.col(_GIVEN).isNull() & ~undecodable).alias(WITHOUT_TIME),
        count(undecodable).alias(UNDECODABLE),
        functions.unix_millis(functions.max(functions.col(_timestamp(given)))).alias(NEWEST_MS),
        count(late & ~undecodable).alias(LATE),
        functions.max(functions.when(late & ~undecodable, late_ms)).alias(LATEST_MS),
    )
    if given.undecodable == STOP and given.format == "json":
        place = functions.concat(
            functions.col("_topic"), functions.lit("-"), functions.col("_partition"), functions.lit(": offset "), functions.col("_offset")
        )
        reason = functions.lit(
            ": the value is no JSON object of the input's schema; undecodable='skip' leaves such records out, and counts them"
        )
        rows = rows.filter(
            functions.when(undecodable, functions.raise_error(functions.concat(place, reason)).cast("boolean")).otherwise(
                functions.lit(True)
            )
        )
    else:
        rows = rows.filter(~undecodable)
    return rows.drop(_GIVEN, _ERROR, WATERMARK).withWatermark(EVENT_TIME, given.delay)


def _timestamp(given: TopicInput) -> str:
    """The column with the time of the record in the log."""
    return "timestamp" if given.format == "bytes" else "_timestamp"


def _time_of_format(given: TopicInput) -> str:
    """The column with the time of rows for which none is named."""
    return "header.time" if given.format == "tracked" else _timestamp(given)


def _with_event_time(rows: Any, given: TopicInput, now: Any) -> tuple[Any, Any]:
    """Rows with the time that they have themselves and `event_time`, and which of them are too far ahead of `now`. ValueError."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    logged = functions.least(functions.col(_timestamp(given)), now)
    time = given.time or _time_of_format(given)
    try:
        kind = rows.select(functions.expr(time)).schema[0].dataType.simpleString()
    except PySparkException as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"topic {given.topic}: the time {time!r} is no column or expression of its rows: {first}") from error
    if kind not in _TIMES:
        hint = f"; for milliseconds since 1970 write timestamp_millis({time})" if kind == "bigint" else ""
        raise ValueError(f"topic {given.topic}: the time {time!r} is of type {kind}, not a timestamp{hint}")
    rows = rows.withColumn(_GIVEN, functions.expr(time).cast("timestamp"))
    # in microseconds: Spark would add an interval to the time of the batch again for each row
    latest = functions.unix_micros(now) + functions.lit(1000 * duration_ms("future", given.future))
    ahead = functions.coalesce(functions.unix_micros(functions.col(_GIVEN)) > latest, functions.lit(False))
    time_of_event = functions.when(functions.col(_GIVEN).isNull() | ahead, logged).otherwise(functions.col(_GIVEN))
    return rows.withColumn(EVENT_TIME, time_of_event), ahead
