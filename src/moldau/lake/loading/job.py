"""What a load moves where: the job of one topic, which its driver and its tasks share, and that of many topics, one table for each.

As a file (TOML):

    name = "warehouse"
    bootstrap = "127.0.0.1:9092"
    registry = "http://127.0.0.1:8081"
    to = "/lake"
    topics = ["departures", "arrivals", "clicks"]     # or pattern = "web-.*"
    partition = "hour"

    [topic.clicks]                                     # events as JSON, with these columns
    columns = { member = "long", page = "string", at = "timestamp" }
    time = "at"                                        # the column by which rows go into days or hours
    partition = "day"

Names are those of the options of ``moldau load``, with underscores. Types of columns are Spark's words, SQL's too: `int`, `bigint`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from moldau.lake.loading.json_events import is_readable, is_time
from moldau.lake.merging.options import LOG, RECORD_KEY, TOMBSTONE, TOMBSTONES, MergeOptions
from moldau.lake.reading.options import ISOLATION_LEVELS
from moldau.lake.tables.data_files import DAY, HOUR, PARTITIONINGS, TIME_FIELDS
from moldau.lake.tables.opening import FORMATS, log_folder
from moldau.lake.tables.places.addresses import is_address, joined, one_in_the_other
from moldau.lake.tables.schemas import from_json
from moldau.model.near_names import did_you_mean
from moldau.model.topic_names import matches

RECORD_COLUMNS = [("_partition", pa.int32()), ("_offset", pa.int64()), ("_timestamp", pa.timestamp("us", tz="UTC"))]
"""What a table keeps of the record beside the event: where it stood, and its time."""
DEAD_LETTER_COLUMNS = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("error", pa.string()),
    ("topic", pa.string()),
    ("topic_id", pa.string()),
    ("job", pa.string()),
    *RECORD_COLUMNS,
]
STOP, TO_DEAD_LETTERS = "stop", "dead-letters"
NAME_BYTES_MAX = 255 - 73
"""Of a job: data files begin with its name, have 73 bytes more, and file systems take 255."""


def check_name(name: str) -> None:
    """ValueError for a name that no job can have."""
    if not name:
        raise ValueError("a job needs a name: the offsets stand under it")
    size = len(os.fsencode(name))
    if size > NAME_BYTES_MAX:
        raise ValueError(f"a job's name has at most {NAME_BYTES_MAX} bytes: its data files begin with it; this one has {size}: {name}")


@dataclass(frozen=True, slots=True)
class LoadJob:
    """What goes where. Two jobs with different names load the same topic independently, each into a table of its own.

    Events are JSON objects if `columns` has their fields, otherwise Avro by the schemas of `registry`.
    """

    name: str
    bootstrap_servers: str
    topic: str
    table: str
    """Path of the table; made if it is missing."""
    dead_letters: str
    """Path of the table of what could not be parsed."""
    columns: Any = None
    """Arrow schema of the fields of JSON events."""
    time: str | None = None
    """The column of JSON events that is their time: a timestamp, a date, or a long in milliseconds since 1970.
    None: the record's timestamp. An event without it, or with one in no year from 1 to 9999, is a dead letter."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Headers that are kept, each in a column named ``_NAME``, with the Arrow types their text is read as."""
    refuse_unknown: bool = True
    """Whether a JSON event with a field that has no column is a dead letter; otherwise such fields are dropped."""
    reject_header: str | None = None
    """A header by which a producer marks that a record is no event, and why: such a record is a dead letter, and the text its error."""
    group_id: str | None = None
    """The consumer group that the offsets are committed to after the table's commit, so that its lag is that of the load; None: to none."""
    isolation_level: str = "read_committed"
    """Whether records of aborted transactions are left out, and those of open ones waited for; or ``read_uncommitted``."""
    writers: int | None = None
    """Tasks that read and write; None: as many as Spark runs at once, or fewer where there is little to load."""
    registry: str | None = None
    """Address of the schema registry of Avro events."""
    subject: str | None = None
    """The subject of the events' schemas; None: ``TOPIC-value``."""
    partition: str = "day"
    """Table partitions by ``day`` or by ``hour`` of the event's time, in UTC."""
    table_format: str = "delta"
    """``delta``, or ``parquet`` with a manifest."""
    tier: str | None = None
    """The name under which the counts of what was loaded go to the audit; None: they stay in the table's log."""
    on_incompatible: str = STOP
    """What to do about events whose schema the table cannot follow: ``stop``, or ``dead-letters``."""
    records_max: int | None = None
    """No load takes more offsets than this; the next one continues. None: no limit."""
    merged: str | None = None
    """Path of the merged table, which has the newest row of each key; None: there is none."""
    keys: tuple[str, ...] = ()
    """Its key columns; ``_key`` is the record's key."""
    merge_order: str = LOG
    """Which row is the newest: by the ``log``, or ``time:COLUMN``."""
    deletes: str | None = None
    """Which rows delete their key: ``tombstones``, ``COLUMN``, ``COLUMN=VALUE,VALUE`` or ``COLUMN is [not] null``."""

    def __post_init__(self) -> None:
        def must(fine: bool, problem: str) -> None:
            if not fine:
                raise ValueError(f"load {self.name}: {problem}")

        check_name(self.name)
        must(
            self.isolation_level in ISOLATION_LEVELS,
            f"the isolation level is read_committed or read_uncommitted, not {self.isolation_level!r}",
        )
        must(self.partition in PARTITIONINGS, f"tables are partitioned by day or by hour, not by {self.partition!r}")
        must(self.table_format in FORMATS, f"tables are {' or '.join(FORMATS)}, not {self.table_format!r}")
        must(
            self.on_incompatible in (STOP, TO_DEAD_LETTERS),
            f"incompatible events stop the load or are dead letters, not {self.on_incompatible!r}",
        )
        must(
            not one_in_the_other(self.table, self.dead_letters),
            f"the table and the dead letters are two tables, and neither lies in the other: {self.table}, {self.dead_letters}",
        )
        must(
            (self.columns is None) != (self.registry is None),
            "give a registry for Avro events (--registry), or columns for JSON events (in a job file)",
        )
        must(self.records_max is None or self.records_max > 0, f"a load takes at least one record, not {self.records_max}")
        must(
            bool(self.keys) == (self.merged is not None),
            "a merged table needs both key columns (--key) and a place (--merged)",
        )
        if self.merged is not None:
            MergeOptions(self.keys, self.merge_order, self.deletes)
            for path in (self.table, self.dead_letters):
                must(
                    not one_in_the_other(self.merged, path),
                    f"the merged table is a table of its own, and no other lies in it: {self.merged}, {path}",
                )
        must(self.time is None or self.columns is not None, "only JSON events have a column for their time: Avro events have a header")
        if self.columns is not None:
            self.check_columns(self.columns)
            for each in self.columns:
                must(is_readable(each.type), f"column {each.name!r}: events of JSON have no values of type {each.type}")
        if self.time is not None:
            must(self.time in self.columns.names, f"the time {self.time!r} is none of the columns {', '.join(self.columns.names)}")
            kind = self.columns.field(self.time).type
            must(is_time(kind), f"the time {self.time!r} is a timestamp, a date, or a long (milliseconds since 1970), not {kind}")

    def check_columns(self, columns: Any) -> None:
        """ValueError if a field of the events has the name of a column of the table itself or of another field; for Spark capital letters
        make no difference."""
        reserved = {
            DAY,
            HOUR,
            *(name for name, _ in (*RECORD_COLUMNS, *self.kept_of_records)),
            *(f"_{name}".lower() for name in self.headers),
        }
        seen: dict[str, str] = {}
        for name in columns.names:
            folded = name.lower()
            if folded in reserved:
                raise ValueError(f"load {self.name}: events have a field {name!r}, which is the name of a column of the table itself")
            if folded in seen:
                raise ValueError(f"load {self.name}: events have fields {seen[folded]!r} and {name!r}: no table has both")
            seen[folded] = name

    @property
    def takes_tombstones(self) -> bool:
        """Whether a record with a key and without a value is a row, and no dead letter."""
        return self.deletes == TOMBSTONES

    @property
    def kept_of_records(self) -> list[tuple[str, Any]]:
        """What the merged table needs of the record beside RECORD_COLUMNS: columns and types."""
        key = [(RECORD_KEY, pa.binary())] if RECORD_KEY in self.keys or self.takes_tombstones else []
        return [*key, *([(TOMBSTONE, pa.bool_())] if self.takes_tombstones else [])]

    @property
    def needs_headers(self) -> bool:
        """Whether the records' headers are read at all."""
        return bool(self.headers) or self.reject_header is not None

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Of the table of events."""
        return PARTITIONINGS[self.partition]

    @property
    def subject_name(self) -> str:
        """The subject of the events' schemas."""
        return self.subject or f"{self.topic}-value"

    def table_schema(self, columns: Any) -> Any:
        """Columns of the table for events with these columns."""
        kept = [pa.field(f"_{name}", kind) for name, kind in self.headers.items()]
        records = [pa.field(name, kind) for name, kind in (*RECORD_COLUMNS, *self.kept_of_records)]
        return pa.schema([*columns, *records, *kept, *TIME_FIELDS])


def dead_letter_schema() -> Any:
    """Columns of a table of dead letters, which is partitioned by day."""
    return pa.schema([*(pa.field(name, kind) for name, kind in DEAD_LETTER_COLUMNS), *TIME_FIELDS])


DEAD_LETTERS_FOLDER = "dead-letters"
DEFAULT_TIER = "lake"
DEFAULT_RECORDS_MAX = 10_000_000

_OF_JSON_EVENTS = ("columns", "time", "headers", "refuse_unknown", "reject_header")
_OF_MERGED_TABLES = ("keys", "merge_order", "deletes")
TOPIC_SETTINGS = frozenset(
    (*_OF_JSON_EVENTS, *_OF_MERGED_TABLES, "registry", "subject", "partition", "writers", "on_incompatible", "records_max")
)
"""Settings of a single topic."""


@dataclass(frozen=True, slots=True)
class LoadJobs:
    """Which topics go where. The tables are ``directory/TOPIC``, the dead letters ``directory/dead-letters/TOPIC``."""

    name: str
    bootstrap_servers: str
    directory: str
    topics: tuple[str, ...] = ()
    """These topics, and no other; or `pattern`."""
    pattern: str | None = None
    """A regular expression for the whole name of a topic; new ones are found in each round. Internal topics only if it begins with an
    underscore."""
    registry: str | None = None
    partition: str = "day"
    table_format: str = "delta"
    tier: str | None = DEFAULT_TIER
    on_incompatible: str = STOP
    isolation_level: str = "read_committed"
    writers: int | None = None
    records_max: int | None = DEFAULT_RECORDS_MAX
    group_id: str | None = None
    """The consumer group that shows the lag of all topics; None: ``moldau-load-NAME``."""
    merged: str | None = None
    """The directory of the merged tables, one for each topic that has key columns."""
    keys: tuple[str, ...] = ()
    merge_order: str = LOG
    deletes: str | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By topic: what of TOPIC_SETTINGS is another one there."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError(f"load {self.name}: give topics or a pattern, one of the two")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"load {self.name}: {self.pattern!r} is not a regular expression: {error}") from None
            if self.registry is None:
                raise ValueError(f"load {self.name}: a pattern needs a registry: the columns of topics that do not exist yet are unknown")
        if any((self.merged, self.keys, self.deletes, self.merge_order != LOG)):
            keyed = self.keys or any("keys" in each for each in self.settings.values())
            if not keyed or not self.merged:
                raise ValueError(f"load {self.name}: merged tables need both key columns (--key) and a directory (--merged)")
        twice = [topic for topic in self.topics if self.topics.count(topic) > 1]
        if twice:  # its two loads would be in each other's way, round for round
            raise ValueError(f"load {self.name}: topic {twice[0]} is named twice")
        if DEAD_LETTERS_FOLDER in self.topics:
            raise ValueError(f"load {self.name}: a topic {DEAD_LETTERS_FOLDER!r} has no place in {self.directory}: dead letters lie there")
        for topic, changes in self.settings.items():
            unknown = sorted(set(changes) - TOPIC_SETTINGS)
            if unknown:
                raise ValueError(
                    f"load {self.name}: topic {topic} cannot have a setting {unknown[0]!r}{did_you_mean(unknown[0], TOPIC_SETTINGS)}"
                )
            if self.topics and topic not in self.topics:
                raise ValueError(f"load {self.name}: there are settings for topic {topic}, which is not loaded")
            self.job(topic)
        for topic in self.topics:
            self.job(topic)

    def job(self, topic: str) -> LoadJob:
        """The job of one topic. ValueError for settings that are not valid."""
        shared = {each.name for each in fields(LoadJob)} & {each.name for each in fields(LoadJobs)} - {"group_id"}
        values = {name: getattr(self, name) for name in shared}
        values |= {
            "topic": topic,
            "table": joined(self.directory, topic),
            "dead_letters": joined(self.directory, DEAD_LETTERS_FOLDER, topic),
            "group_id": self.group_id or f"moldau-load-{self.name}",
        }
        values |= self.settings.get(topic, {})
        if values.get("columns") is not None:
            values["registry"] = None
        if not values["keys"]:
            values |= {"merged": None, "merge_order": LOG, "deletes": None}
        elif self.merged is not None:
            values["merged"] = joined(self.merged, topic)
        return LoadJob(**values)

    def jobs(self, existing: Iterable[str]) -> list[LoadJob]:
        """The jobs for the topics that exist, and for all that are named: whether one of them was deleted the load itself finds."""
        there = set(existing)
        if self.pattern is not None:
            matching = re.compile(self.pattern)
            return [self.job(topic) for topic in sorted(there) if matches(matching, topic) and topic != DEAD_LETTERS_FOLDER]
        return [self.job(topic) for topic in self.topics]

    def missing(self, existing: Iterable[str]) -> list[str]:
        """Topics that are named and neither exist nor have a table from when they did."""
        there = set(existing)
        return [topic for topic in self.topics if topic not in there and not _is_there(joined(self.directory, topic))]


def _is_there(path: str) -> bool:
    return log_folder(path) is not None if is_address(path) else os.path.exists(path)


_OTHER_NAMES = {"to": "directory", "bootstrap": "bootstrap_servers"}
"""What a file, as the command line, calls otherwise."""


class JobFileError(ValueError):
    """A job file that is not valid; the message names the file."""


def read_job_file(path: Path, options: Mapping[str, Any], *, otherwise: Mapping[str, Any] | None = None) -> LoadJobs:
    """The job in a file; `options` override what is in the file, `otherwise` are defaults for what is not (both where they are not
    None). JobFileError."""
    import tomllib  # not in the tasks, which import this module too

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise JobFileError(f"{path}: {reason}") from error
    try:
        return load_jobs({**_without_none(otherwise or {}), **content, **_without_none(options)})
    except (ValueError, TypeError) as error:
        raise JobFileError(f"{path}: {error}") from error


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def load_jobs(values: Mapping[str, Any]) -> LoadJobs:
    """The job that these values describe, named as in a file. ValueError names one that is not valid."""
    known = {each.name for each in fields(LoadJobs)} - {"settings", *_OTHER_NAMES.values()} | {"topic", *_OTHER_NAMES}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known; there are {', '.join(sorted(known))}")
    for name in ("name", "bootstrap", "to"):
        if not values.get(name):
            raise ValueError(f"{name!r} is missing: give --{name}, or a job file with {name} = ...")
    if "pattern" in values and "topics" in values:
        raise ValueError("'topics' and 'pattern' exclude each other")
    made = {_OTHER_NAMES.get(name, name): value for name, value in values.items() if name != "topic"}
    for name, value in made.items():
        wanted: Any = int if name in ("writers", "records_max") else list if name in ("topics", "keys") else str
        if value is not None and not (isinstance(value, wanted) or (wanted is list and isinstance(value, tuple))):
            raise ValueError(f"{name!r} is no {'number' if wanted is int else 'list' if wanted is list else 'text'}: {value!r}")
    for name in ("topics", "keys"):
        made[name] = tuple(made.get(name, ()))
    return LoadJobs(**made, settings={topic: _topic(topic, each) for topic, each in values.get("topic", {}).items()})


def _topic(topic: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ValueError(f"topic {topic}: settings are a table, not {values!r}")
    made = dict(values)
    if "columns" in made:
        made["columns"] = columns_of(topic, made["columns"])
    if "keys" in made:
        if not isinstance(made["keys"], list) or not all(isinstance(each, str) for each in made["keys"]):
            raise ValueError(f"topic {topic}: keys are a list of columns, not {made['keys']!r}")
        made["keys"] = tuple(made["keys"])
    if "headers" in made:
        schema = columns_of(topic, made["headers"])
        made["headers"] = dict(zip(schema.names, schema.types, strict=True))
    return made


def columns_of(topic: str, words: Any) -> pa.Schema:
    """Columns out of names and Spark's words for types. ValueError."""
    if not isinstance(words, Mapping) or not words:
        raise ValueError(f"topic {topic}: columns are a table of names and types, not {words!r}")
    columns = []
    for name, word in words.items():
        try:
            columns += from_json({"fields": [{"name": name, "type": word}]})
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"topic {topic}: column {name}: {error}") from None
    return pa.schema(columns)
