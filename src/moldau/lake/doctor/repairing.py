"""Repairs of a table, in the order in which one helps the next: small files become large ones, what nothing needs is deleted as far as it
is old, then a checkpoint says so, and versions before it can be deleted.

Each is safe beside running loads, readers and other repairs: a compaction is made of commits, and leaves to another one what that has done;
a checkpoint repeats what versions say; files are deleted that are older than the retentions of `Limits`, which have lower bounds. A repair
that cannot be made is reported with its reason, and the next one is tried.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from moldau.lake.doctor.examination import hours_of, leftover_files, removable_versions
from moldau.lake.doctor.facts import Limits
from moldau.lake.doctor.findings import Check, Finding, Repair, Severity
from moldau.lake.doctor.log_files import list_log
from moldau.lake.doctor.wording import counted
from moldau.lake.table import remove_orphans
from moldau.lake.tables.data_files import FileError
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import log_folder, opened
from moldau.lake.tables.rewriting import compact_table

_DAMAGE = frozenset({Check.MISSING_FILES, Check.FILE_SIZES, Check.DAMAGED_FILES, Check.ROW_COUNTS, Check.SCHEMA})


def repair(path: str, found: Sequence[Finding], limits: Limits, *, now: datetime | None = None) -> list[Repair]:
    """Repair what can be repaired of the findings; what became of each, in the order in which it was tried."""
    now = now or datetime.now(UTC)
    wanted = {each.check for each in found if each.repairable}
    damage = [each for each in found if each.check in _DAMAGE and each.severity is Severity.ERROR]
    repairs: list[Repair] = []

    def attempt(check: Check, act: Callable[[], str]) -> None:
        try:
            repairs.append(Repair(check, True, act()))
        except (TableError, FileError, OSError) as error:
            repairs.append(Repair(check, False, str(error)))

    if Check.SMALL_FILES in wanted:
        if damage:
            reason = f"refused: a compaction would read files that are wrong ({damage[0].text})"
            repairs.append(Repair(Check.SMALL_FILES, False, reason))
        else:
            attempt(Check.SMALL_FILES, lambda: _compact(path, limits, now))
    if Check.UNNEEDED_FILES in wanted:  # before a checkpoint drops the entries that say since when they are not needed
        attempt(Check.UNNEEDED_FILES, lambda: _delete_unneeded(path, limits))
    for check in (Check.CHECKPOINT, Check.TOMBSTONES):
        if check in wanted:
            attempt(check, lambda: _make_checkpoint(path))
            break  # one checkpoint is both
    if Check.OLD_VERSIONS in wanted:
        attempt(Check.OLD_VERSIONS, lambda: _delete_versions(path, limits, now))
    if Check.LOG_LEFTOVERS in wanted:
        attempt(Check.LOG_LEFTOVERS, lambda: _delete_leftovers(path, now))
    return repairs


def _compact(path: str, limits: Limits, now: datetime) -> str:
    done = compact_table(path, now=now, files_min=limits.small_files_min)
    if done.version is None:
        return "another compaction was faster"
    of = f"{counted(done.files_before, 'file')} of {counted(done.partitions, 'partition')}"
    return f"{of} became {done.files_after:,}; version {done.version:,}"


def _make_checkpoint(path: str) -> str:
    from moldau.lake.tables.delta import make_checkpoint

    return f"checkpoint of version {make_checkpoint(path):,}"


def _delete_versions(path: str, limits: Limits, now: datetime) -> str:
    """The oldest first: whatever ends this, what is left is a log without a gap."""
    listing = list_log(path, _folder(path))
    found, _ = removable_versions(path, opened(path).id, listing, limits, now)
    for name, _ in found:
        listing.place.delete([name])
    return f"{counted(len(found), 'file')} of versions deleted, {sum(size for _, size in found):,} bytes"


def _delete_unneeded(path: str, limits: Limits) -> str:
    return f"{counted(len(remove_orphans(path, hours_of(limits))), 'data file')} deleted"


def _delete_leftovers(path: str, now: datetime) -> str:
    listing = list_log(path, _folder(path))
    found = leftover_files(listing, now)
    listing.place.delete(name for name, _ in found)
    return f"{counted(len(found), 'file')} deleted, {sum(size for _, size in found):,} bytes"


def _folder(path: str) -> str:
    folder = log_folder(path)
    if folder is None:
        raise TableError(f"{path}: the table was deleted")
    return folder
