"""Looks at a table: its newest snapshot, the files in its folder, its log. Nothing is changed.

Memory is that of the snapshot's list of files; the log is listed and read a file at a time.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from moldau.lake.doctor.facts import HOUR, Limits, LogFacts, SmallFiles, TableFacts, UnneededFiles
from moldau.lake.doctor.footers import read_footers, sampled
from moldau.lake.doctor.log_files import LogListing, first_unpublished, list_log, old_versions, tombstone_times_ms
from moldau.lake.table import remove_orphans
from moldau.lake.tables.data_files import DataFile
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import check_place, format_of, log_folder, opened
from moldau.lake.tables.places.addresses import place_of
from moldau.lake.tables.rewriting import FILE_BYTES_TARGET, LATENESS, small_file_groups


def examine(path: str, limits: Limits | None = None, *, now: datetime | None = None) -> TableFacts:
    """All facts of a table. TableError if there is no table or it cannot be read; OSError from the disk."""
    check_place(path)
    limits, now = limits or Limits(), now or datetime.now(UTC)
    snapshot = opened(path)
    tables, folder = format_of(path), log_folder(path)
    if tables is None or folder is None:
        raise TableError(f"{path}: the table was deleted")
    version, table_id, schema = snapshot.version, snapshot.id, snapshot.schema
    files = sorted(snapshot.files(), key=lambda each: each.path)
    del snapshot  # with the statistics of all files: what looks for orphans reads the log again
    lying = _compare(path, files)
    return TableFacts(
        path=path,
        format=tables.name,
        version=version,
        files=len(files),
        bytes=sum(each.size for each in files),
        rows=sum(each.rows for each in files),
        partitions=len({tuple(each.partition.items()) for each in files}),
        missing=lying.missing,
        resized=lying.resized,
        small=_small(files, limits, now),
        unneeded=_unneeded(path, lying, hours_of(limits)),
        log=_log(path, table_id, list_log(path, folder), limits, now, is_delta=tables.name == "delta"),
        footers=read_footers(path, sampled(files, limits.footers), schema),
    )


def hours_of(limits: Limits) -> int:
    """The retention of files in whole hours, as `remove_orphans` takes it."""
    return math.ceil(limits.retention / HOUR)


@dataclass(frozen=True, slots=True)
class _Lying:
    """The files in the table's folder beside those of the snapshot."""

    missing: list[DataFile]
    resized: list[tuple[DataFile, int]]
    others: dict[str, int]
    """By path the size of those that the snapshot does not name."""


def _compare(path: str, files: Sequence[DataFile]) -> _Lying:
    named = {file.path: file for file in files}
    resized: list[tuple[DataFile, int]] = []
    others: dict[str, int] = {}
    place = place_of(path)
    for found in place.walk():
        file = named.pop(found.name, None)
        if file is None:
            others[found.name] = found.size
        elif file.size != found.size:
            resized.append((file, found.size))
    missing = []
    for file in named.values():  # a walk does not follow links to folders
        try:
            size = place.state(file.path).size
        except (FileNotFoundError, NotADirectoryError):
            missing.append(file)
        else:
            if file.size != size:
                resized.append((file, size))
    return _Lying(missing, resized, others)


def _small(files: Sequence[DataFile], limits: Limits, now: datetime) -> SmallFiles | None:
    count = size = becoming = 0
    by_partition: Counter[str] = Counter()
    for group in small_file_groups(files, now - LATENESS, limits.small_files_min, FILE_BYTES_TARGET):
        count += len(group)
        becoming += 1
        size += sum(each.size for each in group)
        by_partition["/".join(f"{name}={value}" for name, value in group[0].partition.items())] += len(group)
    if not count:
        return None
    ((most, most_files),) = by_partition.most_common(1)
    return SmallFiles(count, size, becoming, len(by_partition), most, most_files)


def _unneeded(path: str, lying: _Lying, older_than_h: int) -> UnneededFiles:
    expired = remove_orphans(path, older_than_h, dry_run=True)
    expired_bytes = sum(lying.others.pop(each, 0) for each in expired)
    kept = [size for name, size in lying.others.items() if name.endswith(".parquet")]
    return UnneededFiles(len(expired), expired_bytes, len(kept), sum(kept))


def _log(path: str, table_id: str, listing: LogListing, limits: Limits, now: datetime, *, is_delta: bool) -> LogFacts:
    leftovers = leftover_files(listing, now)
    left = tuple(each for each, _ in leftovers), sum(size for _, size in leftovers)
    if not is_delta:
        return LogFacts(listing.files, listing.bytes, None, 0, 0, None, 0, 0, *left)
    old, unpublished = removable_versions(path, table_id, listing, limits, now)
    expired_ms = (now - limits.retention).timestamp() * 1000
    tombstones = expired = 0
    for time_ms in tombstone_times_ms(listing):
        tombstones += 1
        expired += time_ms < expired_ms
    size = sum(listed for _, listed in old)
    return LogFacts(listing.files, listing.bytes, listing.checkpoint, len(old), size, unpublished, tombstones, expired, *left)


def removable_versions(
    path: str, table_id: str, listing: LogListing, limits: Limits, now: datetime
) -> tuple[list[tuple[str, int]], int | None]:
    """Names and sizes of the files of versions that nothing needs any more, the oldest first; and the version from which on they stay
    because the audit does not have its counts."""
    old = old_versions(listing, (now - limits.log_retention).timestamp())
    unpublished = first_unpublished(path, table_id, listing, (version for version, _ in old))
    kept = [(file.name, file.size) for version, file in old if unpublished is None or version < unpublished]
    return kept, unpublished


def leftover_files(listing: LogListing, now: datetime) -> list[tuple[str, int]]:
    """Names and sizes of what writers left that died while they made a version."""
    return [(each.name, each.size) for each in listing.temporary if each.changed_s < (now - HOUR).timestamp()]
