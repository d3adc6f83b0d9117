"""Which columns the events of a job have, and how a task decodes them: fixed on the driver, once for each load.

It is asked after the ends of the load are fixed. A producer registers a schema before it sends the first event with it, so every schema
that an event of the load was written with is known by then.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from moldau.lake.loading.errors import LoadError, SchemaChangeError
from moldau.lake.loading.job import TO_DEAD_LETTERS, LoadJob
from moldau.lake.tables.evolution import evolve
from moldau.lake.tables.format import TableMismatchError
from moldau.lake.tables.schema_json import storable_schema

log = logging.getLogger(__name__)

_NO_SUBJECT = 404


@dataclass(frozen=True, slots=True)
class Decoding:
    """What the tasks of a load are told about the events. It can be pickled."""

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


def decoding_of(job: LoadJob, table_columns: Any) -> Decoding | None:
    """How to decode the events of the job into a table that has the columns `table_columns` (None: there is no table yet).

    None if the subject has no schema yet. SchemaChangeError for a change that the table cannot follow, unless the job sends such events
    to the dead letters; LoadError for what cannot be understood; RegistryError.
    """
    if job.columns is not None:
        return Decoding(_stored(job, job.columns))
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


def _avro(job: LoadJob, table_columns: Any) -> Decoding | None:
    from moldau.lake.avro.schemas import AvroSchemaError, AvroText, texts
    from moldau.lake.avro.types import arrow_schema
    from moldau.lake.loading.reader import expanded, merged, reader_text
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
                # What the version says by itself has to fit, and so has the table: `merged` would hide a type that was replaced.
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
    return Decoding(_stored(job, arrow_schema(reader)), reader, frozenset(tracked), tuple(taken.values()), refused)
