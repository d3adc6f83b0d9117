"""Arrow columns as the records of batches, all rows at once: no Python object is made per row.

The small fields of a record are varints, made as a matrix with one row each and pressed together; keys, values and headers are as they
are. Arrow joins the pieces row by row, and the buffer of what it gives holds the records one after another, ready to be sent.

The columns of a frame are those of Spark's Kafka connector; they are checked once for a write (`layout`), and for their values (`pieces`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from moldau.lake.writing.options import WriteOptions
from moldau.lake.writing.transactions import ProducerIdentity
from moldau.model.errors import MoldauError
from moldau.ports.filesystem import Bytes
from moldau.protocol.records.builder import assemble
from moldau.protocol.records.compression import Compression, compress
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from moldau.tracking.clock import now_ms

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Int64s = NDArray[np.int64]
_VARINT_BYTES_MAX = 5
_NULL = 1
"""A length of -1 in zigzag form."""
_SMALL_FIELDS_MAX = 2 + 5 * _VARINT_BYTES_MAX
_NO_SEQUENCE = -1


class Rows(NamedTuple):
    """What goes into one partition, or several: Arrow arrays of one length. Keys and headers may be left out."""

    value: Any
    key: Any | None
    headers: Any | None

    def taken(self, indices: Any) -> "Rows":
        """Some of the rows, in another order."""
        return Rows(*(None if column is None else column.take(indices) for column in self))


class EncodedRows(NamedTuple):
    """The records of some rows: one after another in `data`, and where each begins."""

    data: memoryview
    starts: Int64s
    """One more than there are records: the last is the end."""

    def payload(self, first: int, end: int) -> memoryview:
        """The records from the `first`-th to before the `end`-th."""
        return self.data[self.starts[first] : self.starts[end]]


def size_estimates(rows: Rows) -> Int64s:
    """For each row the most bytes that its record takes."""
    sizes = _lengths(rows.value) + _SMALL_FIELDS_MAX
    if rows.key is not None:
        sizes = sizes + _lengths(rows.key)
    if rows.headers is not None:
        _, starts = _header_bytes(rows.headers)
        sizes = sizes + np.diff(starts)
    return sizes


def batch_ends(sizes: Int64s, bytes_max: int) -> list[int]:
    """Where to cut rows of these sizes so that each batch has at most `bytes_max`, or only one row."""
    total = np.cumsum(sizes)
    ends: list[int] = []
    done, start = 0, 0
    while start < len(sizes):
        end = max(int(np.searchsorted(total, done + bytes_max, "right")), start + 1)
        ends.append(end)
        start, done = end, int(total[end - 1])
    return ends


def encode(rows: Rows, offset_deltas: Int64s) -> EncodedRows:
    """The records of `rows`; their timestamps are their batch's base timestamp."""
    value_lengths = _wire_lengths(rows.value)
    key_lengths = np.full(len(rows.value), _NULL, np.int64) if rows.key is None else _wire_lengths(rows.key)
    zero = np.zeros(len(rows.value), np.uint8)
    before = _Fields()
    before.add_byte(zero)  # attributes
    before.add_byte(zero)  # timestamp delta
    before.add_varint(offset_deltas << 1)
    before.add_varint(key_lengths)
    middle = before if rows.key is None else _Fields()
    middle.add_varint(value_lengths)
    if rows.headers is None:
        tail, tail_sizes = pa.scalar(b"\0", pa.binary()), np.ones(1, np.int64)
    else:
        tail, tail_sizes = _tail(rows.headers)
    body = before.sizes() + _lengths(rows.value) + tail_sizes
    if rows.key is not None:
        body = body + middle.sizes() + _lengths(rows.key)
    size = _Fields()
    size.add_varint(body << 1)
    size.extend(before)
    pieces = [size.array()] if rows.key is None else [size.array(), rows.key, middle.array()]
    joined = pc.binary_join_element_wise(
        *pieces, rows.value, tail, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
    data, starts = _parts(joined)
    return EncodedRows(memoryview(data), starts)


def batch_of(
    payload: Bytes,
    count: int,
    owner: ProducerIdentity | None,
    sequence: int,
    compression: Compression,
    *,
    time_ms: int | None = None,
) -> bytearray:
    """One batch of `count` records, by a producer if there is one; transactional if that has a transactional id."""
    time_ms = now_ms() if time_ms is None else time_ms
    packed = compress(payload, compression) if compression else payload
    producer = (-1, -1, _NO_SEQUENCE) if owner is None else (owner.producer_id, owner.epoch, sequence)
    transactional = owner is not None and owner.transactional_id is not None
    attributes = compression | (TRANSACTIONAL_BIT if transactional else 0)
    length = HEADER_SIZE - LOG_OVERHEAD + len(packed)
    header = BatchHeader(0, length, -1, MAGIC, 0, attributes, count - 1, time_ms, time_ms, *producer, count)
    return assemble(header, packed)


class _Fields:
    """Small fields of all rows, byte by byte: columns, and which of them each row has."""

    def __init__(self) -> None:
        self._columns: list[NDArray[np.uint8]] = []
        self._present: list[NDArray[np.bool_]] = []

    def add_byte(self, column: NDArray[np.uint8]) -> None:
        """A field of one byte."""
        self._columns.append(column)
        self._present.append(np.ones(len(column), np.bool_))

    def add_varint(self, numbers: Int64s) -> None:
        """A field of one to five bytes; `numbers` are in zigzag form."""
        most = int(numbers.max(initial=0))
        present = np.ones(len(numbers), np.bool_)
        rest = numbers
        while True:
            following = rest >> 7
            more = following > 0
            self._columns.append((rest & 0x7F | more << 7).astype(np.uint8))
            self._present.append(present)
            most >>= 7
            if not most:
                return
            rest, present = following, more

    def extend(self, other: "_Fields") -> None:
        """The fields of `other` after these."""
        self._columns += other._columns
        self._present += other._present

    def sizes(self) -> Int64s:
        """Bytes in each row."""
        total = np.zeros(len(self._columns[0]), np.int64)
        for present in self._present:
            total += present
        return total

    def array(self) -> Any:
        """One value for each row."""
        matrix = np.stack(self._columns, axis=1)
        data = matrix[np.stack(self._present, axis=1)]
        offsets = np.zeros(len(matrix) + 1, np.int32)
        np.cumsum(self.sizes(), out=offsets[1:])
        return pa.Array.from_buffers(pa.binary(), len(matrix), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _lengths(column: Any) -> Int64s:
    lengths: Int64s = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _wire_lengths(column: Any) -> Int64s:
    lengths = _lengths(column) << 1
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return lengths


def _parts(column: Any) -> tuple[Any, Int64s]:
    """The bytes of an array without nulls, and where each value begins in them."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return (b"" if data is None else data), starts


def _header_bytes(headers: Any) -> tuple[Any, Int64s]:
    """All headers of all rows one after another, and where each row's begin."""
    first = np.frombuffer(headers.buffers()[1], np.int32)[headers.offset : headers.offset + len(headers) + 1].astype(np.int64)
    keys, values = (each.cast(pa.binary()) for each in headers.values.flatten())
    if len(keys) == 0:
        return b"", np.zeros(len(headers) + 1, np.int64)
    key_length, value_length = _Fields(), _Fields()
    key_length.add_varint(_wire_lengths(keys))
    value_length.add_varint(_wire_lengths(values))
    joined = pc.binary_join_element_wise(
        key_length.array(), keys, value_length.array(), values, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
    data, starts = _parts(joined)
    return data, starts[first]


def _tail(headers: Any) -> tuple[Any, Int64s]:
    """Number and bytes of the headers of each row."""
    data, starts = _header_bytes(headers)
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    number = _Fields()
    number.add_varint(counts << 1)
    there = headers.is_valid().buffers()[1]
    spans = pa.Array.from_buffers(pa.binary(), len(headers), [there, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(data)])
    whole = pc.binary_join_element_wise(number.array(), spans, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b"")
    return whole, _lengths(whole)


_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class ColumnError(ValueError):
    """A frame that cannot be written: a column is missing, or of another type."""


class RowError(MoldauError):
    """A row that cannot be written."""


class TopicRows(NamedTuple):
    """Rows of one topic, and their numbers in the task. `partition` is None where no row names one."""

    topic: str
    rows: Rows
    partition: Any | None
    numbers: Int64s


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """Where in a row of the frame each column is."""

    topic: str | None
    positions: dict[str, int]

    def columns(self, batch: Any, first_row: int) -> Iterator[TopicRows]:
        """An Arrow record batch, whose first row is the task's `first_row`-th, by topic. RowError."""
        import pyarrow as pa

        key, headers = self._column(batch, "key"), self._column(batch, "headers")
        rows = Rows(batch.column(self.positions["value"]).cast(pa.binary()), None if key is None else key.cast(pa.binary()), headers)
        if headers is not None and headers.values.flatten()[0].null_count:
            raise RowError(f"a header without a key among rows {first_row} to {first_row + batch.num_rows - 1} of the task")
        partition = self._column(batch, "partition")
        numbers = np.arange(first_row, first_row + batch.num_rows)
        if self.topic is not None:
            yield TopicRows(self.topic, rows, partition, numbers)
            return
        topics = batch.column(self.positions["topic"])
        if topics.null_count:
            raise RowError(f"row {numbers[int(np.argmax(topics.is_null()))]} of the task has no topic: the column topic is null there")
        for topic in topics.unique().to_pylist():
            indices = np.flatnonzero(pa.compute.equal(topics, topic).to_numpy(zero_copy_only=False))
            theirs = None if partition is None else partition.take(indices)
            yield TopicRows(topic, rows.taken(indices), theirs, numbers[indices])

    def _column(self, batch: Any, name: str) -> Any | None:
        position = self.positions.get(name)
        return None if position is None else batch.column(position)

    def check_partitions(self, wanted: Int64s, columns: TopicRows, count: int) -> None:
        """RowError for a partition that its topic does not have."""
        wrong = (wanted < 0) | (wanted >= count)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise RowError(
                f"row {columns.numbers[at]} of the task names partition {wanted[at]} of topic {columns.topic}, which has {count} partitions"
            )


def pieces(batch: Any, bytes_max: int) -> Iterator[Any]:
    """An Arrow record batch in slices of about `bytes_max`: what is made of one is held in memory, and Arrow's offsets end at 2 GiB."""
    rows = max(1, batch.num_rows * bytes_max // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def layout(schema: "StructType", options: WriteOptions) -> FrameLayout:
    """Where the columns of a frame with this schema are. ColumnError. What has no meaning here is left alone, as the connector does."""
    positions = {}
    for position, field in enumerate(schema.fields):
        allowed = _TYPES.get(field.name.lower())
        if allowed is None or (field.name.lower() == "headers" and not options.include_headers):
            continue
        if field.dataType.simpleString() not in allowed:
            raise ColumnError(f"column {field.name} is {_either(allowed)}, not {field.dataType.simpleString()}")
        positions[field.name.lower()] = position
    if "value" not in positions:
        raise ColumnError(f"a column value (string or binary) is needed; there are {', '.join(schema.fieldNames()) or 'none'}")
    if options.topic is None and "topic" not in positions:
        raise ColumnError("a topic is needed: the option topic, or a column topic")
    return FrameLayout(options.topic, positions)


def _either(types: Sequence[str]) -> str:
    return " or ".join(types)
