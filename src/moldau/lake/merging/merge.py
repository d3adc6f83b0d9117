"""A merge: what versions of an append-only table have added, into the table beside it that has one row for each key, once.

The merged table is divided into buckets by a hash of the key, each one file. A merge reads the new rows, divides them by bucket, and writes
the buckets again whose rows change, one after the other: memory is that of a bucket. One commit replaces their files and names the version
of the append-only table that is merged then, under the id of that table; it is refused if another merge has made a version meanwhile. So
a merge that dies has changed nothing, the next one starts from the same version, and of two at once one looks again.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from moldau.lake.merging.bucket_rows import BucketRows
from moldau.lake.merging.keys import bucket_numbers
from moldau.lake.merging.options import (
    BUCKET,
    DELETED,
    HORIZON_MS,
    LOG,
    NEWEST,
    TOPICS,
    MergeError,
    MergeOptions,
    column_of,
    stored_options,
)
from moldau.lake.merging.planning import NewRows, all_rows, application_id, check_topics, new_rows, options_for, options_of_new
from moldau.lake.merging.replaced_files import EVERY_VERSIONS, KEPT, mark_replaced, remove_replaced
from moldau.lake.merging.resolution import Resolver, newest_of
from moldau.lake.points import reached
from moldau.lake.table import COMPLETION_WATERMARK
from moldau.lake.tables.committing import LoadConflictError, LoadedOffset, commit, discard
from moldau.lake.tables.data_files import DataFile, ParquetFileWriter, sync_files
from moldau.lake.tables.file_rows import MissingFileError, rows_of
from moldau.lake.tables.format import Snapshot, TableChange, TableError, TableFormat
from moldau.lake.tables.opening import check_place, format_named, format_of, open_or_create
from moldau.lake.tables.places.addresses import one_in_the_other
from moldau.lake.tables.rewriting import fit
from moldau.lake.tables.schemas import evolve
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)

TRIES = 20
IDLE_VERSIONS_MAX = 20
"""So many versions of the append-only table without new rows are passed over without a version of the merged table."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge did."""

    version: int
    """Of the merged table, whether or not it changed."""
    appended_version: int
    """The version of the append-only table whose rows are merged."""
    rows_read: int
    """New rows of the append-only table."""
    rows_without_key: int
    """Of these, rows with null in a key column, which are left out."""
    rows: int
    """Of the merged table."""
    buckets: int
    """That were written."""
    bytes: int
    changed: bool
    """Whether a version was made."""
    whole: bool
    """Whether the table was made, or made again, from all rows."""
    seconds: float


def merge_table(
    appended: str,
    merged: str,
    *,
    keys: Sequence[str] = (),
    order: str = LOG,
    deletes: str | None = None,
    horizon: timedelta | None = None,
    buckets: int | None = None,
    table_format: str | None = None,
    remake: bool = False,
    keep: timedelta = KEPT,
    clock: Callable[[], int] = now_ms,
) -> MergeResult:
    """Bring the merged table at `merged` forward to the newest version of the append-only table at `appended`; it is made if it is missing.

    `keys` are its key columns; without them the options are those that it was made by. `order` is ``log`` or ``time:COLUMN``, `deletes` is
    ``tombstones``, ``COLUMN``, ``COLUMN=VALUE,VALUE`` or ``COLUMN is [not] null``. `remake` makes it again from all rows, with the options
    that are given. `keep` is how long files stay on the disk that merges have replaced.

    MergeError for options that do not fit the tables; TableError, FileError; LoadConflictError if others were faster again and again. A
    commit is atomic, also when one of these is raised.
    """
    begun = time.monotonic()
    _check_places(appended, merged)
    for _ in range(TRIES):
        source_format = format_of(appended)
        if source_format is None:
            raise TableError(f"{appended}: there is no table")
        tables = format_of(merged) or format_named(table_format or source_format.name)
        if table_format not in (None, tables.name):
            raise TableError(f"{merged}: there is a {tables.name} table already, not a {table_format} table")
        target = tables.open(merged)
        source = source_format.open(appended)  # after the target, which otherwise may name a version newer than this one
        if source is None:
            raise TableError(f"{appended}: there is no table")
        stored = None if target is None else stored_options(merged, target.properties)
        horizon_ms = _horizon_ms(horizon, stored)
        given = options_of_new(keys, order, deletes, horizon_ms, buckets, source) if keys else None
        options = options_for(source, appended, merged, target, given, remake=remake)
        if target is None:
            schema = stored_schema(source.schema, options)
            target = open_or_create(tables, merged, schema, (BUCKET,), f"the newest row of each key of {appended}")
            reached("merge: table made")
            if target.version > 0:
                continue  # another merge was faster
        named = None if remake or stored is None else target.offset(application_id(source.id))
        now = clock()
        try:
            done = _merge(source_format, _Merge(appended, merged, tables, source, target, options, now), named, begun)
        except LoadConflictError as error:
            log.info("%s: %s; looking again", merged, error)
            continue
        newest = tables.open(merged) if done.changed and done.version % EVERY_VERSIONS == 0 else None
        if newest is not None:
            remove_replaced(tables, merged, [file.path for file in newest.files()], keep, now / 1000)
        return done
    raise LoadConflictError(f"{merged}: other merges were faster {TRIES} times in a row")


def _merge(source_format: TableFormat, merge: "_Merge", named: int | None, begun: float) -> MergeResult:
    """Of all rows if files of the new ones are no longer there."""
    wanted = new_rows(source_format, merge.appended, merge.source, named)
    try:
        return merge.run(wanted, begun)
    except MissingFileError as error:
        if wanted.whole:
            raise
        log.warning("%s; the merged table is made again from version %d", error, merge.source.version)
    return merge.again().run(all_rows(source_format, merge.appended, merge.source), begun)


def stored_schema(source: Any, options: MergeOptions) -> Any:
    """Columns of the merged table of a table with the columns `source`."""
    marks = [pa.field(DELETED, pa.bool_())] if options.keeps_marks else []
    return pa.schema([*source, *marks, pa.field(BUCKET, pa.int32())])


class _Merge:
    """One try: from one version of each of the two tables."""

    def __init__(
        self, appended: str, merged: str, tables: TableFormat, source: Snapshot, target: Snapshot, options: MergeOptions, now: int
    ) -> None:
        self.appended, self._merged, self._tables = appended, merged, tables
        self.source, self._target, self._options, self._now = source, target, options, now
        self._id = application_id(source.id)
        self._read = self._without_key = 0
        self._newest: int | None = None
        self._topics: frozenset[str] = frozenset()
        self._written: list[DataFile] = []

    def again(self) -> "_Merge":
        """Another try from the same versions."""
        return _Merge(self.appended, self._merged, self._tables, self.source, self._target, self._options, self._now)

    def run(self, new: NewRows, begun: float) -> MergeResult:
        """Read, write, commit."""
        known = "" if new.whole else self._target.properties.get(TOPICS, "")
        self._topics = new.topics | frozenset(known.split())
        check_topics(self.appended, self._options, self._topics)
        wanted = stored_schema(self.source.schema, self._options)
        evolution = None if new.whole else evolve(self._merged, self._target.schema, wanted)
        schema = wanted if evolution is None else evolution.schema
        rewrite_all = new.whole or bool(evolution and evolution.widened)
        old: dict[int, list[DataFile]] = {}
        for file in self._target.files():
            old.setdefault(int(file.partition[BUCKET] or 0), []).append(file)
        reached("merge: planned")
        try:
            removed, buckets = self._write(new, schema, old, rewrite_all=rewrite_all)
            version = self._commit(new, schema, removed)
        except Exception as error:
            discard(self._tables, self._merged, [file.path for file in self._written], error)
            raise
        gone = {file.path for file in removed}
        kept = [file for files in old.values() for file in files if file.path not in gone]
        return MergeResult(
            version=self._target.version if version is None else version,
            appended_version=self.source.version,
            rows_read=self._read,
            rows_without_key=self._without_key,
            rows=sum(file.rows for file in (*kept, *self._written)),
            buckets=buckets,
            bytes=sum(file.size for file in self._written),
            changed=version is not None,
            whole=new.whole,
            seconds=time.monotonic() - begun,
        )

    def _write(self, new: NewRows, schema: Any, old: dict[int, list[DataFile]], *, rewrite_all: bool) -> tuple[list[DataFile], int]:
        """The files that the new ones replace, and how many buckets were written. The new ones are on disk then."""
        columns = pa.schema([each for each in schema if each.name not in (BUCKET, DELETED)])
        marked = columns.append(pa.field(DELETED, pa.bool_()))
        before = None if new.whole else _number(self._target.properties.get(NEWEST))
        self._newest = before
        removed: list[DataFile] = []
        buckets = 0
        with BucketRows(self._merged, marked) as rows:
            self._collect(new, columns, rows)
            touched = rows.finish()
            reached("merge: rows read")
            resolver = Resolver(self.appended, self._options, before, self._newest)
            for bucket in sorted({*touched, *old}) if rewrite_all else touched:
                files = old.get(bucket, [])
                there = [] if new.whole else [self._stored(file, columns, marked) for file in files]
                stored = resolver.stored_if_changed(pa.concat_tables(there) if there else marked.empty_table(), rows.of(bucket))
                if stored is None and rewrite_all:
                    stored = resolver.stored(pa.concat_tables(there) if there else marked.empty_table())
                if stored is None:
                    continue
                removed += files
                self._write_bucket(bucket, stored, schema)
                buckets += 1
                reached("merge: bucket written")
        if self._written:
            sync_files(self._merged, [file.path for file in self._written])
            reached("merge: files written")
        return removed, buckets

    def _collect(self, new: NewRows, columns: Any, rows: BucketRows) -> None:
        """The new rows, by bucket."""
        resolver, time_column = Resolver(self.appended, self._options), self._options.time
        for file in new.files:
            for batch in rows_of(self.appended, file, columns):
                self._read += batch.num_rows
                if time_column is not None and self._options.keeps_marks:
                    newest = newest_of(column_of(batch, time_column), self._now)
                    self._newest = newest if self._newest is None else max(self._newest, self._newest if newest is None else newest)
                batch = resolver.marked(batch)
                numbers = bucket_numbers(batch, self._options.keys, self._options.buckets)
                complete = numbers >= 0
                if not complete.all():
                    self._without_key += int((~complete).sum())
                    batch, numbers = batch.filter(pa.array(complete)), numbers[complete]
                rows.add(batch, numbers)
        if self._without_key:
            log.warning("%s: %d new rows have null in a key column, and are left out", self.appended, self._without_key)

    def _stored(self, file: DataFile, columns: Any, marked: Any) -> Any:
        """The rows of a file of the merged table, each with its mark."""
        wanted = marked if self._options.keeps_marks else columns
        rows = pa.concat_tables([wanted.empty_table(), *rows_of(self._merged, replace(file, partition={}), wanted)])
        if self._options.keeps_marks:
            return rows
        return rows.append_column(marked.field(DELETED), pa.repeat(pa.scalar(False), rows.num_rows))

    def _write_bucket(self, bucket: int, rows: Any, schema: Any) -> None:
        """One file, or none for a bucket without rows."""
        if rows.num_rows == 0:
            return
        inside = pa.schema([each for each in schema if each.name != BUCKET])
        file = ParquetFileWriter(self._merged, "merged-", {BUCKET: str(bucket)}, inside)
        try:
            file.write(fit(rows, inside))
            self._written.append(file.close())
        except BaseException:
            file.discard()
            raise

    def _commit(self, new: NewRows, schema: Any, removed: Iterable[DataFile]) -> int | None:
        """The version; None where none is needed."""
        named = self._target.offset(self._id)
        old = dict(self._target.properties)
        properties = {**old, **self._options.properties(self.source.id)}
        if new.whole:
            properties = {name: value for name, value in properties.items() if name not in (NEWEST, TOPICS)}
        if self._topics:
            properties[TOPICS] = " ".join(sorted(self._topics))
        if self._newest is not None:
            properties[NEWEST] = str(self._newest)
        if COMPLETION_WATERMARK in self.source.properties:
            properties[COMPLETION_WATERMARK] = self.source.properties[COMPLETION_WATERMARK]
        removes = list(removed)
        same = not removes and not self._written and schema == self._target.schema and properties == old
        if same and named is not None and self.source.version - named < IDLE_VERSIONS_MAX:
            return None
        change = TableChange(
            "MERGE",
            self._written,
            removes,
            None if schema == self._target.schema else schema,
            None if properties == old else properties,
            {self._id: self.source.version},
            {
                "moldau.merge.from": self.appended,
                "moldau.merge.versions": [named, self.source.version],
                "moldau.rows": self._read,
                "moldau.rows.without.key": self._without_key,
            },
        )
        mark_replaced(self._merged, removes)
        before = [LoadedOffset(self._id, named)]
        version = commit(self._tables, self._merged, change, base=self._target, before=before, only_on_base=True)
        reached("merge: committed")
        return version


def _check_places(appended: str, merged: str) -> None:
    check_place(merged)
    if one_in_the_other(appended, merged):
        raise MergeError(f"{merged}: the merged table is a table of its own: neither may lie in the other, as with {appended}")


def _horizon_ms(given: timedelta | None, stored: MergeOptions | None) -> int:
    if given is not None:
        return given // timedelta(milliseconds=1)
    return HORIZON_MS if stored is None else stored.horizon_ms


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
