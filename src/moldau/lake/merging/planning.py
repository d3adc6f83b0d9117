"""What a merge has to read: the files with rows that versions of the append-only table added since the version that the merged table names.

A compaction, or a column that becomes wider, moves rows into other files; the version says that no row changed, and is passed over. A file
that a compaction has replaced meanwhile is read all the same: it stays on the disk until orphans are removed.

Where that is not possible any more (versions or files were deleted, the manifest keeps 200), the merged table is made again from the newest
version, in one commit like any other: all rows of the append-only table are in there.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from moldau.lake.merging.options import APPENDED_ID, BUCKET, MergeError, MergeOptions, buckets_for, stored_options
from moldau.lake.tables.data_files import DataFile
from moldau.lake.tables.format import Snapshot, TableFormat, VersionsDeletedError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewRows:
    """Where the rows are that the merged table does not have."""

    files: Sequence[DataFile]
    whole: bool
    """Whether they are all rows of the append-only table, and what the merged table has is replaced."""
    topics: frozenset[str]
    """Ids of the topics that they were loaded from; a topic that was deleted and made again has another one."""


def application_id(appended_id: str) -> str:
    """The name under which a merged table keeps the version of the append-only table that it was made from."""
    return f"moldau:merge:{appended_id}"


def all_rows(tables: TableFormat, path: str, source: Snapshot) -> NewRows:
    """All rows of a version."""
    loaded = (name for name in tables.application_ids(path) if name.startswith("moldau:") and source.offset(name))
    parts = (name.split(":")[-2:] for name in loaded if name.count(":") > 2)
    return NewRows(source.files(), whole=True, topics=frozenset(topic for topic, partition in parts if partition.isdecimal()))


def new_rows(tables: TableFormat, path: str, source: Snapshot, named: int | None) -> NewRows:
    """The rows that came since the version `named`; all if that is None. MergeError for a table that does not only append."""
    if named is None:
        return all_rows(tables, path, source)
    if source.version < named:
        raise MergeError(f"{path}: the newest version is {source.version}, and version {named} was merged: the table was set back")
    try:
        changes = list(tables.row_changes(path, named, source.version))
    except VersionsDeletedError as error:
        log.warning("%s; the merged table is made again from version %d", error, source.version)
        return all_rows(tables, path, source)
    for each in changes:
        if each.removes:
            operation = each.metadata.get("operation")
            raise MergeError(
                f"{path}: version {each.version} ({operation}) removed rows: a merged table follows tables that only append; "
                "make it again (remake)"
            )
    topics = frozenset(str(each.metadata["moldau.topic.id"]) for each in changes if each.adds and "moldau.topic.id" in each.metadata)
    return NewRows([file for each in changes for file in each.adds], whole=False, topics=topics)


def check_topics(path: str, options: MergeOptions, topics: frozenset[str]) -> None:
    """MergeError where offsets of two topics would be compared."""
    if options.time is None and len(topics) > 1:
        ids = ", ".join(sorted(topics))
        raise MergeError(
            f"{path}: the rows are of {len(topics)} topics, with ids {ids}: the topic was deleted and made again, and offsets of "
            "two topics have no order; make the merged table in the order of a time (time:COLUMN, for example time:_timestamp)"
        )


def options_for(
    source: Snapshot, path: str, merged: str, target: Snapshot | None, given: MergeOptions | None, *, remake: bool
) -> MergeOptions:
    """By which options to merge the table at `path`: those that the merged table was made by, or the given ones for a new one.

    MergeError for other options than it was made by, for a table that is none, and for an append-only table that was made again.
    """
    if stored_options(path, source.properties) is not None:
        raise MergeError(f"{path}: this is a merged table itself: merges start from append-only tables")
    stored = None if target is None else stored_options(merged, target.properties)
    if target is not None and stored is None and (target.version > 0 or target.partition_columns != (BUCKET,)):
        raise MergeError(f"{merged}: this is a table, and no merged table")
    if given is None and stored is None:
        raise MergeError(f"{merged}: there is no merged table yet: it needs key columns")
    options = given or stored
    if stored is not None and target is not None and not remake:
        known = target.properties.get(APPENDED_ID)
        if known != source.id:
            raise MergeError(
                f"{merged}: made from a table with id {known}, and {path} has id {source.id}: it was made again, or is another table; "
                "make the merged table again (remake)"
            )
        if given is not None:
            _check_same(merged, stored, given)
        options = stored
    assert options is not None
    options.check(path, source.schema)  # stored ones too: a column of the key or the order may have become double since
    return options


def options_of_new(
    keys: Sequence[str], order: str, deletes: str | None, horizon_ms: int, buckets: int | None, source: Snapshot
) -> MergeOptions:
    """The options of a merged table that is made now; the number of buckets by the size of the append-only table. MergeError."""
    size = sum(file.size for file in source.files()) if buckets is None else 0
    try:
        return MergeOptions(tuple(keys), order, deletes, horizon_ms, buckets_for(size) if buckets is None else buckets)
    except ValueError as error:
        raise MergeError(str(error)) from None


def _check_same(merged: str, stored: MergeOptions, given: MergeOptions) -> None:
    """The number of buckets is what it was: it came from the size of the table."""
    for name in ("keys", "order", "deletes", "horizon_ms"):
        was, now = getattr(stored, name), getattr(given, name)
        if was != now:
            raise MergeError(f"{merged}: made with {name} {_shown(was)}, not {_shown(now)}; make it again (remake)")


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
