"""The tables for those who read them: snapshots as Spark DataFrames, how far they are complete, and their upkeep."""

import contextlib
import os
import time
from typing import Any

from moldau.lake.tables.committing import LoadConflictError, LoadFencedError, OtherJobError
from moldau.lake.tables.compaction import Compacted, compact_table
from moldau.lake.tables.format import Snapshot, TableError, TableMismatchError
from moldau.lake.tables.opening import format_of, open_table, opened
from moldau.lake.tables.schema_json import to_json
from moldau.lake.tables.watermark import IncompleteTableError, completion_watermark, wait_until_complete

__all__ = [
    "Compacted", "IncompleteTableError", "LoadConflictError", "LoadFencedError", "OtherJobError", "Snapshot", "TableError",
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
