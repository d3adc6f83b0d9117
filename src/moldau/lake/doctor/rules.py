"""What facts of a table are findings, the worst first. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from moldau.lake.doctor.facts import Limits, TableFacts
from moldau.lake.doctor.findings import Check, Finding, Severity
from moldau.lake.doctor.wording import counted, span
from moldau.lake.tables.data_files import DataFile

_NAMED = 3
"""So many files are named in a text."""


def findings(facts: TableFacts, limits: Limits) -> list[Finding]:
    """All findings. Without an error or a warning among them nothing has to be done."""
    found = [*_wrong(facts), *_slow(facts, limits), *_large(facts, limits)]
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.severity))


def _wrong(facts: TableFacts) -> Iterator[Finding]:
    """What makes queries fail, or answer wrongly."""
    if facts.missing:
        yield Finding(
            Check.MISSING_FILES,
            Severity.ERROR,
            f"{counted(len(facts.missing), 'file')} of the newest version {_is(facts.missing)} not there: {_names(facts.missing)}",
            "every query that reads one of them fails",
            "restore them from a backup, or load the topic again into another directory",
            False,
            len(facts.missing),
            sum(each.size for each in facts.missing),
        )
    if facts.resized:
        file, size = facts.resized[0]
        yield Finding(
            Check.FILE_SIZES,
            Severity.ERROR,
            f"{counted(len(facts.resized), 'file')} with another size than in the log: {file.path} has {size:,} bytes, not {file.size:,}",
            "the file was cut or replaced: queries fail, or their answers are wrong",
            "restore the files from a backup, or load the topic again into another directory",
            False,
            len(facts.resized),
        )
    footers = facts.footers
    if footers.damaged:
        name, reason = next(iter(footers.damaged.items()))
        yield Finding(
            Check.DAMAGED_FILES,
            Severity.ERROR,
            f"{counted(len(footers.damaged), 'file')} of {footers.read:,} cannot be read: {name}: {reason}",
            "every query that reads one of them fails",
            "restore the files from a backup, or load the topic again into another directory",
            False,
            len(footers.damaged),
        )
    if footers.row_counts:
        name, (rows, logged) = next(iter(footers.row_counts.items()))
        yield Finding(
            Check.ROW_COUNTS,
            Severity.ERROR,
            f"{counted(len(footers.row_counts), 'file')} of {footers.read:,} with other rows than in the log: "
            f"{name} has {rows:,}, not {logged:,}",
            "the file was replaced: answers are wrong",
            "restore the files from a backup, or load the topic again into another directory",
            False,
            len(footers.row_counts),
        )
    yield from _schema(facts)


def _schema(facts: TableFacts) -> Iterator[Finding]:
    footers = facts.footers
    if footers.unfit:
        name, reason = next(iter(footers.unfit.items()))
        yield Finding(
            Check.SCHEMA,
            Severity.ERROR,
            f"{counted(len(footers.unfit), 'file')} of {footers.read:,} with a column of another type: {name}: {reason}",
            "queries of that column fail",
            "write the files again with the table's type: another program has written them",
            False,
            len(footers.unfit),
        )
    if footers.beyond:
        columns = ", ".join(sorted(footers.beyond))
        yield Finding(
            Check.SCHEMA,
            Severity.NOTICE,
            f"columns in files that the table does not have: {columns}",
            "readers leave them out",
            "nothing has to be done",
            False,
            max(footers.beyond.values()),
        )


def _slow(facts: TableFacts, limits: Limits) -> Iterator[Finding]:
    """What makes queries and openings slow."""
    small, log = facts.small, facts.log
    if small is not None:
        yield Finding(
            Check.SMALL_FILES,
            Severity.WARNING,
            f"{counted(small.files, 'small file')} in {counted(small.partitions, 'partition')} that {_is([0] * small.partitions)} over, "
            f"{small.bytes // small.files:,} bytes each on average; most in {small.most}: {small.most_files:,}",
            f"a query opens each of them, and the log has an entry of each; {small.becoming:,} would do",
            "compaction",
            True,
            small.files,
            small.bytes,
        )
    if facts.format != "delta":
        if facts.files > limits.manifest_files_max:
            yield Finding(
                Check.MANIFEST,
                Severity.WARNING,
                f"{counted(facts.files, 'file')} in each version of the manifest, and {log.bytes:,} bytes of versions",
                "each commit writes all entries, and each opening reads them",
                "compaction where there are small files; a table of so many files is better kept as Delta (--table-format delta)",
                False,
                facts.files,
                log.bytes,
            )
        return
    since = facts.version - (-1 if log.checkpoint is None else log.checkpoint)
    if since > limits.since_checkpoint_max:
        last = "there is no checkpoint" if log.checkpoint is None else f"the last checkpoint is that of version {log.checkpoint:,}"
        yield Finding(
            Check.CHECKPOINT,
            Severity.WARNING,
            f"{counted(since, 'version')} without a checkpoint: {last}",
            "a reader opens the file of each of them",
            "a checkpoint of the newest version",
            True,
            since,
        )
    if log.expired_tombstones >= limits.expired_tombstones_min:
        yield Finding(
            Check.TOMBSTONES,
            Severity.WARNING,
            f"{counted(log.expired_tombstones, 'entry', 'entries')} of files that were removed more than {span(limits.retention)} ago",
            "they stand in the checkpoint, and every reader reads them",
            "a checkpoint of the newest version, which leaves them out",
            True,
            log.expired_tombstones,
        )


def _large(facts: TableFacts, limits: Limits) -> Iterator[Finding]:
    """What takes disk."""
    log, unneeded = facts.log, facts.unneeded
    if log.old_versions >= limits.old_versions_min:
        yield Finding(
            Check.OLD_VERSIONS,
            Severity.WARNING,
            f"{counted(log.old_versions, 'file')} of versions that are older than {span(limits.log_retention)}",
            f"{log.old_bytes:,} bytes, and longer listings of the log",
            "they are deleted; later versions stay readable",
            True,
            log.old_versions,
            log.old_bytes,
        )
    if log.unpublished is not None:
        yield Finding(
            Check.OLD_VERSIONS,
            Severity.NOTICE,
            f"version {log.unpublished:,} is older than {span(limits.log_retention)} and stays, with those after it",
            "the audit does not have its counts yet",
            "a load publishes them, as soon as brokers answer",
            False,
            1,
        )
    if unneeded.expired:
        yield Finding(
            Check.UNNEEDED_FILES,
            Severity.WARNING,
            f"{counted(unneeded.expired, 'data file')} that no version of the last {span(limits.retention)} names",
            f"{unneeded.expired_bytes:,} bytes of disk",
            "they are deleted; versions from before then cannot be read any more",
            True,
            unneeded.expired,
            unneeded.expired_bytes,
        )
    if log.leftovers:
        yield Finding(
            Check.LOG_LEFTOVERS,
            Severity.WARNING,
            f"{counted(len(log.leftovers), 'file')} of writers that died while they made a version",
            f"{log.leftover_bytes:,} bytes of disk",
            "they are deleted",
            True,
            len(log.leftovers),
            log.leftover_bytes,
        )


def summary(facts: TableFacts) -> Mapping[str, object]:
    """The table's figures."""
    return {
        "table": facts.path,
        "format": facts.format,
        "version": facts.version,
        "files": facts.files,
        "rows": facts.rows,
        "bytes": facts.bytes,
        "partitions": facts.partitions,
        "other_files": facts.unneeded.kept,
        "other_bytes": facts.unneeded.kept_bytes,
        "footers_read": facts.footers.read,
        "log_files": facts.log.files,
        "log_bytes": facts.log.bytes,
        "checkpoint": facts.log.checkpoint,
        "tombstones": facts.log.tombstones,
    }


def _is(several: Sequence[object]) -> str:
    return "is" if len(several) == 1 else "are"


def _names(files: Sequence[DataFile]) -> str:
    more = len(files) - _NAMED
    return ", ".join(each.path for each in files[:_NAMED]) + (f", and {more:,} more" if more > 0 else "")
