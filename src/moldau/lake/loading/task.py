"""What a Spark task of a load does: it reads its ranges, decodes the events and writes Parquet files, and reports their names.

Nothing else leaves the task: no record goes through Java or to another task. Rows are kept by table partition until the task ends or holds
too many of them, so that it leaves one file in most table partitions that it has rows for.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake import points
from moldau.lake.counts import DeadLetterCounts, added, latencies_added
from moldau.lake.loading.decode import DecodedRows, decoder, event_times, header_column, marked_records
from moldau.lake.loading.job import DEAD_LETTER_COLUMNS, RECORD_COLUMNS, LoadJob
from moldau.lake.loading.schema import EventDecoding
from moldau.lake.merging.options import RECORD_KEY, TOMBSTONE
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import ReadOptions
from moldau.lake.reading.row_shape import record_batches
from moldau.lake.reading.tasks import reads
from moldau.lake.tables.data_files import DataFile, PartitionWriter
from moldau.lake.tables.places.addresses import NO_SETTINGS, StoreSettings
from moldau.lake.tables.rewriting import fit

if TYPE_CHECKING:
    from moldau.tracking.counts import Count, CountKey
    from moldau.tracking.latencies import Latencies

TIME = "time_ms"
"""Column of the event's time beside those of the record."""
RECORD_FIELDS = ("key", "value", "partition", "offset", "timestamp", "headers")
ROWS_MAX, BYTES_TARGET = 50_000, 8 << 20
"""Of what is decoded at once: it costs the less by the row the more they are, and memory."""


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """What all tasks of a load receive."""

    job: LoadJob
    decoding: EventDecoding
    schema: Any
    """Of the table."""
    topic_id: str
    held: Mapping[int, Collection[int]]
    """Offsets by partition that the table of dead letters holds: a load before this one committed them, and died."""
    load_id: str
    """In the names of all files."""
    options: ReadOptions
    settings: StoreSettings = NO_SETTINGS
    """Of the object store that the table is in."""
    orders: points.Orders = points.NO_ORDERS
    seen_ms: int | None = None
    """When the load was planned: latencies are to then."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The files that a task has written, on disk, and the counts of what it read."""

    events: tuple[DataFile, ...]
    dead_letters: tuple[DataFile, ...]
    counts: Mapping["CountKey", "Count"]
    untracked: int
    untracked_bytes: int
    put_aside: DeadLetterCounts
    latencies: Mapping[int, "Latencies"] = field(default_factory=dict)
    """Of what was counted, to when the load was planned, by the start of the window."""
    skipped: tuple[OffsetRange, ...] = ()
    """Offsets that went from the log after the load was planned."""


def run_tasks(shares: Iterator[list[OffsetRange]], order: TaskOrder) -> Iterator[TaskReport]:
    """What Spark calls in its Python process, with one share."""
    points.follow(order.orders)
    order.settings.follow()
    for share in shares:
        points.reached("task: begun")
        skipped: list[OffsetRange] = []
        report = write_batches(_records(share, order, skipped), order)
        yield replace(report, skipped=tuple(skipped))
        points.reached("task: done")


def _records(share: list[OffsetRange], order: TaskOrder, skipped: list[OffsetRange]) -> Iterator[Any]:
    """Record batches of the ranges; what is no longer in the log comes into `skipped`. ReadError, DataLossError."""
    names = [name for name in RECORD_FIELDS if name != "headers" or order.job.needs_headers]
    for wanted, _, read in reads(order.options, names, [(wanted, order.topic_id) for wanted in share]):
        for columns in read:
            yield from record_batches(columns, wanted.topic, wanted.partition, names, rows_max=ROWS_MAX, bytes_target=BYTES_TARGET)
        skipped += read.skipped


def write_batches(batches: Iterator[Any], order: TaskOrder) -> TaskReport:
    """Decode and write record batches with the columns RECORD_FIELDS.

    A record that cannot be decoded is a dead letter. A task that fails leaves no file.
    """
    job = order.job
    counter = _counter(job, order)
    columns = pa.schema([each for each in order.schema if each.name not in job.partition_columns and each.name != "event_hour"])
    events = PartitionWriter(job.table, job.name, job.partition, order.load_id)
    dead = PartitionWriter(job.dead_letters, job.name, "day", order.load_id)
    try:
        with decoder(job, order.decoding) as decode:
            for batch in batches:
                points.reached("task: batch read")
                counter.add(batch.column("value"), _milliseconds(batch.column("timestamp")))
                batch, held = _without(batch, order.held)
                counter.add_dead(held)
                if batch.num_rows == 0:
                    continue
                times = event_times(batch.column("value"), _milliseconds(batch.column("timestamp")), order.decoding.tracked)
                batch = batch.append_column(TIME, pa.array(times))
                table, times, rejected = _decoded(batch, job, decode)
                events.add(fit(table, columns), times)
                if rejected:
                    letters, letter_times = _dead_letters(batch, rejected, job, order.topic_id)
                    dead.add(letters, letter_times)
                    counter.add_dead(letters.column("value"), _first(letters))
        files = tuple(events.finish()), tuple(dead.finish())
        return TaskReport(*files, counter.counts, counter.untracked, counter.untracked_bytes, counter.put_aside, counter.latencies)
    except Exception:
        events.discard()
        dead.discard()
        raise


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
    if job.takes_tombstones:
        decoded = _with_tombstones(batch, decoded, rejected, marked)
    kept = [header_column(batch.column("headers"), name, kind, rejected) for name, kind in job.headers.items()]
    table, numbers, times = decoded.table, decoded.rows, decoded.times
    if len(numbers) + len(rejected) != len(values):  # a header was refused after the event was decoded
        rows = [row for row, number in enumerate(numbers) if number not in rejected]
        table, numbers = table.take(pa.array(rows, pa.int64())), [numbers[row] for row in rows]
        times = None if times is None else times[rows]
    good = pa.array(numbers, pa.int64())
    for (name, _), source in zip(RECORD_COLUMNS, ("partition", "offset", "timestamp"), strict=True):
        table = table.append_column(name, batch.column(source).take(good))
    of_records = {RECORD_KEY: batch.column("key"), TOMBSTONE: batch.column("value").is_null()}
    for name, _ in job.kept_of_records:
        table = table.append_column(name, of_records[name].take(good))
    for name, column in zip(job.headers, kept, strict=True):
        table = table.append_column(f"_{name}", column.take(good))
    return table, batch.column(TIME).take(good).to_numpy(zero_copy_only=False) if times is None else times, rejected


def _with_tombstones(batch: Any, decoded: DecodedRows, rejected: dict[int, str], marked: Collection[int]) -> DecodedRows:
    """The decoded rows, and one with nulls for each record that has a key and no value; those are not `rejected` then."""
    found = pc.and_(batch.column("value").is_null(), batch.column("key").is_valid()).to_numpy(zero_copy_only=False)
    numbers = [number for number in np.flatnonzero(found).tolist() if number not in marked]
    for number in numbers:
        rejected.pop(number, None)
    nulls = pa.table([pa.nulls(len(numbers), each.type) for each in decoded.table.schema], schema=decoded.table.schema)
    times = decoded.times
    if times is not None:
        times = np.concatenate([times, batch.column(TIME).take(pa.array(numbers, pa.int64())).to_numpy(zero_copy_only=False)])
    return DecodedRows(pa.concat_tables([decoded.table, nulls]), [*decoded.rows, *numbers], rejected, times)


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


class _NoCounter:
    """Of a job whose events carry no header: JSON, or Avro without one in any version."""

    def __init__(self) -> None:
        self.counts: Mapping[CountKey, Count] = {}
        self.latencies: Mapping[int, Latencies] = {}
        self.untracked = self.untracked_bytes = 0
        self.put_aside = DeadLetterCounts()

    def add(self, values: Any, _sent_ms: Any) -> None:
        self.untracked += len(values)
        self.untracked_bytes += pc.sum(pc.binary_length(values)).as_py() or 0

    def add_dead(self, values: Any, first: tuple[int, int, str] | None = None) -> None:
        self.put_aside.add(DeadLetterCounts({}, len(values), first))


class _Counter:
    """Counts what arrives by the headers of the values."""

    def __init__(self, topic: str, seen_ms: int | None) -> None:
        self._topic = topic
        self._seen_ms = seen_ms
        self.counts: Mapping[CountKey, Count] = {}
        self.latencies: Mapping[int, Latencies] = {}
        self.untracked = self.untracked_bytes = 0
        self.put_aside = DeadLetterCounts()

    def add(self, values: Any, sent_ms: Any) -> None:
        counted = self._counted(values, sent_ms)
        self.counts = added((self.counts, counted.counts))
        self.latencies = latencies_added((self.latencies, counted.latencies))
        self.untracked += counted.untracked
        self.untracked_bytes += counted.untracked_bytes

    def add_dead(self, values: Any, first: tuple[int, int, str] | None = None) -> None:
        if len(values):
            counted = self._counted(values)
            self.put_aside.add(DeadLetterCounts({key: count.count for key, count in counted.counts.items()}, counted.untracked, first))

    def _counted(self, values: Any, sent_ms: Any = None) -> Any:
        from moldau.audit.columns import count_values

        return count_values(self._topic, values, seen_ms=self._seen_ms, sent_ms=sent_ms)


def _counter(job: LoadJob, order: TaskOrder) -> _Counter | _NoCounter:
    return _Counter(job.topic, order.seen_ms) if order.decoding.tracked else _NoCounter()
