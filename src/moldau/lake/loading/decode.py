"""Values and headers of records to columns in a task: JSON objects or framed Avro, with one interface. The last header of a name
counts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.schema import EventDecoding
from moldau.lake.loading.times import column_times, schema_ids
from moldau.lake.tables.value_ranges import beyond

if TYPE_CHECKING:
    from moldau.lake.avro.columns import AvroColumns


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
