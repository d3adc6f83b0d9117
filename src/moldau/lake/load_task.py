"""What a Spark task of a load does: records in, Parquet files out, one row for each file."""

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.data_files import DataFile, DayWriter
from moldau.lake.events import parse_events
from moldau.lake.load_job import DEAD_LETTER_COLUMNS, DEAD_LETTERS, EVENTS, LoadJob


def write_batches(batches: Iterator[Any], *, job: LoadJob, dead_from: Mapping[int, int]) -> Iterator[Any]:
    """Parse record batches of our data source and write them; rows of `moldau.lake.load_job.ACTIONS`.

    A record that cannot be parsed is a dead letter, unless its partition's dead letters were committed up to and beyond it: those
    offsets are in `dead_from`.
    """
    events, dead = DayWriter(job.table, job.name), DayWriter(job.dead_letters, job.name)
    for batch in batches:
        values = batch.column("value").to_pylist()
        marked = {} if job.reject_header is None else _marked(batch.column("headers"), job.reject_header)
        for number in marked:
            values[number] = None
        parsed = parse_events(values, job.columns, refuse_unknown=job.refuse_unknown)
        rejected = {**parsed.rejected, **marked}
        kept = [_header_column(batch.column("headers"), name, kind, rejected) for name, kind in job.headers.items()]
        good, table = _accepted(parsed.accepted, parsed.table, rejected, len(values))
        for name, column in zip(("partition", "offset", "timestamp"), ("_partition", "_offset", "_timestamp"), strict=True):
            table = table.append_column(column, batch.column(name).take(good))
        for name, column in zip(job.headers, kept, strict=True):
            table = table.append_column(f"_{name}", column.take(good))
        events.add(table.cast(job.file_schema), _milliseconds(batch.column("timestamp").take(good)))
        if rejected:
            dead.add(*_dead_letters(batch, rejected, job.topic, dead_from))
    yield from _actions(EVENTS, events.finish())
    yield from _actions(DEAD_LETTERS, dead.finish())


def _marked(headers: Any, name: str) -> dict[int, str]:
    """The records that have the header `name`, and its text."""
    texts = _last_header(headers, name)
    numbers = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
    return {number: texts[number].as_py().decode("utf-8", "replace") for number in numbers}


def _accepted(accepted: list[int], table: Any, rejected: Mapping[int, str], count: int) -> tuple[Any, Any]:
    """Numbers of the good records, and the table without the rows that were rejected after it was made."""
    if len(accepted) + len(rejected) == count:
        return pa.array(accepted, pa.int64()), table
    rows = [row for row, number in enumerate(accepted) if number not in rejected]
    return pa.array([accepted[row] for row in rows], pa.int64()), table.take(pa.array(rows, pa.int64()))


def _header_column(headers: Any, name: str, kind: Any, rejected: dict[int, str]) -> Any:
    """The last header `name` of each record, as `kind`; null where there is none. What cannot be read is added to `rejected`."""
    texts = _last_header(headers, name)
    try:
        return texts.cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return _header_one_by_one(texts, name, kind, rejected)


def _last_header(headers: Any, name: str) -> Any:
    """The bytes of the last header `name` of each record; null where there is none."""
    entries = pc.list_flatten(headers)
    records = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    mine = np.flatnonzero(pc.equal(pc.struct_field(entries, "key"), name).to_numpy(zero_copy_only=False))
    chosen = np.full(len(headers), -1, np.int64)
    chosen[records[mine]] = mine  # the last one stands
    return pc.struct_field(entries, "value").take(pa.array(chosen, mask=chosen < 0))


def _header_one_by_one(texts: Any, name: str, kind: Any, rejected: dict[int, str]) -> Any:
    cells = []
    for number in range(len(texts)):
        try:
            cells.append(texts.slice(number, 1).cast(pa.string()).cast(kind))
        except pa.ArrowInvalid as error:
            cells.append(pa.nulls(1, kind))
            rejected.setdefault(number, f"header {name!r}: {error}")
    return pa.concat_arrays(cells)


def _dead_letters(batch: Any, rejected: Mapping[int, str], topic: str, dead_from: Mapping[int, int]) -> tuple[Any, Any]:
    """Rows of the dead-letter table for the rejected records that it does not have yet, and their times in ms."""
    partitions, offsets = batch.column("partition"), batch.column("offset")
    new = [number for number in sorted(rejected) if offsets[number].as_py() >= dead_from[partitions[number].as_py()]]
    rows = pa.array(new, pa.int64())
    errors, topics = pa.array([rejected[number] for number in new], pa.string()), pa.array([topic] * len(new), pa.string())
    columns = [batch.column(name).take(rows) for name in ("key", "value", "partition", "offset", "timestamp")]
    table = pa.table([*columns[:2], errors, topics, *columns[2:]], names=[name for name, _ in DEAD_LETTER_COLUMNS])
    return table.cast(pa.schema(DEAD_LETTER_COLUMNS)), _milliseconds(columns[-1])


def _milliseconds(timestamps: Any) -> Any:
    return np.floor_divide(timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False), 1000)


def _actions(target: str, files: list[DataFile]) -> Iterator[Any]:
    for file in files:
        row = dict(zip(("target", "path", "day", "size", "rows", "statistics"), (target, *astuple(file)), strict=True))
        yield pa.RecordBatch.from_pylist([row], schema=_ACTIONS)


_ACTIONS = pa.schema(
    [
        ("target", pa.string()),
        ("path", pa.string()),
        ("day", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("statistics", pa.string()),
    ]
)
