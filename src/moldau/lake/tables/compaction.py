"""Small files of days or hours that are over, put together: fewer files to open, the same rows, offsets untouched.

Each commit of a load leaves a file in every table partition that it has rows for. A version of a compaction removes the small files of some
partitions and adds their rows as one file each. Loads go on meanwhile: they only add, so neither is in the other's way; of two
compactions at once the second gives its part up. The old files stay on disk for readers of older versions, until `remove_orphans`.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from moldau.lake.points import reached
from moldau.lake.tables.committing import LoadConflictError, commit, discard
from moldau.lake.tables.data_files import DAY, HOUR, DataFile, FileError
from moldau.lake.tables.format import Change, Snapshot, TableError, TableFormat
from moldau.lake.tables.opening import format_of
from moldau.lake.tables.rewriting import rewrite

FILE_BYTES_TARGET = 128 << 20
PARTITIONS_PER_COMMIT = 50
LATENESS = timedelta(hours=1)
"""A day or an hour is closed when it has been over for so long."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    partitions: int
    files_before: int
    files_after: int
    version: int | None
    """The last version that it made."""


def compact_table(path: str, *, now: datetime | None = None, files_min: int = 2, file_bytes_target: int = FILE_BYTES_TARGET) -> Compacted:
    """Put together the files of closed days or hours that have at least `files_min` small ones (below half of `file_bytes_target`).

    TableError if there is no table; FileError from the disk: what was committed before stays.
    """
    tables = format_of(path)
    snapshot = None if tables is None else tables.open(path)
    if tables is None or snapshot is None:
        raise TableError(f"{path}: there is no table")
    closed_before = (now or datetime.now(UTC)) - LATENESS
    groups = list(_groups(snapshot, closed_before, files_min, file_bytes_target))
    partitions = before = after = 0
    version: int | None = None
    for begin in range(0, len(groups), PARTITIONS_PER_COMMIT):
        some = groups[begin : begin + PARTITIONS_PER_COMMIT]
        try:
            version = _commit(tables, path, snapshot, some)
        except LoadConflictError:
            continue  # somebody else does it
        partitions += len({tuple(group[0].partition.items()) for group in some})
        before += sum(len(group) for group in some)
        after += len(some)
    return Compacted(partitions, before, after, version)


def _commit(tables: TableFormat, path: str, snapshot: Snapshot, groups: Sequence[Sequence[DataFile]]) -> int:
    new: list[DataFile] = []
    try:
        new.extend(rewrite(path, group, snapshot.schema, "compacted") for group in groups)
        reached("compaction: files written")
        old = [file for group in groups for file in group]
        version = commit(tables, path, Change("OPTIMIZE", new, old, rows_change=False), base=snapshot)
    except (TableError, FileError, OSError):
        discard(tables, path, [file.path for file in new])
        raise
    reached("compaction: committed")
    return version


def _groups(snapshot: Snapshot, closed_before: datetime, files_min: int, target: int) -> Iterator[list[DataFile]]:
    """Files that become one, each group of one closed table partition."""
    by_partition: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = defaultdict(list)
    for file in snapshot.files():
        if file.size < target // 2:
            by_partition[tuple(sorted(file.partition.items()))].append(file)
    for key, files in sorted(by_partition.items(), key=lambda item: str(item[0])):
        if len(files) < files_min or _end(dict(key)) > closed_before:
            continue
        group: list[DataFile] = []
        for file in sorted(files, key=lambda each: each.path):
            if group and sum(each.size for each in group) + file.size > target:
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
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
