"""Framed Avro values of mixed schemas to one record batch of typed columns.

Each value names the schema it was written with. That schema comes from the registry, once; the value is decoded with it into the columns of
one reader's schema, by Avro's rules of resolution: fields by name, promotions, defaults. A value that cannot be decoded is rejected
with a reason, and never fails the others. A registry that does not answer is another matter and raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from moldau.lake.avro.fast import compile_pair
from moldau.lake.avro.rows import RowDecoder
from moldau.lake.avro.schemas import AvroSchemaError, AvroText, SchemaTree, parse, texts
from moldau.lake.avro.types import arrow_schema
from moldau.lake.avro.vectors import Bytes, Int64s
from moldau.registry.client import AVRO, RegisteredSchema, RegistryClient, SubjectVersion, UnknownSchemaError
from moldau.registry.wire import HEADER_BYTES


class PairDecoder:
    """Decodes bodies of one writer's schema. AvroSchemaError for a pair of schemas that cannot be decoded at all."""

    def __init__(self, writer: SchemaTree, reader: SchemaTree) -> None:
        self._rows = RowDecoder(writer, reader)
        self._fast = compile_pair(writer, reader)

    @property
    def is_fast(self) -> bool:
        """Whether numpy can follow this pair."""
        return self._fast is not None

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> tuple[Any, Int64s, dict[int, str]]:
        """A record batch of the bodies that could be decoded, their numbers in order, and the reasons why the others could not."""
        if self._fast is None:
            return self._slowly(data, starts, ends, np.arange(len(starts)))
        batch, doubtful = self._fast.decode(data, starts, ends)
        if not doubtful.any():
            return batch, np.arange(len(starts)), {}
        slow, numbers, rejected = self._slowly(data, starts, ends, np.flatnonzero(doubtful))
        numbers = np.concatenate([np.flatnonzero(~doubtful), numbers])
        order = np.argsort(numbers, kind="stable")
        return pa.concat_batches([batch, slow]).take(pa.array(order)), numbers[order], rejected

    def _slowly(self, data: Bytes, starts: Int64s, ends: Int64s, chosen: Int64s) -> tuple[Any, Int64s, dict[int, str]]:
        view = memoryview(data.octets)  # type: ignore[arg-type]  # arrays of numpy are buffers
        bodies = (view[start:end] for start, end in zip(starts[chosen].tolist(), ends[chosen].tolist(), strict=True))
        batch, accepted, rejected = self._rows.decode(bodies)
        return batch, chosen[np.array(accepted, np.int64)], {int(chosen[number]): reason for number, reason in rejected.items()}


NULL_VALUE = "the value is null"
"""Why a record without a value is rejected: a tombstone is no event."""


class SchemaSource(Protocol):
    """What is asked of a registry; `RegistryClient` is one."""

    def schema(self, schema_id: int, /) -> RegisteredSchema:
        """The schema of an id. UnknownSchemaError."""

    def latest(self, subject: str, /) -> SubjectVersion:
        """The newest version of a subject."""

    def referenced(self, schema: RegisteredSchema | SubjectVersion, /) -> list[SubjectVersion]:
        """All schemas that this one refers to, after those that they need themselves."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """What came of some values: a row for each that could be decoded, in order."""

    batch: Any
    """pyarrow.RecordBatch of the reader's columns."""
    rows: np.ndarray[Any, np.dtype[np.int64]]
    """The numbers of the values that the rows were decoded from, ascending."""
    rejected: dict[int, str]
    """Why the other values could not be decoded, by number; the text names the schema id where there is one."""


class AvroColumns:
    """Decodes values into the columns of `reader_schema`, or of the latest schema of `subject`, asked for once, now.

    `registry` is a URL or a client. With `columns` only these are made, in this order; the others are not even decoded. A copy (pickle)
    carries addresses and the reader's schema. AvroSchemaError for a reader's schema that there are no columns for; RegistryError,
    RegistryUnavailableError.
    """

    def __init__(
        self,
        registry: str | SchemaSource,
        *,
        reader_schema: str | AvroText | None = None,
        subject: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._registry = RegistryClient(registry) if isinstance(registry, str) else registry
        if reader_schema is None:
            if subject is None:
                raise ValueError("a reader's schema or a subject is needed")
            reader_schema = latest_schema(self._registry, subject)
        self.reader_schema = AvroText(reader_schema) if isinstance(reader_schema, str) else reader_schema
        self._reader = parse(self.reader_schema)
        self._columns = None if columns is None else tuple(columns)
        if columns is not None:
            self._reader = self._reader.only(columns)
        self.schema = arrow_schema(self._reader.record)
        """Arrow schema of what `decode` gives."""
        self._decoders: dict[int, PairDecoder | str] = {}

    def decode(self, values: Any) -> DecodedBatch:
        """Decode framed values: a pyarrow binary array or chunked array. RegistryError, RegistryUnavailableError."""
        framed = _FramedValues(_one_array(values))
        rejected = dict(framed.rejected)
        batches: list[Any] = []
        rows: list[Any] = []
        for schema_id in framed.schema_ids():
            numbers = framed.of(schema_id)
            decoder = self._decoder(schema_id)
            if isinstance(decoder, str):
                rejected.update(dict.fromkeys(numbers.tolist(), decoder))
                continue
            batch, accepted, refused = decoder.decode(framed.data, framed.starts[numbers] + HEADER_BYTES, framed.ends[numbers])
            batches.append(batch)
            rows.append(numbers[accepted])
            rejected.update((int(numbers[number]), f"schema id {schema_id}: {reason}") for number, reason in refused.items())
        return _in_order(batches, rows, rejected, self.schema)

    def close(self) -> None:
        """Close the connection to the registry."""
        self._registry.close()

    def _decoder(self, schema_id: int) -> PairDecoder | str:
        """The decoder for values of a writer's schema, or why there is none."""
        if schema_id not in self._decoders:
            try:
                self._decoders[schema_id] = PairDecoder(self._writer(schema_id), self._reader)
            except UnknownSchemaError:
                return f"schema id {schema_id} is not known to the registry"  # not kept: it may be registered a moment later
            except AvroSchemaError as error:
                self._decoders[schema_id] = f"schema id {schema_id}: {error}"
        return self._decoders[schema_id]

    def _writer(self, schema_id: int) -> SchemaTree:
        found = self._registry.schema(schema_id)
        if found.type != AVRO:
            raise AvroSchemaError(f"it is a schema of type {found.type}, not AVRO")
        return parse(AvroText(found.text, texts(self._registry.referenced(found))))

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._registry, self.reader_schema, self._columns)


def _make(registry: SchemaSource, reader_schema: AvroText, columns: tuple[str, ...] | None) -> AvroColumns:
    return AvroColumns(registry, reader_schema=reader_schema, columns=columns)


def latest_schema(registry: SchemaSource, subject: str) -> AvroText:
    """The latest schema of a subject with all that it refers to. AvroSchemaError if it is not Avro; RegistryError."""
    return schema_text(registry, registry.latest(subject))


def schema_text(registry: SchemaSource, found: SubjectVersion) -> AvroText:
    """A version of a subject with all that it refers to. AvroSchemaError if it is not Avro; RegistryError."""
    if found.type != AVRO:
        raise AvroSchemaError(f"subject {found.subject}: version {found.version} is a schema of type {found.type}, not AVRO")
    return AvroText(found.text, texts(registry.referenced(found)))


def _one_array(values: Any) -> Any:
    """The values as one array of binary."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return values if values.type == pa.binary() else values.cast(pa.binary())


class _FramedValues:
    """Values seen through numpy: where each begins and ends, and its schema id."""

    def __init__(self, array: Any) -> None:
        _, offsets, data = array.buffers()
        count = len(array)
        bounds = np.frombuffer(offsets, np.int32, count + 1, array.offset * 4).astype(np.int64) if count else np.zeros(1, np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        octets = np.frombuffer(data, np.uint8)[first:last] if data is not None and last > first else np.zeros(0, np.uint8)
        self.data = Bytes(octets)
        bounds -= first
        self.starts, self.ends = bounds[:-1], bounds[1:]
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        self.rejected: dict[int, str] = dict.fromkeys(np.flatnonzero(~valid).tolist(), NULL_VALUE)
        long_enough = valid & (self.ends - self.starts >= HEADER_BYTES)
        for number in np.flatnonzero(valid & ~long_enough).tolist():
            size = int(self.ends[number] - self.starts[number])
            self.rejected[number] = f"a value of {size} bytes has no room for the schema id: {HEADER_BYTES} bytes are needed"
        self._numbers = np.flatnonzero(long_enough)
        starts = self.starts[self._numbers]
        magic = self.data.octets[starts]
        ids = np.zeros(len(starts), np.int64)
        for number in range(1, HEADER_BYTES):
            ids = ids << 8 | self.data.octets[starts + number]
        good = (magic == 0) & (ids < 1 << 31)
        for number, first in zip(self._numbers[~good].tolist(), magic[~good].tolist(), strict=True):
            problem = f"the first byte is 0x{first:02x}, not 0x00" if first else "the schema id is negative"
            self.rejected[number] = f"{problem}: the value does not carry a schema id"
        self._numbers, self._ids = self._numbers[good], ids[good]

    def schema_ids(self) -> list[int]:
        return [int(each) for each in np.unique(self._ids)]

    def of(self, schema_id: int) -> Any:
        return self._numbers[self._ids == schema_id]


def _in_order(batches: list[Any], rows: list[Any], rejected: dict[int, str], schema: Any) -> DecodedBatch:
    if not batches:
        return DecodedBatch(_empty(schema), _NO_ROWS, rejected)
    if len(batches) == 1:
        return DecodedBatch(batches[0], rows[0], rejected)
    numbers = np.concatenate(rows)
    order = np.argsort(numbers, kind="stable")
    whole = pa.concat_batches(batches).take(pa.array(order))
    return DecodedBatch(whole, numbers[order], rejected)


_NO_ROWS: np.ndarray[Any, np.dtype[np.int64]] = np.zeros(0, np.int64)


def _empty(schema: Any) -> Any:
    return pa.record_batch([pa.array([], kind) for kind in schema.types], schema=schema)
