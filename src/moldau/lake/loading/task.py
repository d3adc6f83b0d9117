"""What the Spark tasks of a load do: records in, Parquet files out, one row for each file.

Two steps with a shuffle between. The first only finds out each record's time; the second, which gets all records of a table partition,
decodes and writes, so that a load leaves one file in each table partition.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake import points
from moldau.lake.loading.counts import PutAside, added, counts_to_json
from moldau.lake.loading.decode import decoder
from moldau.lake.loading.job import COUNTS, DEAD_LETTER_COLUMNS, DEAD_LETTERS, EVENTS, RECORD_COLUMNS, LoadJob
from moldau.lake.loading.record_headers import header_column, marked_records
from moldau.lake.loading.schema import Decoding
from moldau.lake.loading.times import event_times
from moldau.lake.tables.data_files import DataFile, PartitionWriter, slots_of
from moldau.lake.tables.fitting import fit

if TYPE_CHECKING:
    from moldau.tracking.counts import Count, CountKey

TIME, SLOT = "time_ms", "slot"
"""Columns between the two steps: the event's time, and the number of its table partition."""


def add_times(batches: Iterator[Any], *, by: str, tracked: Collection[int]) -> Iterator[Any]:
    """The first step: the record batches of our data source with the columns TIME and SLOT."""
    for batch in batches:
        times = event_times(batch.column("value"), _milliseconds(batch.column("timestamp")), tracked)
        yield batch.append_column(TIME, pa.array(times)).append_column(SLOT, pa.array(slots_of(times, by)))


def write_batches(
    batches: Iterator[Any],
    *,
    job: LoadJob,
    decoding: Decoding,
    schema: Any,
    topic_id: str,
    held: Mapping[int, Collection[int]],
    load_id: str,
    orders: points.Orders = points.NO_ORDERS,
) -> Iterator[Any]:
    """The second step: decode and write; rows of `moldau.lake.loading.job.ACTIONS`.

    `schema` is that of the table. A record that cannot be decoded is a dead letter. Those that the table of dead letters holds already
    (`held`: offsets by partition) are left alone: a load before this one committed them, and died. The names of the files have `load_id`
    in them; a task that fails leaves none.
    """
    points.follow(orders)
    points.reached("task: begun")
    decode = decoder(job, decoding)
    counter = _counter(job, decoding)
    columns = pa.schema([each for each in schema if each.name not in job.partition_columns and each.name != "event_hour"])
    events = PartitionWriter(job.table, job.name, job.partition, load_id)
    dead = PartitionWriter(job.dead_letters, job.name, "day", load_id)
    try:
        for batch in batches:
            points.reached("task: batch read")
            counter.add(batch.column("value"))
            batch, put_aside = _without(batch, held)
            counter.put_aside(put_aside)
            if batch.num_rows == 0:
                continue
            table, times, rejected = _decoded(batch, job, decode)
            events.add(fit(table, columns), times)
            if rejected:
                letters, letter_times = _dead_letters(batch, rejected, job, topic_id)
                dead.add(letters, letter_times)
                counter.put_aside(letters.column("value"), _first(letters))
        written = {EVENTS: events.finish(), DEAD_LETTERS: dead.finish()}
    except Exception:
        events.discard()
        dead.discard()
        raise
    for target, files in written.items():
        yield from _actions(target, files)
    yield counter.action()
    points.reached("task: done")


def _decoded(batch: Any, job: LoadJob, decode: Any) -> tuple[Any, Any, Mapping[int, str]]:
    """The good rows with their place and headers, their times, and why the others are none."""
    values = batch.column("value")
    marked = {} if job.reject_header is None else marked_records(batch.column("headers"), job.reject_header)
    if marked:
        mask = np.zeros(len(values), np.bool_)
        mask[list(marked)] = True
        values = pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)
    decoded = decode(values)
    rejected = {**decoded.rejected, **marked}
    kept = [header_column(batch.column("headers"), name, kind, rejected) for name, kind in job.headers.items()]
    table, numbers = decoded.table, decoded.rows
    if len(numbers) + len(rejected) != len(values):  # a header was refused after the event was decoded
        rows = [row for row, number in enumerate(numbers) if number not in rejected]
        table, numbers = table.take(pa.array(rows, pa.int64())), [numbers[row] for row in rows]
    good = pa.array(numbers, pa.int64())
    for (name, _), source in zip(RECORD_COLUMNS, ("partition", "offset", "timestamp"), strict=True):
        table = table.append_column(name, batch.column(source).take(good))
    for name, column in zip(job.headers, kept, strict=True):
        table = table.append_column(f"_{name}", column.take(good))
    return table, batch.column(TIME).take(good).to_numpy(zero_copy_only=False), rejected


def _without(batch: Any, held: Mapping[int, Collection[int]]) -> tuple[Any, Any]:
    """The batch without the records that the dead letters hold, and the values of those."""
    nothing = batch.column("value").slice(0, 0)
    if not any(held.values()):
        return batch, nothing
    places = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    keep = pa.array([offset not in held.get(partition, ()) for partition, offset in places], pa.bool_())
    return batch.filter(keep), batch.column("value").filter(pc.invert(keep))


def _first(letters: Any) -> tuple[int, int, str]:
    """Partition, offset and reason of the first of some dead letters."""
    row = letters.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).slice(0, 1).to_pylist()[0]
    return row["_partition"], row["_offset"], row["error"]


def _dead_letters(batch: Any, rejected: Mapping[int, str], job: LoadJob, topic_id: str) -> tuple[Any, Any]:
    """Rows of the dead-letter table for the rejected records, and their times in ms."""
    numbers = sorted(rejected)
    rows, count = pa.array(numbers, pa.int64()), len(numbers)
    columns = {
        **{name: batch.column(name).take(rows) for name in ("key", "value")},
        "error": pa.array([rejected[number] for number in numbers], pa.string()),
        **{name: pa.repeat(pa.scalar(text), count) for name, text in (("topic", job.topic), ("topic_id", topic_id), ("job", job.name))},
        **{f"_{name}": batch.column(name).take(rows) for name in ("partition", "offset", "timestamp")},
    }
    table = pa.table([columns[name] for name, _ in DEAD_LETTER_COLUMNS], names=[name for name, _ in DEAD_LETTER_COLUMNS])
    return table.cast(pa.schema(DEAD_LETTER_COLUMNS)), batch.column(TIME).take(rows).to_numpy(zero_copy_only=False)


def _milliseconds(timestamps: Any) -> Any:
    return np.floor_divide(timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False), 1000)


def _actions(target: str, files: list[DataFile]) -> Iterator[Any]:
    for file in files:
        yield _action(target, file.path, json.dumps(dict(file.partition)), file.size, file.rows, file.statistics)


def _action(target: str, path: str, partition: str, size: int, rows: int, statistics: str) -> Any:
    values = (target, path, partition, size, rows, statistics)
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for value, kind in zip(values, _ACTIONS.types, strict=True)], schema=_ACTIONS
    )


_ACTIONS = pa.schema(
    [
        ("target", pa.string()),
        ("path", pa.string()),
        ("partition", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("statistics", pa.string()),
    ]
)


class _Uncounted:
    """Of a job whose events carry no header: JSON, or Avro without one in any version."""

    def __init__(self) -> None:
        self._records = self._bytes = 0
        self._aside = PutAside()

    def add(self, values: Any) -> None:
        self._records += len(values)
        self._bytes += pc.sum(pc.binary_length(values)).as_py() or 0

    def put_aside(self, values: Any, first: tuple[int, int, str] | None = None) -> None:
        self._aside.add(PutAside({}, len(values), first))

    def action(self) -> Any:
        counts = counts_to_json({}, self._records, self._bytes, self._aside)
        return _action(COUNTS, "", "{}", self._bytes, self._records, json.dumps(counts))


class _Counter:
    """Counts what arrives by the headers of the values."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._counts: list[Mapping[CountKey, Count]] = []
        self._untracked = self._untracked_bytes = 0
        self._aside = PutAside()

    def add(self, values: Any) -> None:
        from moldau.audit.columns import count_values

        counted = count_values(self._topic, values)
        self._counts.append(counted.counts)
        self._untracked += counted.untracked
        self._untracked_bytes += counted.untracked_bytes

    def put_aside(self, values: Any, first: tuple[int, int, str] | None = None) -> None:
        from moldau.audit.columns import count_values

        if len(values):
            counted = count_values(self._topic, values)
            self._aside.add(PutAside({key: count.count for key, count in counted.counts.items()}, counted.untracked, first))

    def action(self) -> Any:
        counts = counts_to_json(added(self._counts), self._untracked, self._untracked_bytes, self._aside)
        return _action(COUNTS, "", "{}", self._untracked_bytes, self._untracked, json.dumps(counts))


def _counter(job: LoadJob, decoding: Decoding) -> _Counter | _Uncounted:
    return _Counter(job.topic) if decoding.tracked else _Uncounted()
