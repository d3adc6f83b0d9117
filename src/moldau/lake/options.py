"""The options of ``spark.read.format("moldau")``: names and meanings of Spark's Kafka connector, checked before anything is read.

An option that is unknown, misspelt or at odds with another one is refused by name: a read that silently ignores
``endingOffset`` would load the wrong data.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from moldau.client.partition_requests import READ_COMMITTED, READ_UNCOMMITTED
from moldau.lake.offsets import EARLIEST, LATEST, Edge, Offsets, OptionError, Position, Times, parse_assignment, parse_numbers
from moldau.model.identity import TopicPartition

BOOTSTRAP = "kafka.bootstrap.servers"
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_CLIENT_ID = "moldau-spark"
_STRATEGY = "startingOffsetsByTimestampStrategy"
_NUMBERS = {
    "minPartitions": 1,
    "maxRecordsPerPartition": 1,
    "maxBytesPerFetch": 1,
    "kafkaConsumer.pollTimeoutMs": 1,
}
_ALIASES = {"kafka.group.id": "groupId", "kafka.isolation.level": "isolationLevel"}
"""Other names for options of ours: those that the connector hands on to Kafka's consumer."""
NAMES = (
    BOOTSTRAP, "kafka.client.id", *_SUBSCRIPTIONS, *_STARTS, *_ENDS, _STRATEGY, *_NUMBERS, "includeHeaders", "failOnDataLoss",
    "isolationLevel", "groupId", *_ALIASES,
)  # fmt: skip
"""Every option there is."""
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


_BYTES_PER_FETCH = 4 << 20
_POLL_TIMEOUT_MS = 120_000
_FROM_EARLIEST, _TO_LATEST = Edge(EARLIEST), Edge(LATEST)


@dataclass(frozen=True, slots=True)
class Topics:
    """Read all partitions of the topics with these names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Read all partitions of every topic whose whole name the regular expression matches (Python's syntax)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """Read these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and how. Times in ms, sizes in bytes."""

    bootstrap: str
    subscription: Topics | Pattern | Assignment
    starting: Position = _FROM_EARLIEST
    ending: Position = _TO_LATEST
    starting_name: str = "startingOffsets"
    ending_name: str = "endingOffsets"
    """The options that `starting` and `ending` came from, for messages."""
    client_id: str = _CLIENT_ID
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    max_bytes_per_fetch: int = _BYTES_PER_FETCH
    poll_timeout_ms: int = _POLL_TIMEOUT_MS
    """A task that gets nothing for so long fails; while it lasts, a broker that is away is asked again."""
    isolation_level: int = READ_UNCOMMITTED
    group_id: str | None = None
    """The group that a load commits to after its table; reading commits nothing."""


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Options as Spark hands them over (names in any case). OptionError names the first one that is wrong."""
    options = _spelt_right(given)
    if not options.get(BOOTSTRAP, "").strip():
        raise OptionError(BOOTSTRAP, "is needed: HOST:PORT of one or more brokers")
    starting_name, starting = _position(options, _STARTS, "latest", EARLIEST, LATEST, or_latest=_or_latest(options))
    ending_name, ending = _position(options, _ENDS, "earliest", LATEST, EARLIEST, or_latest=True)
    numbers = {name: _number(name, options[name], least) for name, least in _NUMBERS.items() if name in options}
    return ReadOptions(
        bootstrap=options[BOOTSTRAP].strip(),
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        starting_name=starting_name,
        ending_name=ending_name,
        client_id=options.get("kafka.client.id", _CLIENT_ID),
        min_partitions=numbers.get("minPartitions"),
        max_records_per_partition=numbers.get("maxRecordsPerPartition"),
        include_headers=_flag(options, "includeHeaders", default=False),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        max_bytes_per_fetch=numbers.get("maxBytesPerFetch", _BYTES_PER_FETCH),
        poll_timeout_ms=numbers.get("kafkaConsumer.pollTimeoutMs", _POLL_TIMEOUT_MS),
        isolation_level=_isolation_level(options),
        group_id=_group_id(options),
    )


def _spelt_right(given: Mapping[str, str]) -> dict[str, str]:
    """The options under their own spelling; the JVM hands names over in lower case."""
    spelling = {name.lower(): name for name in NAMES}
    options = {}
    for name, value in given.items():
        if name.lower() == "path":
            raise OptionError("path", "there is no path to read; name the topics with subscribe and call load() without arguments")
        if name.lower() not in spelling:
            raise OptionError(name, _unknown(name, spelling))
        spelt = spelling[name.lower()]
        ours = _ALIASES.get(spelt, spelt)
        if ours in options:
            raise OptionError(spelt, f"cannot be given together with {next(n for n in NAMES if _ALIASES.get(n, n) == ours and n != spelt)}")
        options[ours] = value
    return options


def _unknown(name: str, spelling: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), spelling, n=1, cutoff=0.75)
    if close:
        return f"is not known; is {spelling[close[0]]} meant?"
    return f"is not known; there are {', '.join(NAMES)}"


def _one_of(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    present = [name for name in names if name in options]
    if len(present) > 1:
        raise OptionError(present[1], f"cannot be given together with {present[0]}")
    return present[0] if present else None


def _subscription(options: Mapping[str, str]) -> Topics | Pattern | Assignment:
    name = _one_of(options, _SUBSCRIPTIONS)
    if name is None:
        raise OptionError("subscribe", "or subscribePattern or assign is needed to say what is read")
    text = options[name].strip()
    if name == "assign":
        return Assignment(parse_assignment(name, text))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(name, f"is not a regular expression: {error}") from None
        return Pattern(text)
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError(name, "names no topic")
    return Topics(topics)


def _position(
    options: Mapping[str, str], names: tuple[str, ...], wrong_word: str, default: int, wrong_number: int, *, or_latest: bool
) -> tuple[str, Position]:
    """Start or end of the read; a batch can neither start at the end nor end at the start."""
    by_offset, by_time, by_times = names
    name = _one_of(options, names)
    if name is None:
        return by_offset, Edge(default)
    text = options[name].strip()
    if name == by_time:
        return name, Times(_number(name, text, 0), or_latest)
    if name == by_times:
        times = parse_numbers(name, text)
        _all_at_least(name, times, 0)
        return name, Times(times, or_latest)
    if text.lower() in ("earliest", "latest"):
        if text.lower() == wrong_word:
            raise OptionError(name, f"{text!r} would leave nothing to read")
        return name, Edge(default)
    offsets = parse_numbers(name, text)
    _all_at_least(name, offsets, EARLIEST)
    for partition, offset in offsets.items():
        if offset == wrong_number:
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
    for partition, number in numbers.items():
        if number < least:
            raise OptionError(name, f"{partition} has {number}; the least is {least}")


def _number(name: str, text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise OptionError(name, f"needs a whole number, not {text!r}") from None
    if number < least:
        raise OptionError(name, f"needs at least {least}, not {number}")
    return number


def _isolation_level(options: Mapping[str, str]) -> int:
    text = options.get("isolationLevel", "read_uncommitted").strip().lower()
    if text not in ISOLATION_LEVELS:
        raise OptionError("isolationLevel", f"is read_committed or read_uncommitted, not {text!r}")
    return ISOLATION_LEVELS[text]


def _group_id(options: Mapping[str, str]) -> str | None:
    if "groupId" in options and not options["groupId"].strip():
        raise OptionError("groupId", "is empty")
    return options.get("groupId")


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(name, f"is true or false, not {text!r}")
    return text == "true"
