"""Record batches to Arrow columns, without a Python object per record.

All fields are read for all records at once with numpy (`moldau.protocol.records.vectors`), and keys and values are copied into Arrow
arrays straight from the bytes of the fetch.

A record (all numbers zigzag varints)::

    length, attributes (1 byte), timestamp delta, offset delta, key length (-1: null), key, value length (-1: null), value,
    header count, then for each header: key length, key, value length (-1: null), value

The arrays of a whole fetch are made together, since numpy costs the same for one record as for a thousand: a topic whose
batches hold one record each is read as fast as any other.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.avro.vectors import gather
from moldau.model.errors import CorruptBatchError
from moldau.protocol.records.vectors import Bytes8, Int64s, record_spans, spans, varints
from moldau.protocol.records.walk import BATCH_HEADERS_MAX, RECORD_HEADERS_MAX, refuse_batch_headers, refuse_record_headers


@dataclass(frozen=True, slots=True)
class BatchRecords:
    """The records of one batch, decompressed, and what its header has for all of them."""

    records: bytes | bytearray | memoryview
    count: int
    base_offset: int
    base_timestamp: int
    log_append_time: int | None
    """Timestamp of every record where the broker set it, in ms."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records as columns of one length; key, value and headers only where they were asked for."""

    offset: Int64s
    timestamp_ms: Int64s
    timestamp_type: Int64s
    key: Any | None
    value: Any | None
    headers: Any | None

    def __len__(self) -> int:
        return len(self.offset)

    def slice(self, start: int, stop: int) -> "RecordColumns":
        """The rows from `start` up to and not including `stop`, without a copy."""
        return RecordColumns(
            self.offset[start:stop],
            self.timestamp_ms[start:stop],
            self.timestamp_type[start:stop],
            *(None if column is None else column.slice(start, stop - start) for column in (self.key, self.value, self.headers)),
        )


HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def decode_sections(sections: Sequence[BatchRecords], wanted: Container[str]) -> RecordColumns:
    """All records of the sections, in order; of key, value and headers those in `wanted`. CorruptBatchError where bytes do not add up."""
    data, starts, ends = record_spans([(section.records, section.count) for section in sections])
    counts = [section.count for section in sections]
    position = starts + 1  # attributes: none are defined
    timestamp_delta, position = varints(data, position)
    offset_delta, position = varints(data, position)
    key, position = _byte_arrays(data, position, ends, wanted="key" in wanted)
    value, position = _byte_arrays(data, position, ends, wanted="value" in wanted)
    header_count, position = varints(data, position)
    appended = np.repeat([-1 if s.log_append_time is None else s.log_append_time for s in sections], counts).astype(np.int64)
    is_appended = np.repeat([s.log_append_time is not None for s in sections], counts)
    timestamp = np.repeat(np.array([s.base_timestamp for s in sections], np.int64), counts) + timestamp_delta
    offset = np.repeat(np.array([s.base_offset for s in sections], np.int64), counts) + offset_delta
    headers = None
    if "headers" in wanted:
        _check_header_counts(header_count, offset, counts)
        headers, position = _headers(data, position, header_count, ends)
    else:
        position = np.where(header_count == 0, position, ends)
    if (position != ends).any() or (header_count < 0).any():
        raise CorruptBatchError("a record is longer or shorter than its fields")
    return RecordColumns(
        offset=offset,
        timestamp_ms=np.where(is_appended, appended, timestamp),
        timestamp_type=is_appended.astype(np.int64),
        key=key,
        value=value,
        headers=headers,
    )


def _check_header_counts(header_count: Int64s, offset: Int64s, counts: Sequence[int]) -> None:
    """No record and no batch, of `counts` records each, has more headers than are read. BeyondBoundError names the offset."""
    beyond = np.flatnonzero(header_count > RECORD_HEADERS_MAX)
    if beyond.size:
        row = int(beyond[0])
        refuse_record_headers(f"the record at offset {offset[row]}", int(header_count[row]), RECORD_HEADERS_MAX)
    if header_count.sum() > BATCH_HEADERS_MAX:
        row = 0
        for count in counts:
            if header_count[row : row + count].sum() > BATCH_HEADERS_MAX:
                refuse_batch_headers(f"the record at offset {offset[row + count - 1]}", BATCH_HEADERS_MAX)
            row += count


def _byte_arrays(data: Bytes8, position: Int64s, limits: Int64s, *, wanted: bool) -> tuple[Any, Int64s]:
    start, end, null = spans(data, position, limits)
    return (gather(pa.py_buffer(data), start, end, null) if wanted else None), end


def _headers(data: Bytes8, position: Int64s, counts: Int64s, limits: Int64s) -> tuple[Any, Int64s]:
    """Lists of headers: the first header of every record that has one, then the second ones, and so on; then put in order."""
    if ((counts < 0) | (counts > limits - position)).any():
        raise CorruptBatchError("a record has a header count larger than its bytes")
    position = position.copy()
    rounds: list[tuple[Int64s, ...]] = []
    rows = np.flatnonzero(counts)
    while rows.size:
        key_start, key_end, key_null = spans(data, position[rows], limits[rows])
        value_start, value_end, value_null = spans(data, key_end, limits[rows])
        if key_null.any():
            raise CorruptBatchError("a header has no key")
        position[rows] = value_end
        rounds.append((rows, key_start, key_end, key_null, value_start, value_end, value_null))
        rows = rows[counts[rows] > len(rounds)]
    list_offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=list_offsets[1:])
    if rounds:
        rows, key_start, key_end, key_null, value_start, value_end, value_null = (
            np.concatenate(part) for part in zip(*rounds, strict=True)
        )
        order = np.argsort(rows, kind="stable")
        keys = gather(pa.py_buffer(data), key_start[order], key_end[order], key_null[order])
        values = gather(pa.py_buffer(data), value_start[order], value_end[order], value_null[order])
    else:
        keys, values = pa.array([], pa.binary()), pa.array([], pa.binary())
    try:
        keys = keys.cast(pa.string())
    except pa.ArrowInvalid:
        keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    null_lists = counts == 0
    lists = pa.ListArray.from_arrays(pa.array(list_offsets), entries, type=HEADERS_TYPE)
    if null_lists.any():
        lists = pa.ListArray.from_buffers(
            HEADERS_TYPE, len(counts), [pa.array(~null_lists).buffers()[1], pa.py_buffer(list_offsets)], children=[entries]
        )
    return lists, position
