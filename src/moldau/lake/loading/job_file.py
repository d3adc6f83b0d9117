"""A load job in a TOML file.

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

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from moldau.lake.loading.job import LoadJobs
from moldau.lake.tables.schema_json import from_json

_OTHER_NAMES = {"to": "directory"}


class JobFileError(ValueError):
    """A job file that cannot be meant; the message names the file."""


def read_job_file(path: Path, options: Mapping[str, Any], *, otherwise: Mapping[str, Any] | None = None) -> LoadJobs:
    """The job in a file; `options` come before what the file says, `otherwise` stands for what it does not say (both where they are not
    None). JobFileError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise JobFileError(f"{path}: {reason}") from error
    try:
        return load_jobs({**_said(otherwise or {}), **content, **_said(options)})
    except (ValueError, TypeError) as error:
        raise JobFileError(f"{path}: {error}") from error


def _said(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def load_jobs(values: Mapping[str, Any]) -> LoadJobs:
    """The job that these values describe, named as in a file. ValueError says which one cannot be meant."""
    known = {each.name for each in fields(LoadJobs)} - {"settings", "directory"} | {"to", "topic"}
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
        wanted: Any = int if name in ("writers", "records_max") else list if name == "topics" else str
        if value is not None and not (isinstance(value, wanted) or (wanted is list and isinstance(value, tuple))):
            raise ValueError(f"{name!r} is no {'number' if wanted is int else 'list' if wanted is list else 'text'}: {value!r}")
    made["topics"] = tuple(made.get("topics", ()))
    return LoadJobs(**made, settings={topic: _topic(topic, each) for topic, each in values.get("topic", {}).items()})


def _topic(topic: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ValueError(f"topic {topic}: settings are a table, not {values!r}")
    made = dict(values)
    if "columns" in made:
        made["columns"] = columns_of(topic, made["columns"])
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
