"""Which columns the events of a job have, and how a task decodes them: fixed on the driver, once for each load.

The latest version alone would drop a field that it has removed from events that were sent before. So the versions are put together from the
oldest on: fields of the latest as it has them; fields that only earlier ones have, optional and null by default; of two widths of a
number the wider; of an enum all symbols. Avro's rules of resolution then read every version into that.

It is asked after the ends of the load are fixed. A producer registers a schema before it sends the first event with it, so every schema
that an event of the load was written with is known by then.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from moldau.lake.avro.schemas import AvroSchemaError, AvroText
from moldau.lake.loading.errors import LoadError, SchemaChangeError
from moldau.lake.loading.job import TO_DEAD_LETTERS, LoadJob
from moldau.lake.tables.format import TableMismatchError
from moldau.lake.tables.schemas import evolve, storable_schema

_WIDTHS = (("int", "long"), ("float", "double"), ("int", "double"))
_NAMED = ("record", "error", "enum", "fixed")


def expanded(schema: AvroText) -> Any:
    """The schema as JSON with every named type written out where it is used, by its full name. AvroSchemaError."""
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            fastavro.parse_schema(json.loads(text), named)
        found = fastavro.parse_schema(json.loads(schema.text), named, expand=True)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType, RecursionError) as error:
        raise AvroSchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    return _clean(found)


def merged(older: Any, newer: Any) -> Any:
    """One schema for what both describe (expanded, as is the result)."""
    if isinstance(newer, list) or isinstance(older, list):
        return _merged_union(older, newer)
    if _kind(older) != _kind(newer):
        return older if (_kind(newer), _kind(older)) in _WIDTHS and isinstance(older, str) else newer
    match _kind(newer):
        case "record":
            return {**newer, "fields": _merged_fields(older["fields"], newer["fields"])}
        case "enum":
            return {**newer, "symbols": [*newer["symbols"], *(each for each in older["symbols"] if each not in newer["symbols"])]}
        case "array":
            return {**newer, "items": merged(older["items"], newer["items"])}
        case "map":
            return {**newer, "values": merged(older["values"], newer["values"])}
    return newer


def reader_text(schema: Any) -> AvroText:
    """The schema as text, each named type written out once."""
    return AvroText(json.dumps(_named_once(schema, set())))


def _clean(schema: Any) -> Any:
    """Without fastavro's own notes."""
    if isinstance(schema, list):
        return [_clean(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _clean(value) for name, value in schema.items() if not name.startswith("__")}
    return schema


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _merged_fields(older: Sequence[Mapping[str, Any]], newer: Sequence[Mapping[str, Any]]) -> list[Any]:
    there = {each["name"]: each for each in older}
    fields = [{**each, "type": merged(there[each["name"]]["type"], each["type"])} if each["name"] in there else each for each in newer]
    taken = {each["name"] for each in newer} | {alias for each in newer for alias in each.get("aliases", ())}
    return fields + [
        {"name": each["name"], "type": _optional(each["type"]), "default": None} for each in older if each["name"] not in taken
    ]


def _optional(schema: Any) -> list[Any]:
    branches = schema if isinstance(schema, list) else [schema]
    return ["null", *(each for each in branches if each != "null")]


def _merged_union(older: Any, newer: Any) -> Any:
    """What may be null in one of them may be null; the rest is merged if each has one kind of value."""
    olds, news = ([each for each in (side if isinstance(side, list) else [side]) if each != "null"] for side in (older, newer))
    if len(olds) != 1 or len(news) != 1:
        return newer
    both = merged(olds[0], news[0])
    if not isinstance(newer, list):
        return [both, "null"]  # the default, if it has one, is of the first type
    return [each if each == "null" else both for each in newer]


def _named_once(schema: Any, seen: set[str]) -> Any:
    if isinstance(schema, list):
        return [_named_once(each, seen) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED:
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    result = dict(schema)
    for name in ("items", "values", "type"):
        if name in result:
            result[name] = _named_once(result[name], seen)
    if "fields" in result:
        result["fields"] = [{**each, "type": _named_once(each["type"], seen)} for each in result["fields"]]
    return result


log = logging.getLogger(__name__)

_NO_SUBJECT = 404


@dataclass(frozen=True, slots=True)
class EventDecoding:
    """How the tasks of a load decode the events. It can be pickled."""

    columns: Any
    """Arrow schema of the decoded columns, as a table stores them."""
    reader: Any = None
    """`moldau.lake.avro.schemas.AvroText` of the reader's schema of Avro events; None for JSON."""
    tracked: frozenset[int] = frozenset()
    """Ids of the schemas whose events begin with the common header."""
    versions: tuple[int, ...] = ()
    """The versions of the subject that went into the reader's schema."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Ids of the schemas whose events the table cannot follow, and why. Avro might read them all the same, and lose something."""


def decoding_of(job: LoadJob, table_columns: Any) -> EventDecoding | None:
    """How to decode the events of the job into a table that has the columns `table_columns` (None: there is no table yet).

    None if the subject has no schema yet. SchemaChangeError for a change that the table cannot follow, unless the job sends such events
    to the dead letters; LoadError for what cannot be understood; RegistryError.
    """
    if job.columns is not None:
        return EventDecoding(_stored(job, job.columns))
    decoding = _avro(job, table_columns)
    if decoding is not None:
        try:
            job.check_columns(decoding.columns)
        except ValueError as error:
            raise LoadError(str(error)) from None
    return decoding


def _stored(job: LoadJob, columns: Any) -> Any:
    try:
        return storable_schema(columns)
    except ValueError as error:
        raise LoadError(f"topic {job.topic}: {error}") from None


def _avro(job: LoadJob, table_columns: Any) -> EventDecoding | None:
    from moldau.lake.avro.schemas import AvroSchemaError, AvroText, texts
    from moldau.lake.avro.types import arrow_schema
    from moldau.registry.client import AVRO, RegistryClient, RegistryError
    from moldau.tracking.header import is_tracked_schema

    whole: Any = None
    known = table_columns
    tracked: set[int] = set()
    refused: dict[int, str] = {}
    taken: dict[int, int] = {}
    assert job.registry is not None
    with RegistryClient(job.registry) as registry:
        try:
            numbers = registry.versions(job.subject_name)
        except RegistryError as error:
            if error.status == _NO_SUBJECT:
                return None
            raise
        for number in numbers:
            found = registry.version(job.subject_name, number)
            where = f"subject {found.subject}, version {number}"
            if found.type != AVRO:
                raise LoadError(f"{where}: a schema of type {found.type}; tables are loaded from AVRO and from JSON with columns")
            try:
                schema = expanded(AvroText(found.text, texts(registry.referenced(found))))
                both = schema if whole is None else merged(whole, schema)
                columns = _stored(job, arrow_schema(reader_text(both)))
                alone = _stored(job, arrow_schema(reader_text(schema)))
            except AvroSchemaError as error:
                raise LoadError(f"{where}: {error}") from error
            if is_tracked_schema(schema):
                tracked.add(found.id)
            try:
                # The version by itself has to fit, and so has the table: `merged` would hide a type that was replaced.
                known = evolve(job.table, evolve(job.table, known or pa.schema([]), alone).schema, columns).schema
            except TableMismatchError as error:
                if job.on_incompatible != TO_DEAD_LETTERS:
                    raise SchemaChangeError(f"{where}: {error}") from error
                log.warning("%s: %s; events with it are dead letters", where, error)
                refused[found.id] = f"{where}: {error}"
                continue
            whole = both
            taken[found.id] = number
    if whole is None:
        raise SchemaChangeError(f"subject {job.subject_name}: the table {job.table} can follow none of its versions")
    reader = reader_text(whole)
    refused = {schema_id: reason for schema_id, reason in refused.items() if schema_id not in taken}
    return EventDecoding(_stored(job, arrow_schema(reader)), reader, frozenset(tracked), tuple(taken.values()), refused)
