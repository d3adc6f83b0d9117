"""Data files rewritten with the same rows: with wider types, or several into one (compaction).

Delta has a feature by which files keep their narrow numbers, but few readers know it. A schema seldom changes this way, and a table of one
type for each column can be read by all.

Each commit of a load leaves a file in every table partition that it has rows for. A version of a compaction removes the small files of some
days or hours that are over and adds their rows as one file each; offsets stay as they are. Loads continue meanwhile: they only add, so the
two do not conflict; of two compactions at once the second gives its part up. The old files stay on disk for readers of older versions,
until `remove_orphans`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from moldau.lake.points import reached
from moldau.lake.tables.committing import LoadConflictError, commit, discard
from moldau.lake.tables.data_files import DAY, HOUR, DataFile, FileError, ParquetFileWriter, sync_files
from moldau.lake.tables.format import Snapshot, TableChange, TableError, TableFormat
from moldau.lake.tables.opening import format_of
from moldau.lake.tables.places.addresses import place_of
from moldau.lake.tables.schemas import SchemaEvolution


def fit(table: Any, schema: Any) -> Any:
    """The rows with exactly the columns of `schema`. pa.ArrowInvalid for a value that does not fit; columns beyond it are left out."""
    count = table.num_rows
    columns = [
        _fit(table.column(each.name), each.type) if each.name in table.column_names else pa.nulls(count, each.type) for each in schema
    ]
    return pa.table(columns, schema=schema)


def _fit(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_fit(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_dictionary(column.type):
        return _fit(column.dictionary_decode(), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        there = {each.name: number for number, each in enumerate(column.type)}
        fields = [
            _fit(pc.struct_field(column, [there[each.name]]), each.type) if each.name in there else pa.nulls(len(column), each.type)
            for each in kind
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        values = _fit(column.flatten(), kind.value_type)
        return _with_offsets(pa.ListArray, column, (values,), kind)
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        start, stop = _bounds(column)
        keys, items = column.keys.slice(start, stop - start), column.items.slice(start, stop - start)
        return _with_offsets(pa.MapArray, column, (_fit(keys, kind.key_type), _fit(items, kind.item_type)), kind)
    return column.cast(kind, safe=not pa.types.is_timestamp(kind))  # what is finer than a microsecond is cut


def _bounds(column: Any) -> tuple[int, int]:
    """Where the entries of a map array begin and end in its children."""
    if len(column) == 0:
        return 0, 0
    offsets = column.offsets
    return offsets[0].as_py(), offsets[len(column)].as_py()


def _with_offsets(maker: Any, column: Any, children: tuple[Any, ...], kind: Any) -> Any:
    """The same lists (or maps) over other children, which begin where the first list does."""
    lengths = pc.fill_null(pc.list_value_length(column) if maker is pa.ListArray else _map_lengths(column), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    mask = column.is_null() if column.null_count else None
    if maker is pa.ListArray:
        return pa.ListArray.from_arrays(offsets, children[0], type=kind, mask=mask)
    return pa.MapArray.from_arrays(offsets, *children, type=kind, mask=mask)


def _map_lengths(column: Any) -> Any:
    offsets = column.offsets
    lengths = pc.subtract(offsets.slice(1, len(column)), offsets.slice(0, len(column)))
    return pc.if_else(column.is_valid(), lengths, 0)


ROWS_AT_ONCE = 100_000
"""Rows of a row group, about: a thousand files of three rows become one row group, not a thousand."""


def rewrite(directory: str, files: Sequence[DataFile], schema: Any, prefix: str) -> DataFile:
    """One new file with the rows of `files`, which are of one table partition, in the columns of `schema`; on disk. FileError."""
    assert files
    partition = dict(files[0].partition)
    columns = pa.schema([each for each in schema if each.name not in partition])
    new = ParquetFileWriter(directory, f"{prefix}-", partition, columns)
    try:
        for rows in _row_groups(directory, files, columns):
            new.write(rows)
        written = new.close()
        sync_files(directory, [written.path])
    except BaseException:
        new.discard()
        raise
    return written


def _row_groups(directory: str, files: Sequence[DataFile], columns: Any) -> Iterator[Any]:
    pending: list[Any] = []
    count = 0
    for each in files:
        with pq.ParquetFile(place_of(directory).source(each.path)) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                pending.append(fit(pa.Table.from_batches([batch]), columns))
                count += batch.num_rows
                if count >= ROWS_AT_ONCE:
                    yield pa.concat_tables(pending).combine_chunks()
                    pending, count = [], 0
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def widen(tables: TableFormat, path: str, snapshot: Snapshot, evolution: SchemaEvolution) -> int:
    """Commit the new columns and the same rows in them; the version. LoadConflictError if another writer has committed meanwhile."""
    files = snapshot.files()
    wider: list[DataFile] = []
    try:
        wider.extend(rewrite(path, [each], evolution.schema, "widened") for each in files)
        metadata = {"moldau.widened": list(evolution.widened)}
        change = TableChange("WIDEN COLUMNS", wider, files, evolution.schema, metadata=metadata, rows_change=False)
        return commit(tables, path, change, base=snapshot, only_on_base=True)
    except (TableError, FileError, OSError) as error:
        discard(tables, path, [file.path for file in wider], error)
        raise


FILE_BYTES_TARGET = 128 << 20
PARTITIONS_PER_COMMIT = 50
LATENESS = timedelta(hours=1)
"""A day or an hour is closed when it has been over for so long."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did."""

    partitions: int
    files_before: int
    files_after: int
    version: int | None
    """The last version that it made."""


def compact_table(
    path: str, *, now: datetime | None = None, files_min: int = 2, file_bytes_target: int = FILE_BYTES_TARGET
) -> CompactionResult:
    """Put together the files of closed days or hours that have at least `files_min` small ones (below half of `file_bytes_target`).

    TableError if there is no table; FileError from the disk: what was committed before stays.
    """
    tables = format_of(path)
    snapshot = None if tables is None else tables.open(path)
    if tables is None or snapshot is None:
        raise TableError(f"{path}: there is no table")
    closed_before = (now or datetime.now(UTC)) - LATENESS
    groups = list(small_file_groups(snapshot.files(), closed_before, files_min, file_bytes_target))
    partitions = before = after = 0
    version: int | None = None
    for begin in range(0, len(groups), PARTITIONS_PER_COMMIT):
        some = groups[begin : begin + PARTITIONS_PER_COMMIT]
        try:
            version = _commit(tables, path, snapshot, some)
        except LoadConflictError:
            continue  # another compaction does it
        partitions += len({tuple(group[0].partition.items()) for group in some})
        before += sum(len(group) for group in some)
        after += len(some)
    return CompactionResult(partitions, before, after, version)


def _commit(tables: TableFormat, path: str, snapshot: Snapshot, groups: Sequence[Sequence[DataFile]]) -> int:
    new: list[DataFile] = []
    try:
        new.extend(rewrite(path, group, snapshot.schema, "compacted") for group in groups)
        reached("compaction: files written")
        old = [file for group in groups for file in group]
        version = commit(tables, path, TableChange("OPTIMIZE", new, old, rows_change=False), base=snapshot)
    except (TableError, FileError, OSError) as error:
        discard(tables, path, [file.path for file in new], error)
        raise
    reached("compaction: committed")
    return version


def small_file_groups(all_files: Iterable[DataFile], closed_before: datetime, files_min: int, target: int) -> Iterator[list[DataFile]]:
    """Files below half of `target` that become one, each group of one table partition that is over and has `files_min` of them."""
    by_partition: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = defaultdict(list)
    for file in all_files:
        if file.size < target // 2:
            by_partition[tuple(sorted(file.partition.items()))].append(file)
    for key, files in sorted(by_partition.items(), key=lambda item: str(item[0])):
        if len(files) < files_min or _end(dict(key)) > closed_before:
            continue
        group: list[DataFile] = []
        size = 0
        for file in sorted(files, key=lambda each: each.path):
            if group and size + file.size > target:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.size
        if len(group) > 1:
            yield group


def _end(partition: dict[str, str | None]) -> datetime:
    """When the day or the hour is over."""
    day, hour = partition.get(DAY), partition.get(HOUR)
    if day is None:
        return datetime.max.replace(tzinfo=UTC)
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC)
    try:
        return begin + (timedelta(days=1) if hour is None else timedelta(hours=int(hour) + 1))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
