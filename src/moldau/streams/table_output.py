"""The output to a table: tasks write Parquet files, and one version of the table has them with the number of the batch.

Under the application id ``moldau-stream:JOB/QUERY:RUN`` stands the number of the last batch that is in the table. A version is made only
from one that does not have the batch's number yet; the version's words have the input offsets and the number of rows. Files whose version
was not made, for a driver that died, are orphans until `remove_orphans`.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.python_tasks import begun_early
from moldau.lake.tables.committing import LoadConflictError, LoadedOffset, TableWriter, commit, discard
from moldau.lake.tables.data_files import DAY, HOUR, PARTITIONINGS, TIME_FIELDS, DataFile, PartitionWriter, files_of
from moldau.lake.tables.format import Snapshot, TableChange, TableError, TableFormat
from moldau.lake.tables.opening import FORMATS, check_place, format_named, open_or_create
from moldau.lake.tables.places.addresses import NO_SETTINGS, StoreSettings
from moldau.lake.tables.rewriting import fit, widen
from moldau.lake.tables.schemas import evolve, storable_schema
from moldau.streams.errors import CheckpointError, StreamError
from moldau.streams.generations import name_in
from moldau.streams.outputs import BatchNumber
from moldau.streams.points import reached

_TIME = "_partition_time"
"""A column beside those of the rows: the time by which a row goes into its day or hour."""
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The beginning of the year 1 and the end of the year 9999: partitions are named by days between them."""
_REPORT = "path string, partition string, size long, rows long, statistics string"
_TRIES = 5
_LOOKED_AT = 10
"""So many versions: a batch that is repeated is in the last one, unless others have written to the table meanwhile."""


def batch_id(batch: BatchNumber) -> str:
    """The application id under which a table has the number of a query's last batch."""
    return f"moldau-stream:{batch.writer}:{batch.run}"


@dataclass(frozen=True, slots=True)
class TableOutput:
    """Rows into a table, partitioned by day or hour of a time."""

    path: str
    name: str
    time: str
    """A column, or a field of one (`window.start`): a row without it, or of no year from 1 to 9999, goes into the day of its batch."""
    partition: str = "day"
    table_format: str = "delta"
    writers: dict[str, TableWriter] = field(default_factory=dict)
    """By query: this process, which takes the table over with its first commit."""
    schemas: dict[str, Any] = field(default_factory=dict)
    """The table's columns by Spark's words for those of rows: Spark takes a while to say of which type the time is."""

    def __post_init__(self) -> None:
        if self.partition not in PARTITIONINGS:
            raise ValueError(f"{self.path}: tables are partitioned by day or by hour, not by {self.partition!r}")
        if self.table_format not in FORMATS:
            raise ValueError(f"{self.path}: tables are {' or '.join(FORMATS)}, not {self.table_format!r}")

    @property
    def place(self) -> str:
        """Where it is."""
        return f"table {self.path}"

    def of_generation(self, number: int) -> "TableOutput":
        """The table of a generation."""
        return self if number == 1 else replace(self, path=name_in(self.path, number), writers={}, schemas={})

    def check(self, frame: Any) -> None:
        """The columns can be stored, and the table, if it exists, takes them."""
        tables = format_named(self.table_format)
        schema = self._schema(frame)
        check_place(self.path)
        snapshot = tables.open(self.path)
        try:
            if snapshot is not None:
                evolve(self.path, snapshot.schema, schema)
        except TableError as error:
            raise StreamError(str(error)) from error

    def write(self, rows: Any, batch: BatchNumber) -> None:
        """Make the version of this batch, unless the table has it."""
        tables = format_named(self.table_format)
        words = rows._jdf.schema().json()
        if words not in self.schemas:
            self.schemas[words] = self._schema(rows)
        base, schema = self._table(tables, self.schemas[words], batch.job)
        name, had = batch_id(batch), base.offset(batch_id(batch))
        if has_batch(tables, self.path, base, batch):
            rows.write.format("noop").mode("append").save()  # the state of the query has to be brought to the end of the batch all the same
            return
        load = uuid.uuid4().hex
        try:
            files = self._write_files(rows, schema, load, batch)
            reached("files written")
            change = TableChange(
                "STREAM",
                files,
                schema=None if schema == base.schema else schema,
                offsets={name: batch.number},
                metadata={
                    "moldau.job": batch.writer,
                    "moldau.run": batch.run,
                    "moldau.batch": batch.number,
                    "moldau.batch.time": batch.planned.time_ms,
                    "moldau.rows": sum(file.rows for file in files),
                    "moldau.watermark": batch.planned.watermark_ms,
                    "moldau.input": batch.planned.ends,
                },
            )
            writer = self.writers.setdefault(batch.writer, TableWriter(batch.writer))
            commit(tables, self.path, change, base=base, before=[LoadedOffset(name, had)], writer=writer)
        except BaseException as error:
            discard(tables, self.path, files_of(self.path, batch.job, load), error)
            raise
        reached("table committed")

    def _schema(self, frame: Any) -> Any:
        """The table's columns for these rows. StreamError."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions
        from pyspark.sql.pandas.types import to_arrow_schema

        taken = {DAY, HOUR, _TIME}
        for name in frame.columns:
            if name.lower() in taken:
                raise StreamError(f"{self.path}: {name} is a column of every table; rename the one of the rows")
        try:
            kind = frame.select(functions.expr(self.time)).schema[0].dataType.simpleString()
        except PySparkException as error:
            raise StreamError(f"{self.path}: there is no column {self.time} to partition by; name one with time=") from error
        if kind not in ("timestamp", "timestamp_ntz", "date"):
            raise StreamError(f"{self.path}: rows are partitioned by a timestamp or a date; {self.time} is {kind}")
        try:
            return pa.schema([*storable_schema(to_arrow_schema(frame.schema, timezone="UTC")), *TIME_FIELDS])
        except (ValueError, PySparkException) as error:
            raise StreamError(f"{self.path}: {error}") from error

    def _table(self, tables: TableFormat, wanted: Any, job: str) -> tuple[Snapshot, Any]:
        """The table, made if it is missing, and its columns after this batch."""
        for _ in range(_TRIES):
            base = open_or_create(tables, self.path, wanted, PARTITIONINGS[self.partition], f"rows of the stream job {job}")
            evolution = evolve(self.path, base.schema, wanted)
            if not evolution.widened:
                return base, evolution.schema
            try:
                widen(tables, self.path, base, evolution)
            except LoadConflictError:
                continue
        raise LoadConflictError(f"{self.path}: others were faster {_TRIES} times in a row while columns were made wider")

    def _write_files(self, rows: Any, schema: Any, load: str, batch: BatchNumber) -> list[DataFile]:
        from pyspark.sql import functions

        by = PARTITIONINGS[self.partition]
        columns = pa.schema([each for each in schema if each.name not in by and each.name != HOUR])
        time = functions.unix_millis(functions.expr(self.time).cast("timestamp"))
        run = partial(
            write_rows,
            directory=self.path,
            prefix=batch.job,
            by=self.partition,
            load=load,
            columns=columns,
            none_ms=batch.planned.time_ms,
            settings=StoreSettings.of_driver(self.path),
        )
        reports = rows.withColumn(_TIME, time).mapInArrow(begun_early(run), _REPORT).collect()
        return [DataFile(each.path, json.loads(each.partition), each.size, each.rows, each.statistics) for each in reports]


def has_batch(tables: TableFormat, path: str, base: Snapshot, batch: BatchNumber) -> bool:
    """Whether a table has a batch already. CheckpointError if it has another one under the number: the checkpoint is an older copy."""
    had = base.offset(batch_id(batch))
    if had is None or had < batch.number:
        return False
    problem = f"batch {had} is its newest"
    if had == batch.number:
        read = _input_of(tables, path, base, batch)
        if read is None or read == batch.planned.ends:
            return True
        problem = f"it was read up to {json.dumps(read)}, and the checkpoint has it up to {json.dumps(batch.planned.ends)}"
    raise CheckpointError(
        f"{path}: the table has batch {batch.number} of {batch.writer} already, and {problem}: the checkpoint of id {batch.run} is "
        f"an older copy. Bring the newest one back; or run with --fresh, which begins again and writes to the outputs again what they have"
    )


def _input_of(tables: TableFormat, path: str, base: Snapshot, batch: BatchNumber) -> Any:
    """The offsets up to which the table's batch of this number was read, if one of the newest versions has them."""
    return next(
        (
            each.metadata.get("moldau.input")
            for each in tables.commits(path, base.version - _LOOKED_AT)
            if (each.metadata.get("moldau.run"), each.metadata.get("moldau.batch")) == (batch.run, batch.number)
        ),
        None,
    )


def write_rows(
    batches: Iterator[Any],
    *,
    directory: str,
    prefix: str,
    by: str,
    load: str,
    columns: Any,
    none_ms: int,
    settings: StoreSettings = NO_SETTINGS,
) -> Iterator[Any]:
    """What Spark calls in a task: the rows go into files, and what comes out are the files. A row without a time has `none_ms`.

    FileError; a task that fails leaves no files.
    """
    settings.follow()
    writer = PartitionWriter(directory, prefix, by, load)
    try:
        for batch in batches:
            times = partition_times(batch.column(_TIME), none_ms)
            writer.add(fit(pa.Table.from_batches([batch.drop_columns([_TIME])]), columns), times)
        files = writer.finish()
    except BaseException:
        writer.discard()
        raise
    if files:
        yield pa.record_batch(
            {
                "path": pa.array([file.path for file in files]),
                "partition": pa.array([json.dumps(dict(file.partition)) for file in files]),
                "size": pa.array([file.size for file in files], pa.int64()),
                "rows": pa.array([file.rows for file in files], pa.int64()),
                "statistics": pa.array([file.statistics for file in files]),
            }
        )


def partition_times(column: Any, none_ms: int) -> Any:
    """The times by which rows go into partitions. One that is missing, or outside the years 1 to 9999, is `none_ms`."""
    times = pc.fill_null(column, none_ms).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where((times >= _FIRST_MS) & (times <= _LAST_MS), times, none_ms)
