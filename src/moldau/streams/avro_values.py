"""The values of a topic output in Avro, with the schema's id as Confluent's serialisers write it.

The schema is that of the columns, or one that is given, or the latest of the subject. One that is not the latest is registered when the
first batch is written, under the compatibility that the registry has for the subject; before the job starts it is only asked about.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from moldau.lake.avro.columns import latest_schema
from moldau.lake.avro.encoding import AvroEncoder, check_columns, derived_schema
from moldau.lake.avro.schemas import AvroSchemaError, AvroText, texts
from moldau.lake.python_tasks import begun_early
from moldau.registry.client import RegistryClient, RegistryError
from moldau.streams.errors import StreamError

LATEST: Final = "latest"
_NO_SUBJECT = 404


@dataclass(frozen=True, slots=True)
class AvroValues:
    """How the columns of a row become a value."""

    registry: str
    subject: str
    name: str
    """Of a derived schema's record."""
    schema: str | None = None
    """The text, or `latest`; None: that of the columns."""
    known: dict[str, tuple[int, AvroText]] = field(default_factory=dict, compare=False)
    """By the text that was wanted: id and schema, once they are registered."""

    def check(self, columns: Any) -> None:
        """The schema takes rows with these Arrow columns, and the registry the schema. StreamError; RegistryUnavailableError."""
        try:
            with RegistryClient(self.registry) as registry:
                if self.schema == LATEST:
                    schema = latest_schema(registry, self.subject)
                else:
                    schema = AvroText(self._text(columns))
                    try:
                        problems = registry.incompatibilities(self.subject, schema.text, version=None)
                    except RegistryError as error:
                        if error.status != _NO_SUBJECT:
                            raise
                        problems = []
                    if problems:
                        raise StreamError(f"subject {self.subject}: the schema of the rows is not compatible: {'; '.join(problems)}")
            check_columns(schema, columns.names)
        except (AvroSchemaError, RegistryError) as error:
            raise StreamError(f"subject {self.subject}: {error}") from error

    def registered(self, columns: Any) -> tuple[int, AvroText]:
        """Id and schema for rows with these columns; registers the schema. RegistryError, RegistryUnavailableError."""
        text = LATEST if self.schema == LATEST else self._text(columns)
        if text not in self.known:
            with RegistryClient(self.registry) as registry:
                if text == LATEST:
                    found = registry.latest(self.subject)
                    self.known[text] = found.id, AvroText(found.text, texts(registry.referenced(found)))
                else:
                    self.known[text] = registry.register(self.subject, text), AvroText(text)
        return self.known[text]

    def _text(self, columns: Any) -> str:
        return derived_schema(self.name, columns) if self.schema is None else self.schema


def encoded(batches: Iterator[Any], *, schema_id: int, schema: AvroText, event: str, value: str) -> Iterator[Any]:
    """What Spark calls in a task: the column `value` in place of the struct `event`; the others stay."""
    encoder = AvroEncoder(schema_id, schema)
    for batch in batches:
        kept = [name for name in batch.schema.names if name != event]
        events = pa.RecordBatch.from_struct_array(batch.column(event))
        yield pa.record_batch([*(batch.column(name) for name in kept), encoder.encode(events)], names=[*kept, value])


def with_value(rows: Any, values: AvroValues, event: str, value: str) -> Any:
    """The DataFrame with the column `value` in place of the struct `event`."""
    from pyspark.sql.types import BinaryType, StructType

    schema = StructType([each for each in rows.schema.fields if each.name != event]).add(value, BinaryType())
    event_type = rows.schema[event].dataType
    schema_id, text = values.registered(arrow_schema_of(event_type))
    step = partial(encoded, schema_id=schema_id, schema=text, event=event, value=value)
    return rows.mapInArrow(begun_early(step), schema)


def arrow_columns(rows: Any, fields: tuple[str, ...]) -> Any:
    """The Arrow schema of these columns of a DataFrame."""
    from pyspark.sql.types import StructType

    return arrow_schema_of(StructType([rows.schema[name] for name in fields]))


def arrow_schema_of(kind: Any) -> Any:
    """The Arrow schema of a row of Spark."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(kind, timezone="UTC")
