"""Tables for their readers: snapshots as Spark DataFrames, up to which time a table is complete, and upkeep.

The property ``completionWatermark`` of a table is a time in UTC (``2013-07-01T10:00:00.000Z``): every event before it that any producer has
sent is in the table or in its dead letters. The audit finds it, `set_watermark` stores it, `wait_until_complete` waits for it.
"""

import contextlib
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from moldau.lake.tables.committing import LoadConflictError, LoadFencedError, OtherJobError, set_properties
from moldau.lake.tables.format import Snapshot, TableError, TableFormat, TableMismatchError
from moldau.lake.tables.opening import format_of, open_table, opened
from moldau.lake.tables.rewriting import CompactionResult, compact_table
from moldau.lake.tables.schemas import to_json

COMPLETION_WATERMARK = "completionWatermark"
POLL_S = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IncompleteTableError(TimeoutError):
    """The table was not complete up to the time before the timeout; the message has its watermark."""


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

    IncompleteTableError after `timeout_s`; the table need not be there when the wait begins.
    """
    if until.tzinfo is None:
        raise ValueError(f"{until} has no time zone; with .replace(tzinfo=UTC) it is UTC")
    deadline = monotonic() + timeout_s
    while True:
        found = completion_watermark(path)
        if found is not None and found >= until:
            return found
        left = deadline - monotonic()
        if left <= 0:
            state = "it has no completion watermark yet" if found is None else f"it is complete up to {found.isoformat()}"
            raise IncompleteTableError(f"{path}: not complete up to {until.isoformat()} after {timeout_s:g} s; {state}")
        sleep(min(POLL_S, left))


__all__ = [
    "CompactionResult", "IncompleteTableError", "LoadConflictError", "LoadFencedError", "OtherJobError", "Snapshot", "TableError",
    "TableMismatchError", "compact_table", "completion_watermark", "open_table", "read_table", "remove_orphans", "wait_until_complete",
]  # fmt: skip


def read_table(spark: Any, path: str, version: int | None = None) -> Any:
    """A Spark DataFrame over the Parquet files of one snapshot of the table: the newest one, or `version`. TableError.

    The snapshot is fixed when this is called. Files that no commit names are not read, whatever lies in the folder.
    """
    from pyspark.sql.types import StructType

    snapshot = opened(path, version)
    schema = StructType.fromJson(to_json(snapshot.schema))
    files = [os.path.join(path, file.path) for file in snapshot.files()]
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


def remove_orphans(path: str, older_than_h: int = 168, *, dry_run: bool = False) -> list[str]:
    """Delete data files that no version of the last `older_than_h` hours names and that are as old: what loads left that were killed, and
    what compactions have replaced. Their paths. A reader of an older version may still want the latter: do not choose the hours too few.

    In the folder of a Delta table nothing else may lie: deltalake deletes whatever the table does not name, but for names with ``_`` first.
    """
    tables = format_of(path)
    if tables is not None and tables.name == "delta":
        from deltalake import DeltaTable

        from moldau.lake.tables.delta import uri_of

        return DeltaTable(uri_of(path)).vacuum(older_than_h, dry_run=dry_run, enforce_retention_duration=older_than_h >= 168, full=True)
    known = _named_since(path, time.time() - older_than_h * 3600)
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = [each for each in folders if not each.startswith("_")]
        for name in names:
            file = os.path.relpath(os.path.join(folder, name), path)
            if name.endswith(".parquet") and file not in known and _age_s(path, file) >= older_than_h * 3600:
                found.append(file)
    if not dry_run:
        for file in found:
            os.unlink(os.path.join(path, file))
    return sorted(found)


def _named_since(path: str, since_s: float) -> set[str]:
    """The files that a version names which was the newest at that time or later, as far as the manifests are still there."""
    newest = opened(path)
    known = {file.path for file in newest.files()}
    tables = format_of(path)
    assert tables is not None
    for version in tables.commits(path, 0):
        replaced = version.version - 1
        if version.metadata.get("timestamp", 0) >= since_s * 1000:
            with contextlib.suppress(TableError):  # it was deleted meanwhile
                known |= {file.path for file in opened(path, replaced).files()}
    return known


def _age_s(path: str, file: str) -> float:
    return time.time() - os.stat(os.path.join(path, file)).st_mtime
