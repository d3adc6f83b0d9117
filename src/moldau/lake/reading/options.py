"""The options of the format ``moldau``, batch and stream: names and meanings of Spark's Kafka connector, checked before anything is read.

An option that is unknown, misspelt, at odds with another one or without a meaning here is refused by name: a read that silently
ignores ``endingOffset`` would load the wrong data. The functions that read the text of one option, the sink's too, raise OptionError in its
name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from moldau.client.partition_requests import READ_COMMITTED, READ_UNCOMMITTED
from moldau.lake.reading.offsets import (
    ACCEPT_LOSS,
    EARLIEST,
    LATEST,
    Offsets,
    OptionError,
    PartitionEdge,
    Position,
    Times,
    parse_assignment,
    parse_numbers,
)
from moldau.model.identity import TopicPartition

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def spelt_right(given: Mapping[str, str], names: Iterable[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """The options under their own spelling; the JVM hands names over in lower case. One that is not among `names` is refused."""
    spelling = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() == "path":
            raise OptionError("path", "there is no path to read; name the topics with subscribe and call load() without arguments")
        if name.lower() not in spelling:
            raise OptionError(name, _unknown(name, spelling))
        spelt = spelling[name.lower()]
        ours = aliases.get(spelt, spelt)
        if ours in options:
            other = next(each for each in spelling.values() if aliases.get(each, each) == ours and each != spelt)
            raise OptionError(spelt, f"cannot be given together with {other}")
        options[ours] = value
    return options


def _unknown(name: str, spelling: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), spelling, n=1, cutoff=0.75)
    if close:
        return f"is not known; is {spelling[close[0]]} meant?"
    return f"is not known; there are {', '.join(spelling.values())}"


def one_of(options: Mapping[str, str], names: Iterable[str]) -> str | None:
    """The one of `names` that is given, if any; two are refused."""
    present = [name for name in names if name in options]
    if len(present) > 1:
        raise OptionError(present[1], f"cannot be given together with {present[0]}")
    return present[0] if present else None


def number(name: str, text: str, least: int) -> int:
    """A whole number."""
    try:
        value = int(text)
    except ValueError:
        raise OptionError(name, f"needs a whole number, not {text!r}") from None
    if value < least:
        raise OptionError(name, f"needs at least {least}, not {value}")
    return value


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """``true`` or ``false``."""
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(name, f"is true or false, not {text!r}")
    return text == "true"


def duration_ms(name: str, text: str) -> int:
    """A duration as Spark writes it: ``15m``, ``90s``, ``500ms``; a bare number is milliseconds."""
    digits = text.strip().lower()
    unit = digits.lstrip("0123456789")
    digits = digits[: len(digits) - len(unit)]
    scale = _MILLISECONDS.get(unit.strip() or "ms")
    if not digits or scale is None:
        raise OptionError(name, f"needs a time such as 15m, 90s or 500ms, not {text!r}")
    return int(digits) * scale


def choice(options: Mapping[str, str], name: str, choices: Iterable[str], default: str) -> str:
    """One of some words, in any case."""
    text = options.get(name, default).strip()
    for each in choices:
        if text.lower() == each.lower():
            return each
    raise OptionError(name, f"is {' or '.join(choices)}, not {text!r}")


_FORMAT, _REGISTRY, _SUBJECT, _SCHEMA, _MODE = "format", "registry", "subject", "readerSchema", "mode"
_DEAD_LETTERS, _KAFKA_COLUMNS, _MESSAGE, _VERSION = "deadLetterPath", "kafkaColumns", "message", "subjectVersion"
AVRO_NAMES = (_FORMAT, _REGISTRY, _SUBJECT, _VERSION, _SCHEMA, _MODE, _DEAD_LETTERS, _KAFKA_COLUMNS, _MESSAGE)
AVRO, PROTOBUF = "avro", "protobuf"
FAILFAST, PERMISSIVE, DEAD_LETTERS = "FAILFAST", "PERMISSIVE", "dead letters"
"""What becomes of a value that cannot be decoded: it fails the read; it is a row of nulls with its error; it is put aside."""
RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "headers")
"""What can stand beside the fields of an event, each with a ``_`` before its name."""
_USUAL = ("topic", "partition", "offset", "timestamp", "key")


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """How values are decoded."""

    registry: str
    subject: str | None
    """The subject whose schema is the reader's; None where `reader_schema` is given."""
    reader_schema: str | None
    mode: str
    dead_letter_path: str | None
    """Where values that cannot be decoded are put; in PERMISSIVE mode they are rows as well."""
    record_columns: tuple[str, ...]
    """Those of RECORD_COLUMNS that are made."""
    language: str = AVRO
    message: str | None = None
    """Of Protobuf the full name of the message; None: the first one of the schema."""
    version: int | None = None
    """Of the subject; None: the latest."""


def parse_avro(options: Mapping[str, str], only_topic: str | None) -> AvroOptions | None:
    """The options for decoding; None for ``format=bytes``. OptionError."""
    language = choice(options, _FORMAT, ("bytes", AVRO, PROTOBUF), "bytes")
    if language == "bytes":
        for name in AVRO_NAMES[1:]:
            if name in options:
                raise OptionError(name, "has no meaning without format=avro or format=protobuf")
        return None
    if not options.get(_REGISTRY, "").strip():
        raise OptionError(_REGISTRY, f"is needed for format={language}: the URL of a schema registry")
    if language == AVRO and _MESSAGE in options:
        raise OptionError(_MESSAGE, "has no meaning without format=protobuf")
    if language == PROTOBUF and _SCHEMA in options:
        raise OptionError(_SCHEMA, "has no meaning with format=protobuf: the columns are those of the latest schema of subject")
    _check_url(options[_REGISTRY])
    given = one_of(options, (_SUBJECT, _SCHEMA))
    if given == _SCHEMA and _VERSION in options:
        raise OptionError(_VERSION, f"cannot be given together with {_SCHEMA}")
    if given is None and only_topic is None:
        raise OptionError(_SUBJECT, "or readerSchema is needed: more than one topic may be read")
    mode = choice(options, _MODE, (FAILFAST, PERMISSIVE), FAILFAST)
    path = options.get(_DEAD_LETTERS, "").strip() or None
    if _DEAD_LETTERS in options:
        if path is None:
            raise OptionError(_DEAD_LETTERS, "is empty")
        if _MODE in options and mode != PERMISSIVE:
            raise OptionError(_DEAD_LETTERS, f"cannot be given together with {_MODE}={mode}: the read does not fail for them")
        if _MODE not in options:
            mode = DEAD_LETTERS
    return AvroOptions(
        registry=options[_REGISTRY].strip(),
        subject=None if given == _SCHEMA else options.get(_SUBJECT, f"{only_topic}-value"),
        reader_schema=options.get(_SCHEMA),
        mode=mode,
        dead_letter_path=path,
        record_columns=_record_columns(options.get(_KAFKA_COLUMNS, "false")),
        language=language,
        message=options.get(_MESSAGE, "").strip() or None,
        version=number(_VERSION, options[_VERSION], 1) if _VERSION in options else None,
    )


def _check_url(text: str) -> None:
    from moldau.registry.client import RegistryClient

    try:
        RegistryClient(text.strip())
    except ValueError as error:
        raise OptionError(_REGISTRY, str(error)) from None


def _record_columns(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words in (["true"], ["false"]):
        return _USUAL if words == ["true"] else ()
    known = {name.lower(): name for name in RECORD_COLUMNS}
    for word in words:
        if word.lstrip("_").lower() not in known:
            raise OptionError(_KAFKA_COLUMNS, f"is true, false or some of {', '.join(RECORD_COLUMNS)}; there is no {word!r}")
    chosen = {known[word.lstrip("_").lower()] for word in words}
    return tuple(name for name in RECORD_COLUMNS if name in chosen)


BOOTSTRAP = "kafka.bootstrap.servers"
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_TRIGGERS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_CLIENT_ID = "moldau-spark"
_STRATEGY = "startingOffsetsByTimestampStrategy"
_NUMBERS = {
    "minPartitions": 1,
    "maxRecordsPerPartition": 1,
    "maxBytesPerFetch": 1,
    "kafkaConsumer.pollTimeoutMs": 1,
    "maxOffsetsPerTrigger": 1,
    "minOffsetsPerTrigger": 1,
}
_ALIASES = {"kafka.group.id": "groupId", "kafka.isolation.level": "isolationLevel"}
"""Other names for options of ours: those that the connector hands on to Kafka's consumer."""
NAMES = (
    BOOTSTRAP, "kafka.client.id", *_SUBSCRIPTIONS, *_STARTS, *_ENDS, _STRATEGY, *_NUMBERS, "maxTriggerDelay", "includeHeaders",
    "failOnDataLoss", "isolationLevel", "groupId", "watermarkColumn", "eventTime", "eventTimeFuture", "countedAs", "limitsFile",
    *AVRO_NAMES, *_ALIASES,
)  # fmt: skip
"""Every option there is."""
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


_BYTES_PER_FETCH = 4 << 20
_POLL_TIMEOUT_MS = 120_000
_TRIGGER_DELAY_MS = 15 * 60_000
_FUTURE_MS = 3_600_000
_FROM_EARLIEST, _TO_LATEST = PartitionEdge(EARLIEST), PartitionEdge(LATEST)


class OptionScope(Enum):
    """What the options are for; when Spark asks for the columns it is not known."""

    BATCH = "batch"
    STREAM = "stream"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Read all partitions of the topics with these names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Read all partitions of every topic whose whole name the regular expression matches (Python's syntax); internal ones only if the
    expression begins with an underscore."""

    pattern: str


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """Read these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and how. Times in ms, sizes in bytes."""

    bootstrap: str
    subscription: TopicNames | Pattern | PartitionAssignment
    starting: Position = _FROM_EARLIEST
    ending: Position = _TO_LATEST
    starting_name: str = "startingOffsets"
    ending_name: str = "endingOffsets"
    """The options that `starting` and `ending` came from, for messages."""
    client_id: str = _CLIENT_ID
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = _TRIGGER_DELAY_MS
    """A batch below `min_offsets_per_trigger` waits no longer than this."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    accept_loss: str = ACCEPT_LOSS
    """The option that turns `fail_on_data_loss` off, for messages."""
    max_bytes_per_fetch: int = _BYTES_PER_FETCH
    poll_timeout_ms: int = _POLL_TIMEOUT_MS
    """A task that gets nothing for so long fails; until then a broker that does not answer is asked again."""
    isolation_level: int = READ_UNCOMMITTED
    group_id: str | None = None
    """The group that a stream, or a load after its table, commits to; a batch read commits nothing."""
    watermark_column: bool = False
    """Whether a stream has the column of its watermark (`moldau.lake.reading.watermark`)."""
    event_time: str | None = None
    """The column with which a stream has that of its event times (`moldau.lake.reading.event_times`); where it is none of timestamps, as an
    expression, the stream has the column of its watermark."""
    future_ms: int = _FUTURE_MS
    """An event time is not further ahead of its batch."""
    counted_as: str | None = None
    """The name under which tasks count the rows of the input, by their event times."""
    limits_file: str | None = None
    """Where a stream finds how far it may read now (`moldau.lake.reading.limits`)."""
    avro: AvroOptions | None = None
    """How values are decoded; None: not at all."""


def parse_options(given: Mapping[str, str], use: OptionScope = OptionScope.BATCH) -> ReadOptions:
    """Options as Spark hands them over (names in any case). OptionError names the first one that is wrong."""
    options = spelt_right(given, NAMES, _ALIASES)
    if not options.get(BOOTSTRAP, "").strip():
        raise OptionError(BOOTSTRAP, "is needed: HOST:PORT of one or more brokers")
    _meant_for(use, options)
    no_start, default = ("", LATEST) if use is OptionScope.STREAM else ("" if use is OptionScope.EITHER else "latest", EARLIEST)
    starting_name, starting = _position(options, _STARTS, no_start, default, or_latest=_or_latest(options))
    ending_name, ending = _position(options, _ENDS, "earliest", LATEST, or_latest=True)
    numbers = {name: number(name, options[name], least) for name, least in _NUMBERS.items() if name in options}
    subscription = _subscription(options)
    least, most = numbers.get("minOffsetsPerTrigger"), numbers.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"is {least}, more than maxOffsetsPerTrigger, {most}")
    if "maxTriggerDelay" in options and least is None:
        raise OptionError("maxTriggerDelay", "has no meaning without minOffsetsPerTrigger")
    return ReadOptions(
        bootstrap=options[BOOTSTRAP].strip(),
        subscription=subscription,
        starting=starting,
        ending=ending,
        starting_name=starting_name,
        ending_name=ending_name,
        client_id=options.get("kafka.client.id", _CLIENT_ID),
        min_partitions=numbers.get("minPartitions"),
        max_records_per_partition=numbers.get("maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=duration_ms("maxTriggerDelay", options.get("maxTriggerDelay", f"{_TRIGGER_DELAY_MS}ms")),
        include_headers=flag(options, "includeHeaders", default=False),
        fail_on_data_loss=flag(options, "failOnDataLoss", default=True),
        max_bytes_per_fetch=numbers.get("maxBytesPerFetch", _BYTES_PER_FETCH),
        poll_timeout_ms=numbers.get("kafkaConsumer.pollTimeoutMs", _POLL_TIMEOUT_MS),
        isolation_level=_isolation_level(options),
        group_id=_group_id(options),
        watermark_column=flag(options, "watermarkColumn", default=False),
        event_time=_event_time(options),
        future_ms=duration_ms("eventTimeFuture", options.get("eventTimeFuture", f"{_FUTURE_MS}ms")),
        counted_as=options.get("countedAs"),
        limits_file=options.get("limitsFile"),
        avro=parse_avro(options, only_topic(subscription)),
    )


def only_topic(subscription: TopicNames | Pattern | PartitionAssignment) -> str | None:
    """The topic that is read, if it is certain that it is one."""
    match subscription:
        case TopicNames(names):
            return names[0] if len(names) == 1 else None
        case PartitionAssignment(partitions):
            topics = {partition.topic for partition in partitions}
            return topics.pop() if len(topics) == 1 else None
        case _:
            return None


def _meant_for(use: OptionScope, options: Mapping[str, str]) -> None:
    """A stream has no end, and a batch no triggers."""
    if use is OptionScope.STREAM:
        for name in _ENDS:
            if name in options:
                raise OptionError(name, "has no meaning for a stream: it has no end")
    if use is OptionScope.BATCH:
        for name in _TRIGGERS:
            if name in options:
                raise OptionError(name, "has no meaning for a batch: it has no triggers")
        for name in ("watermarkColumn", "eventTime"):
            if name in options:
                raise OptionError(name, "has no meaning for a batch: it has no watermark")


def _subscription(options: Mapping[str, str]) -> TopicNames | Pattern | PartitionAssignment:
    name = one_of(options, _SUBSCRIPTIONS)
    if name is None:
        raise OptionError("subscribe", "or subscribePattern or assign is needed to select what is read")
    text = options[name].strip()
    if name == "assign":
        return PartitionAssignment(parse_assignment(name, text))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(name, f"is not a regular expression: {error}") from None
        return Pattern(text)
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError(name, "names no topic")
    return TopicNames(topics)


def _position(
    options: Mapping[str, str], names: tuple[str, ...], wrong_word: str, default: int, *, or_latest: bool
) -> tuple[str, Position]:
    """Start or end of the read; a batch can neither start at the end nor end at the start: there `wrong_word` is refused."""
    by_offset, by_time, by_times = names
    name = one_of(options, names)
    if name is None:
        return by_offset, PartitionEdge(default)
    text = options[name].strip()
    if name == by_time:
        return name, Times(number(name, text, 0), or_latest)
    if name == by_times:
        times = parse_numbers(name, text)
        _all_at_least(name, times, 0)
        return name, Times(times, or_latest)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        if text.lower() == wrong_word:
            raise OptionError(name, f"{text!r} would leave nothing to read")
        return name, PartitionEdge(words[text.lower()])
    if not text.startswith(("{", "[")):
        raise OptionError(name, f"is earliest, latest or JSON by topic and partition, not {text[:60]!r}")
    offsets = parse_numbers(name, text)
    _all_at_least(name, offsets, EARLIEST)
    for partition, offset in offsets.items():
        if offset == words.get(wrong_word, 0) < 0:
            raise OptionError(name, f"{partition} has {offset} ({wrong_word}), which would leave nothing to read")
    return name, Offsets(offsets)


def _or_latest(options: Mapping[str, str]) -> bool:
    text = options.get(_STRATEGY, "error").strip().lower()
    if text not in ("error", "latest"):
        raise OptionError(_STRATEGY, f"is error or latest, not {text!r}")
    if _STRATEGY in options and not ("startingTimestamp" in options or "startingOffsetsByTimestamp" in options):
        raise OptionError(_STRATEGY, "has no meaning without startingTimestamp or startingOffsetsByTimestamp")
    return text == "latest"


def _all_at_least(name: str, numbers: Mapping[TopicPartition, int], least: int) -> None:
    for partition, value in numbers.items():
        if value < least:
            raise OptionError(name, f"{partition} has {value}; the least is {least}")


def _event_time(options: Mapping[str, str]) -> str | None:
    text = options.get("eventTime", "").strip() or None
    if text is not None and "watermarkColumn" in options:
        raise OptionError("watermarkColumn", "cannot be given together with eventTime")
    for name in ("eventTimeFuture", "countedAs"):
        if name in options and text is None:
            raise OptionError(name, "has no meaning without eventTime")
    return text


def _isolation_level(options: Mapping[str, str]) -> int:
    text = options.get("isolationLevel", "read_uncommitted").strip().lower()
    if text not in ISOLATION_LEVELS:
        raise OptionError("isolationLevel", f"is read_committed or read_uncommitted, not {text!r}")
    return ISOLATION_LEVELS[text]


def _group_id(options: Mapping[str, str]) -> str | None:
    if "groupId" in options and not options["groupId"].strip():
        raise OptionError("groupId", "is empty")
    return options.get("groupId")
