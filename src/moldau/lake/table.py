"""Delta tables as the loads use them: rows and the offsets they came from, in one commit.

How far a topic has been loaded stands in the table's own log, as Delta's application transactions: one for each partition, its id
``moldau:JOB:TOPIC_ID:PARTITION``, its version the next offset to load. Data files and versions become visible with one commit, or neither.
Two loads that start from the same offsets cannot both commit: the second finds a version that it did not start from, and fails.
"""

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from moldau.lake.data_files import DAY, DataFile

COMMIT_TRIES = 20
_UNFIT = frozenset("%?#\\")
LOAD_ID = "moldau.load"
"""Key of the load's own id in the metadata of its commit."""


class LoadConflictError(RuntimeError):
    """Another load of the same job has committed meanwhile; this one has changed nothing."""


class TableMismatchError(RuntimeError):
    """The table is there with other columns."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one partition has been loaded: its application id, and the next offset; None before the first load."""

    application_id: str
    offset: int | None


def application_id(job: str, topic_id: str, partition: int) -> str:
    """Name under which a table keeps the offset of one partition. A topic that is made anew has a new id, and starts anew."""
    return f"moldau:{job}:{topic_id}:{partition}"


def uri_of(path: str) -> str:
    """The path of a directory as deltalake takes it. ValueError for a character that deltalake 1.6 takes for something else even so."""
    absolute = Path(path).absolute()
    unfit = sorted(_UNFIT & set(str(absolute)))
    if unfit:
        raise ValueError(f"{absolute}: there can be no Delta table at a path with {' '.join(unfit)}")
    return absolute.as_uri()


def open_table(path: str) -> DeltaTable | None:
    """The newest snapshot, or None if there is no table."""
    try:
        return DeltaTable(uri_of(path))
    except TableNotFoundError:
        return None


def open_or_create(path: str, schema: Any, description: str) -> DeltaTable:
    """The newest snapshot of a table with exactly the columns of the Arrow `schema`, the partition column `DAY` among them."""
    table = open_table(path)
    if table is None:
        try:
            create_table_with_add_actions(uri_of(path), Schema.from_arrow(schema), [], partition_by=[DAY], description=description)
        except DeltaError:
            table = open_table(path)  # someone else was faster
            if table is None:
                raise
        table = DeltaTable(uri_of(path))
    there, wanted = _columns(table.schema()), _columns(Schema.from_arrow(schema))
    if there != wanted:
        differing = sorted(name for name in {*there, *wanted} if there.get(name) != wanted.get(name))
        in_table, in_load = (columns.get(differing[0], "missing") for columns in (there, wanted))
        raise TableMismatchError(f"{path}: column {differing[0]} is {in_table} in the table and {in_load} in the load")
    return table


def _columns(schema: Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema.fields}


def progress(table: DeltaTable | None, application_ids: Sequence[str]) -> list[Progress]:
    """What the snapshot says of each partition."""
    return [Progress(name, None if table is None else table.transaction_version(name)) for name in application_ids]


def commit(path: str, files: Sequence[DataFile], before: Sequence[Progress], after: Mapping[str, int], metadata: Mapping[str, Any]) -> int:
    """Add the files and move the offsets, both or neither; the version of the table that did it.

    `before` is what the load started from, `after` the new offset by application id. A commit that collides with one of somebody else
    (another job, a compaction) is tried again; if that one has moved an offset of ours, LoadConflictError. An error after which it is not
    known whether the commit happened is settled by looking for the load's own id.
    """
    load_id = uuid.uuid4().hex
    properties = CommitProperties(
        custom_metadata={**metadata, LOAD_ID: load_id},
        app_transactions=[Transaction(name, offset) for name, offset in sorted(after.items())],
        max_commit_retries=0,
    )
    now_ms = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = []
    actions += [AddAction(file.path, file.size, {DAY: file.day}, now_ms, True, file.statistics) for file in files]
    for tries_left in reversed(range(COMMIT_TRIES)):
        table = DeltaTable(uri_of(path))
        _check_unmoved(path, table, before)
        failure = None
        try:
            table.create_write_transaction(actions, "append", table.schema(), [DAY], commit_properties=properties)
        except DeltaError as error:
            failure = error
        committed = _version_of(DeltaTable(uri_of(path)), load_id)
        if committed is not None:
            return committed
        assert failure is not None, f"{path}: a commit that was made cannot be found"
        if not tries_left or not isinstance(failure, CommitFailedError):
            raise failure
    raise AssertionError("unreachable")


def _check_unmoved(path: str, table: DeltaTable, before: Sequence[Progress]) -> None:
    for known, now in zip(before, progress(table, [p.application_id for p in before]), strict=True):
        if known.offset != now.offset:
            raise LoadConflictError(
                f"{path}: another load has moved {known.application_id} from offset {known.offset}, where this one started, to {now.offset}"
            )


def _version_of(table: DeltaTable, load_id: str) -> int | None:
    for entry in table.history(COMMIT_TRIES):
        if entry.get(LOAD_ID) == load_id:
            return int(entry["version"])
    return None


def read_table(spark: Any, path: str, version: int | None = None) -> Any:
    """A Spark DataFrame over the Parquet files of one snapshot of the table: the newest one, or `version`.

    The snapshot is fixed when this is called. Files that no commit names are not read, whatever lies in the folder.
    """
    import json

    from pyspark.sql.types import StructType

    table = DeltaTable(uri_of(path), version=version)
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = [os.path.join(path, name) for name in table.get_add_actions(flatten=True)["path"].to_pylist()]
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
    """Delete data files that no snapshot names and that are older than `older_than_h` hours: what loads left that died. Their paths."""
    return DeltaTable(uri_of(path)).vacuum(older_than_h, dry_run=dry_run, enforce_retention_duration=older_than_h >= 168, full=True)
