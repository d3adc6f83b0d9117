"""The columns of ``format=avro`` and ``protobuf``: the fields of events, on request those of their records, and what fails to decode.

The file's name has the range, so that a task that is run again writes the same file again, whole, under the same name. A reader of the
folder finds each record once, unless two queries with overlapping ranges put them in the same place.

The reader's schema is fixed when a read is planned, and goes to the tasks with it: all tasks make the same columns, also while
newer schemas are registered. A record without a value (a tombstone) is no event and no error either: its fields are null.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql.types import StructType

from moldau.lake.avro.columns import NULL_VALUE, AvroColumns, DecodedBatch, schema_text
from moldau.lake.avro.schemas import AvroText
from moldau.lake.avro.types import arrow_schema
from moldau.lake.reading.columns import RecordColumns
from moldau.lake.reading.offsets import OffsetRange, OptionError
from moldau.lake.reading.options import AVRO, DEAD_LETTERS, FAILFAST, PERMISSIVE, AvroOptions, ReadOptions
from moldau.lake.reading.row_shape import ARROW_TYPES, chosen_columns, record_column, row_steps, spark_schema
from moldau.model.extras import require
from moldau.registry.client import RegistryClient, SubjectVersion

_RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")
SCHEMA = pa.schema([*((name, ARROW_TYPES[name]) for name in _RECORD), ("error", pa.string())])
"""Columns of the file."""
SUFFIX_PROPERTY = "moldau.dead_letters_suffix"
"""A local property of a stream's thread: what the directories of its dead letters have after their names, beside those of other streams of
the same DataFrame."""


class DeadLetterFile:
    """The dead letters of one range. Nothing is written before there is one; the file is visible from `close` on."""

    def __init__(self, path: str, wanted: OffsetRange, topic_id: str | None) -> None:
        directory = task_directory(path)
        kind = f"-{topic_id[:8]}" if topic_id else ""
        name = f"{wanted.topic}{kind}-{wanted.partition}-{wanted.start:020}-{wanted.end:020}.parquet"
        self._wanted = wanted
        self._path = os.path.join(directory, name)
        self._partial = os.path.join(directory, f".{name}.{os.getpid()}.partial")
        self._writer: Any = None

    def add(self, columns: RecordColumns, rejected: Mapping[int, str]) -> None:
        """Put these rows of `columns` aside, each with its reason."""
        if self._writer is None:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._writer = pa.parquet.ParquetWriter(self._partial, SCHEMA, compression="zstd")
        rows = pa.array(list(rejected), pa.int64())
        record = [record_column(columns, name, self._wanted.topic, self._wanted.partition).take(rows) for name in _RECORD]
        self._writer.write_batch(pa.record_batch([*record, pa.array(list(rejected.values()), pa.string())], schema=SCHEMA))

    def close(self) -> None:
        """Bring the file to disk and give it its name; a range without dead letters has none."""
        if self._writer is None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path)  # of an earlier run, when a schema was unknown that is known now
            return
        self._writer.close()
        descriptor = os.open(self._partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self._partial, self._path)


def local_directory(path: str) -> str:
    """The directory of a path or ``file:`` URL. OptionError for another one."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        return parts.path if parts.scheme else path
    raise OptionError("deadLetterPath", f"is a directory that all tasks see as a local one, not {path!r}")


def task_directory(path: str) -> str:
    """The directory for what this task puts aside."""
    from pyspark import TaskContext

    context = TaskContext.get()
    suffix = None if context is None else context.getLocalProperty(SUFFIX_PROPERTY)
    return local_directory(path) + (suffix or "")


ERROR = "_error"
"""The column with the reason, in PERMISSIVE mode, why a value could not be decoded."""


class EventDecoder(Protocol):
    """Makes columns of values: `AvroColumns`, or `ProtobufColumns`."""

    def decode(self, values: Any) -> DecodedBatch:
        """RegistryError, RegistryUnavailableError."""

    def close(self) -> None:
        """Close the connection to the registry."""


Reader = AvroText | SubjectVersion
"""What the columns are of: the reader's schema of Avro, or the version of a subject, of Protobuf."""


class MalformedEventError(RuntimeError):
    """A value that cannot be decoded, in FAILFAST mode; the message names topic, partition, offset and schema id."""


@dataclass(frozen=True)
class EventShape:
    """Decoded events. `columns` names those that are made, in order."""

    avro: AvroOptions
    reader: Reader
    events: Any
    """Arrow schema of all fields of the events."""
    columns: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of records that are needed."""
        taken = {name.lstrip("_") for name in self._record_columns()}
        return ("value", *(name for name in ("key", "headers") if name in taken or (name == "key" and self.avro.dead_letter_path)))

    def spark_schema(self) -> StructType:
        """All columns."""
        return spark_schema(self.arrow_schema())

    def chosen(self, schema: StructType) -> "EventShape":
        """The columns in `schema`; the other fields of the events are not decoded. OptionError."""
        return replace(self, columns=chosen_columns(schema, self.spark_schema(), {}))

    def without(self, names: Sequence[str]) -> "EventShape":
        """The other columns: the fields of events among these are not decoded.

        All are where undecodable values are put aside: two queries have one file for a range, which is not to depend on what they read.
        """
        if self.avro.dead_letter_path is not None:
            return self
        return replace(self, columns=tuple(name for name in self.columns if name not in names))

    def maker(self, wanted: OffsetRange, topic_id: str | None) -> "EventMaker":
        """Makes the rows of one range."""
        events = tuple(name for name in self.columns if name not in self._record_columns() and name != ERROR)
        file = None
        if self.avro.dead_letter_path is not None:
            file = DeadLetterFile(self.avro.dead_letter_path, wanted, topic_id)
        schema = self.arrow_schema()
        return EventMaker(wanted, self.avro.mode, _decoder(self.avro, self.reader, events), schema, file)

    def _record_columns(self) -> frozenset[str]:
        return frozenset(f"_{name}" for name in self.avro.record_columns) & frozenset(self.columns)

    def arrow_schema(self) -> Any:
        """All columns, in Arrow's words."""
        every = all_columns(self.avro, self.events)
        return pa.schema([every.field(name) for name in self.columns])


def plan_event_shape(options: ReadOptions, avro: AvroOptions) -> EventShape:
    """All columns there are now. RegistryError, RegistryUnavailableError; AvroSchemaError, ProtobufSchemaError; OptionError."""
    if options.include_headers:
        raise OptionError("includeHeaders", f"cannot be given together with format={avro.language}: name headers in kafkaColumns")
    reader: Reader
    if avro.reader_schema is not None:
        reader = AvroText(avro.reader_schema)
    else:
        assert avro.subject is not None
        with RegistryClient(avro.registry) as registry:
            found = registry.latest(avro.subject) if avro.version is None else registry.version(avro.subject, avro.version)
            reader = schema_text(registry, found) if avro.language == AVRO else found
    if isinstance(reader, AvroText):
        events = arrow_schema(reader)
    else:
        require("registry", "format=protobuf")
        from moldau.lake.protobuf import ProtobufColumns

        decoder = ProtobufColumns(avro.registry, reader, message=avro.message)
        events = decoder.schema
        decoder.close()
    return EventShape(avro, reader, events, tuple(all_columns(avro, events).names))


def all_columns(avro: AvroOptions, events: Any) -> Any:
    """Arrow schema of events and what stands beside them. OptionError if an event has a field of such a name."""
    beside = [pa.field(f"_{name}", ARROW_TYPES[name]) for name in avro.record_columns]
    if avro.mode == PERMISSIVE:
        beside.append(pa.field(ERROR, pa.string()))
    for field in beside:
        if field.name in events.names:
            option = "mode" if field.name == ERROR else "kafkaColumns"
            raise OptionError(option, f"would add a column {field.name}, which is a field of the events")
    return pa.schema([*events, *beside])


_decoders: dict[tuple[str, Reader, str | None, tuple[str, ...]], EventDecoder] = {}
"""Decoders of this process: a schema is asked for once, not once a task."""
_DECODERS_MAX = 20


def _decoder(avro: AvroOptions, reader: Reader, columns: tuple[str, ...]) -> EventDecoder:
    key = (avro.registry, reader, avro.message, columns)
    if key not in _decoders:
        if len(_decoders) >= _DECODERS_MAX:
            _decoders.pop(next(iter(_decoders))).close()
        _decoders[key] = _made(avro, reader, columns)
    return _decoders[key]


def _made(avro: AvroOptions, reader: Reader, columns: tuple[str, ...]) -> EventDecoder:
    if isinstance(reader, AvroText):
        return AvroColumns(avro.registry, reader_schema=reader, columns=columns)
    from moldau.lake.protobuf import ProtobufColumns

    return ProtobufColumns(avro.registry, reader, message=avro.message, columns=columns)


class EventMaker:
    """Makes rows of the events of one range."""

    def __init__(self, wanted: OffsetRange, mode: str, decoder: EventDecoder, schema: Any, file: DeadLetterFile | None) -> None:
        self._wanted = wanted
        self._mode = mode
        self._decoder = decoder
        self._schema = schema
        self._file = file

    def batches(self, columns: RecordColumns) -> Iterator[Any]:
        """Arrow record batches of some records. MalformedEventError, RegistryError, RegistryUnavailableError."""
        decoded = self._decoder.decode(columns.value)
        bad = {row: reason for row, reason in sorted(decoded.rejected.items()) if reason != NULL_VALUE}
        if bad and self._mode == FAILFAST:
            row, reason = next(iter(bad.items()))
            raise MalformedEventError(
                f"{self._wanted.topic}-{self._wanted.partition}: offset {columns.offset[row]}: {reason}; "
                "mode=PERMISSIVE would read it as nulls, deadLetterPath put it aside"
            )
        if bad and self._file is not None:
            self._file.add(columns, bad)
        batch, kept = decoded.batch, None
        if decoded.rejected:
            kept = np.arange(len(columns)) if self._mode != DEAD_LETTERS else np.delete(np.arange(len(columns)), list(bad))
            place = np.full(len(columns), -1, np.int64)
            place[decoded.rows] = np.arange(len(decoded.rows))
            batch = batch.take(pa.array(place[kept], mask=place[kept] < 0))
        yield from self._rows(columns, batch, kept, bad)

    def finish(self) -> None:
        """The range has been read to its end: what was put aside is kept."""
        if self._file is not None:
            self._file.close()

    def _rows(self, columns: RecordColumns, batch: Any, kept: Any, bad: dict[int, str]) -> Iterator[Any]:
        count = len(columns) if kept is None else len(kept)
        arrays = [self._column(columns, batch, kept, name, bad) for name in self._schema.names]
        if not arrays:
            return
        whole = pa.record_batch(arrays, schema=self._schema)
        step = row_steps(count, whole.nbytes)
        for start in range(0, count, step):
            yield whole.slice(start, step)

    def _column(self, columns: RecordColumns, batch: Any, kept: Any, name: str, bad: dict[int, str]) -> Any:
        if name in batch.schema.names:
            return batch.column(name)
        if name == ERROR:
            errors = [bad.get(row) for row in range(len(columns))] if bad else [None] * len(columns)
            return pa.array(errors, pa.string())
        column = record_column(columns, name.removeprefix("_"), self._wanted.topic, self._wanted.partition)
        return column if kept is None else column.take(pa.array(kept))
