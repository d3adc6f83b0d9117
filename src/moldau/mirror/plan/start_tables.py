"""The tables ``[start]`` and ``[sources.NAME.start]`` of a mirror's file."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from moldau.mirror.plan.start import FromOffset, FromTime, LogBound, Start, StartPoint, TopicStart
from moldau.model.identity import Offset, TimestampMs
from moldau.model.toml_table import INT64_MAX, Table, kind_of
from moldau.model.topic_names import NAME_RULE, is_allowed

TABLES: Final = ("topics",)
"""The keys of a start that hold tables."""
_PARTITION_MAX: Final = 2**31 - 1
_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_RULE: Final = "a time with date, seconds and zone (RFC 3339), such as 2026-11-28T06:30:00Z or 2026-11-28T07:30:00+01:00"
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)


def read_start(table: Table, is_mirrored: Callable[[str], bool], *, one_source: bool) -> Start:
    """The starts that a table has, of topics that are mirrored. Offsets are those of one source: unless it is for one they are errors."""
    table.only("default", "topics")
    default = _bound_or_time(table, "default") if "default" in table else LogBound.EARLIEST
    topics = {}
    for topic, each in table.named_tables("topics", ("partitions",)):
        topics[topic] = _topic_start(topic, each, one_source)
        if not is_mirrored(topic):
            each.fail_here("topics.include and topics.exclude do not select this topic")
    return Start(default, topics)


def _topic_start(topic: str, table: Table, one_source: bool) -> TopicStart:
    table.only("offset", "timestamp", "partitions", hint="; the name of a topic with dots needs quotes")
    if not is_allowed(topic):
        table.fail_here(f"no topic has this name; {NAME_RULE}")
    for name in ("offset", "partitions"):
        if name in table and not one_source:
            table.fail(name, "offsets are those of one source, and there are several: use [sources.NAME.start]")
    if "timestamp" in table and "offset" in table:
        table.fail("timestamp", "excludes offset")
    others: StartPoint | None = None
    if "offset" in table:
        others = _offset(table, "offset", table.raw("offset"))
    elif "timestamp" in table:
        others = _time(table, "timestamp")
    partitions = table.raw("partitions") if "partitions" in table else {}
    if not isinstance(partitions, Mapping):
        table.fail("partitions", f"must be a table of partitions and offsets, {{0 = 5, 1 = 7}}, not {kind_of(partitions)}")
    return TopicStart(
        others, {_partition(table, number): _offset(table, "partitions", each, number) for number, each in partitions.items()}
    )


def _partition(table: Table, text: str) -> int:
    if not _NUMBER.fullmatch(text) or str(int(text)) != text or int(text) > _PARTITION_MAX:
        table.fail("partitions", f"a partition is a number from 0 to {_PARTITION_MAX:,}, not {text!r}", text)
    return int(text)


def _offset(table: Table, name: str, value: object, *inner: str) -> StartPoint:
    if value == LogBound.EARLIEST.value or value == LogBound.LATEST.value:
        return LogBound(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT64_MAX:
        table.fail(name, f'must be an offset from 0 on, "earliest" or "latest", not {kind_of(value)}', *inner)
    return FromOffset(Offset(value))


def _bound_or_time(table: Table, name: str) -> StartPoint:
    value = table.raw(name)
    if value == LogBound.EARLIEST.value or value == LogBound.LATEST.value:
        return LogBound(value)
    return _time(table, name, 'must be "earliest", "latest" or ')


def _time(table: Table, name: str, problem: str = "must be ") -> FromTime:
    value = table.raw(name)
    moment = _moment(value)
    if moment is None:
        table.fail(name, f"{problem}{_TIME_RULE}, not {value if isinstance(value, datetime) else kind_of(value)}")
    if moment < _EPOCH:
        table.fail(name, f'{value} is before 1970: "earliest" is the log start offset')
    return FromTime(TimestampMs(-((_EPOCH - moment) // timedelta(milliseconds=1))))  # rounded up: no record before the time


def _moment(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else None
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value.upper()):
        return None
    try:
        return datetime.fromisoformat(value.upper())
    except ValueError:
        return None
