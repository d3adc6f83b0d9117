"""Tables for their readers: snapshots as Spark DataFrames, up to which time a table is complete, and upkeep.

The property ``completionWatermark`` of a table is a time in UTC (``2013-07-01T10:00:00.000Z``): every event before it that any producer has
sent is in the table or in its dead letters. The audit finds it, `set_watermark` stores it, `wait_until_complete` waits for it.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from moldau.lake.tables.committing import LoadConflictError, LoadFencedError, OtherJobError, set_properties
from moldau.lake.tables.data_files import DataFile
from moldau.lake.tables.file_rows import rows_of
from moldau.lake.tables.format import Snapshot, TableError, TableFormat, TableMismatchError
from moldau.lake.tables.opening import format_of, log_folder, open_table, opened
from moldau.lake.tables.places.addresses import StoreSettings, is_address, joined, place_of
from moldau.lake.tables.rewriting import CompactionResult, compact_table
from moldau.lake.tables.schemas import to_json

COMPLETION_WATERMARK = "completionWatermark"
POLL_S = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IncompleteTableError(TimeoutError):
    """The table was not complete up to the time before the timeout; the message has its watermark, and `watermark`, if it has one."""

    def __init__(self, message: str, watermark: datetime | None) -> None:
        super().__init__(message)
        self.watermark = watermark


def completion_watermark(path: str) -> datetime | None:
    """The time up to which the table is complete; None if there is no table or no watermark. TableError."""
    snapshot = open_table(path)
    text = None if snapshot is None else snapshot.properties.get(COMPLETION_WATERMARK)
    return None if text is None else datetime.fromisoformat(text)


def set_watermark(tables: TableFormat, path: str, watermark_ms: int) -> int | None:
    """Store up to when the table is complete (ms since 1970); the version, or None if that was stored already."""
    moment = _EPOCH + timedelta(milliseconds=watermark_ms)
    text = f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    return set_properties(tables, path, {COMPLETION_WATERMARK: text})


def wait_until_complete(
    path: str,
    until: datetime,
    timeout_s: float,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> datetime:
    """Wait until the table is complete up to `until` (a time zone is needed); the watermark then.

    IncompleteTableError after `timeout_s`; the table need not be there when the wait begins. TableError for a table that cannot be read.
    """
    if until.tzinfo is None:
        raise ValueError(f"{until} has no time zone; with .replace(tzinfo=UTC) it is UTC")
    deadline = monotonic() + timeout_s
    watermark = _WatchedWatermark(path)
    while True:
        begun = monotonic()
        found = watermark.read()
        if found is not None and found >= until:
            return found
        now = monotonic()
        if now >= deadline:
            state = "it has no completion watermark yet" if found is None else f"it is complete up to {found.isoformat()}"
            raise IncompleteTableError(f"{path}: not complete up to {until.isoformat()} after {timeout_s:g} s; {state}", found)
        sleep(min(max(POLL_S, _REST * (now - begun)), deadline - now))


_REST = 4.0
"""Tables of very many files take seconds to open: a wait spends no more than a fifth of its time on that."""
_SETTLED_S = 2.0
"""A folder's time of change is a few milliseconds coarse: what was changed just now may be changed again without a later time."""
_REREAD_S = 30.0


class _WatchedWatermark:
    """The watermark of one table, read again only if its log has changed: a table of very many files takes seconds to open."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: datetime | None = None
        self._changed_ns: int | None = None
        self._is_settled = False
        self._read_s = 0.0

    def read(self) -> datetime | None:
        """The watermark; None if there is no table, or no watermark. TableError."""
        changed_ns, now_s = self._log_changed_ns(), time.time()
        is_stale = abs(now_s - self._read_s) > _REREAD_S
        if is_stale or changed_ns != self._changed_ns or not self._is_settled:
            self._found = completion_watermark(self._path)
            self._changed_ns, self._read_s = changed_ns, now_s
            self._is_settled = changed_ns is not None and abs(now_s - changed_ns / 1e9) > _SETTLED_S
        return self._found

    def _log_changed_ns(self) -> int | None:
        """When a version was last made, or deleted; None if there is no table, or that is not known."""
        folder = log_folder(self._path)
        return None if folder is None else place_of(self._path).changed_ns(folder)


__all__ = [
    "CompactionResult", "IncompleteTableError", "LoadConflictError", "LoadFencedError", "OtherJobError", "Snapshot", "TableError",
    "TableMismatchError", "compact_table", "completion_watermark", "open_table", "read_table", "remove_orphans", "wait_until_complete",
]  # fmt: skip


def read_table(spark: Any, path: str, version: int | None = None) -> Any:
    """A Spark DataFrame over the Parquet files of one snapshot of the table: the newest one, or `version`. TableError.

    The snapshot is fixed when this is called. Files that no commit names are not read, whatever lies in the folder. Of a table in an object
    store Spark's Python tasks read whole files: no column and no filter is pushed down.
    """
    from pyspark.sql.types import StructType

    snapshot = opened(path, version)
    schema = StructType.fromJson(to_json(snapshot.schema))
    if is_address(path):
        return _read_by_tasks(spark, path, snapshot, schema)
    files = [joined(path, file.path) for file in snapshot.files()]
    if not files:
        return spark.createDataFrame([], schema)
    setting = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    threshold = spark.conf.get(setting)
    spark.conf.set(setting, max(len(files), int(threshold)))  # a Spark job that looks at each file costs far more than the looking
    try:
        reader = spark.read.schema(schema).option("basePath", path).option("__globPaths__", "false")  # a [ in a path is a [
        return reader.parquet(*files)
    finally:
        spark.conf.set(setting, threshold)


def _read_by_tasks(spark: Any, path: str, snapshot: Snapshot, schema: Any) -> Any:
    """PySpark brings no reader of object stores: each file is read by a Python task, all of its columns."""
    files = snapshot.files()
    if not files:
        return spark.createDataFrame([], schema)
    names = spark.createDataFrame([(number,) for number in range(len(files))], "number int").repartition(
        min(len(files), _TASKS_MAX), "number"
    )
    read = partial(_rows_of_files, path=path, files=files, columns=snapshot.schema, settings=StoreSettings.of_driver(path))
    return names.mapInArrow(read, schema)


_TASKS_MAX = 200


def _rows_of_files(batches: Iterator[Any], *, path: str, files: list[DataFile], columns: Any, settings: StoreSettings) -> Iterator[Any]:
    settings.follow()
    for batch in batches:
        for number in batch.column("number").to_pylist():
            for rows in rows_of(path, files[number], columns):
                yield from rows.to_batches()


def remove_orphans(path: str, older_than_h: int = 168, *, dry_run: bool = False) -> list[str]:
    """Delete data files (``.parquet``) that no version of the last `older_than_h` hours names and that are as old: what loads left that
    were killed, and what compactions have replaced. Their paths. A reader of an older version may still want the latter: do not choose the
    hours too few. TableError if there is no table.
    """
    tables = format_of(path)
    if tables is None:
        raise TableError(f"{path}: there is no table")
    before_s = time.time() - older_than_h * 3600
    known = tables.named_since(path, before_s)
    place = place_of(path)
    old = [each for each in place.walk() if each.name.endswith(".parquet") and each.name not in known and each.changed_s <= before_s]
    found = sorted(each.name for each in old)
    if not dry_run:
        place.delete(found)
    return found
