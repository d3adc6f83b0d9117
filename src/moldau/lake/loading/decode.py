"""Values and headers of records to columns in a task: JSON objects or framed Avro, with one interface; and the time of each event.

The time of an event is that of its header for tracked events, of a column where a job of JSON events names one, otherwise the record's
timestamp. It decides into which table partition a row goes, a dead letter too. The header's time is a zigzag varint right after the schema
id: read for all values of a batch at once, by numpy, without the other bytes.

A header's time is in the years 1 to 9999. A record's timestamp is set by its producer: one that is in no such year counts as the
first or the last moment that there is, so that its row has a day. The last header of a name counts.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.schema import EventDecoding
from moldau.lake.tables.value_ranges import beyond
from moldau.tracking.header import TIME_MAX_MS, TIME_MIN_MS

if TYPE_CHECKING:
    from moldau.lake.avro.columns import AvroColumns

_TIME_AT = 5
_NO_TIME = -(2**63)
_VARINT_BYTES_MAX = 10


def column_times(column: Any) -> tuple[Any, Any]:
    """The times in a column in ms since 1970 (int64), and which of them are times at all: not null, and in the years 1 to 9999."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    numbers = column.cast(pa.int64()).fill_null(_NO_TIME)
    times = numbers.to_numpy()
    if pa.types.is_timestamp(column.type) and column.type.unit == "us":
        times = np.where(times == _NO_TIME, _NO_TIME, times // 1000)
    return times, (times >= TIME_MIN_MS) & (times <= TIME_MAX_MS)


def event_times(values: Any, timestamps_ms: Any, tracked: Collection[int]) -> Any:
    """The time of each value in ms since 1970 (int64): of the header where the schema id is in `tracked` and the time is one."""
    timestamps_ms = np.clip(timestamps_ms, TIME_MIN_MS, TIME_MAX_MS)
    if not tracked or not len(values):
        return timestamps_ms
    bounds = starts, ends, data = _bounds(values)
    numbers = np.flatnonzero(np.isin(_schema_ids(*bounds), np.fromiter(tracked, np.int64)))
    times, known = _varints(data, starts[numbers] + _TIME_AT, ends[numbers])
    known &= (times >= TIME_MIN_MS) & (times <= TIME_MAX_MS)
    timestamps_ms[numbers[known]] = times[known]
    return timestamps_ms


def schema_ids(values: Any) -> Any:
    """The schema id that each value begins with (int64), -1 where it begins with none."""
    return _schema_ids(*_bounds(values)) if len(values) else np.zeros(0, np.int64)


def _schema_ids(starts: Any, ends: Any, data: Any) -> Any:
    numbers = np.flatnonzero(ends - starts >= _TIME_AT)
    at = starts[numbers]
    ids = data[at + 1].astype(np.int64) << 24 | data[at + 2].astype(np.int64) << 16 | data[at + 3].astype(np.int64) << 8 | data[at + 4]
    found = np.full(len(starts), -1, np.int64)
    found[numbers] = np.where(data[at] == 0, ids, -1)
    return found


def _bounds(values: Any) -> tuple[Any, Any, Any]:
    """Where each value starts and ends in the bytes of all; a null is empty."""
    array = values.cast(pa.binary())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    ends = np.where(array.is_valid().to_numpy(zero_copy_only=False), bounds[1:], bounds[:-1])
    return bounds[:-1], ends, octets


def _varints(data: Any, at: Any, ends: Any) -> tuple[Any, Any]:
    """The zigzag varint at each place, and whether it is one."""
    result = np.zeros(len(at), np.uint64)
    going = np.ones(len(at), np.bool_)
    good = np.zeros(len(at), np.bool_)
    for number in range(_VARINT_BYTES_MAX):
        inside = going & (at + number < ends)
        octets = np.zeros(len(at), np.uint64)
        octets[inside] = data[at[inside] + number]
        result |= (octets & np.uint64(0x7F)) << np.uint64(7 * number)
        last = inside & (octets < 0x80)
        good |= last
        going = inside & ~last
        if not going.any():
            break
    return (result >> np.uint64(1)).astype(np.int64) ^ -(result & np.uint64(1)).astype(np.int64), good


def marked_records(headers: Any, name: str) -> dict[int, str]:
    """The records that have the header `name`, and its text."""
    texts = _last_header(headers, name)
    numbers = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
    return {number: texts[number].as_py().decode("utf-8", "replace") for number in numbers}


def header_column(headers: Any, name: str, kind: Any, rejected: dict[int, str]) -> Any:
    """The last header `name` of each record, as `kind`; null where there is none. What cannot be read is added to `rejected`."""
    texts = _last_header(headers, name)
    try:
        column = texts.cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        column = _one_by_one(texts, name, kind, rejected)
    for number in beyond(pa.table([column], names=[name])).tolist():
        rejected.setdefault(number, f"header {name!r}: {texts[number].as_py().decode()} is beyond what a column {kind} can hold")
    return column


def _last_header(headers: Any, name: str) -> Any:
    """The bytes of the last header `name` of each record; null where there is none."""
    entries = pc.list_flatten(headers)
    records = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    mine = np.flatnonzero(pc.equal(pc.struct_field(entries, "key"), name).to_numpy(zero_copy_only=False))
    chosen = np.full(len(headers), -1, np.int64)
    chosen[records[mine]] = mine  # the last one stands
    return pc.struct_field(entries, "value").take(pa.array(chosen, mask=chosen < 0))


def _one_by_one(texts: Any, name: str, kind: Any, rejected: dict[int, str]) -> Any:
    cells = []
    for number in range(len(texts)):
        try:
            cells.append(texts.slice(number, 1).cast(pa.string()).cast(kind))
        except pa.ArrowInvalid as error:
            cells.append(pa.nulls(1, kind))
            rejected.setdefault(number, f"header {name!r}: {error}")
    return pa.concat_arrays(cells)


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The values that could be decoded, as a table; which ones they were, rising; and why the others could not be."""

    table: Any
    rows: list[int]
    rejected: Mapping[int, str]
    times: Any = None
    """Of each row in ms since 1970 (int64), where the job takes them from a column."""


Decode = Callable[[Any], DecodedRows]
"""Takes a pyarrow array of binary values."""


@contextmanager
def decoder(job: LoadJob, decoding: EventDecoding) -> Iterator[Decode]:
    """The decoder of a job's events. It keeps what it learns (schemas, code made for them), so one is made for each task; a connection to
    the registry ends with it."""
    if decoding.reader is None:
        yield _json(job)
        return
    from moldau.lake.avro.columns import AvroColumns

    assert job.registry is not None
    with closing(AvroColumns(job.registry, reader_schema=decoding.reader)) as columns:
        yield _avro(columns, decoding)


def _json(job: LoadJob) -> Decode:
    from moldau.lake.loading.json_events import parse_events

    def decode(values: Any) -> DecodedRows:
        parsed = parse_events(values.to_pylist(), job.columns, refuse_unknown=job.refuse_unknown)
        rows = DecodedRows(parsed.table, parsed.accepted, parsed.rejected)
        return rows if job.time is None else _with_times(rows, job.time)

    return decode


def _with_times(rows: DecodedRows, name: str) -> DecodedRows:
    """The rows with the times in the column `name`; those without one are rejected."""
    column = rows.table.column(name)  # dates and timestamps of other years are no rows
    times, known = column_times(column)
    if known.all():
        return DecodedRows(rows.table, rows.rows, rows.rejected, times)
    timeless = {}
    for row in np.flatnonzero(~known).tolist():
        value = column[row].as_py()
        timeless[rows.rows[row]] = (
            f"field {name!r}, the event's time, is missing or null"
            if value is None
            else f"field {name!r}, the event's time, is {value}: in no year from 1 to 9999 (a long is milliseconds since 1970)"
        )
    kept = pa.array(np.flatnonzero(known))
    numbers = [number for number in rows.rows if number not in timeless]
    return DecodedRows(rows.table.take(kept), numbers, {**rows.rejected, **timeless}, times[known])


def _avro(columns: "AvroColumns", decoding: EventDecoding) -> Decode:
    def decode(values: Any) -> DecodedRows:
        refused = _refused(values, decoding.refused)
        if refused:
            mask = np.zeros(len(values), np.bool_)
            mask[list(refused)] = True
            values = pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)
        decoded = columns.decode(values)
        return DecodedRows(pa.Table.from_batches([decoded.batch]), decoded.rows.tolist(), {**decoded.rejected, **refused})

    return decode


def _refused(values: Any, reasons: Mapping[int, str]) -> dict[int, str]:
    """The values whose schema is not to be followed, and why."""
    if not reasons:
        return {}
    ids = schema_ids(values)
    numbers = np.flatnonzero(np.isin(ids, np.fromiter(reasons, np.int64))).tolist()
    return {number: f"schema id {ids[number]}: {reasons[int(ids[number])]}" for number in numbers}
