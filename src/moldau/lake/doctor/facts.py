"""What an examination of a table returns: facts without judgement, and the limits by which they are judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from moldau.lake.tables.data_files import DataFile

HOUR = timedelta(hours=1)
RETENTION_MIN = HOUR
"""Files that a running load has written and not committed yet are younger."""
LOG_RETENTION_MIN = timedelta(days=1)
"""A writer that was suspended for longer would make a version where an old one was deleted, which readers do not look at."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something is a finding, and what repairs keep."""

    retention: timedelta = timedelta(days=7)
    """For so long files are kept that the newest version no longer names: older versions can be read for so long."""
    log_retention: timedelta = timedelta(days=30)
    """For so long the versions of a Delta log are kept."""
    small_files_min: int = 8
    """So many small files of a day or hour that is over are a finding."""
    since_checkpoint_max: int = 100
    """Versions since the last checkpoint; loads make one every 50."""
    old_versions_min: int = 50
    expired_tombstones_min: int = 1_000
    manifest_files_max: int = 20_000
    footers: int = 1_000
    """Of so many data files, spread over the table, the footer is read."""

    def __post_init__(self) -> None:
        if self.retention < RETENTION_MIN:
            raise ValueError("the retention of files must be an hour at least: a load that runs would lose what it has written")
        if self.log_retention < LOG_RETENTION_MIN:
            raise ValueError("the retention of versions must be a day at least: a suspended writer would commit where no reader looks")


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Files that a compaction would put together."""

    files: int
    bytes: int
    becoming: int
    """So many files have their rows then."""
    partitions: int
    most: str
    """The table partition with the most of them, as its folder is named."""
    most_files: int


@dataclass(frozen=True, slots=True)
class UnneededFiles:
    """Files in the table's folder that the newest version does not name."""

    expired: int
    expired_bytes: int
    """Those that no version of the retention names, and that are as old: loads that were killed left them, or compactions replaced them."""
    kept: int
    kept_bytes: int
    """The others: versions of the retention need them, or a load is writing them."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The versions of a table on disk."""

    files: int
    bytes: int
    """Of all files in the log's folder."""
    checkpoint: int | None
    """The version of the newest checkpoint; None without one, and for a table with manifests."""
    old_versions: int
    old_bytes: int
    """Those that the retention of versions and the newest checkpoints do not need."""
    unpublished: int | None
    """The first version, beyond the retention, whose counts the audit does not have yet: it and those after it are kept."""
    tombstones: int
    expired_tombstones: int
    """Entries of files that were removed; those that are older than a retention are left out of the next checkpoint."""
    leftovers: tuple[str, ...]
    """Files of writers that died while they made a version, older than an hour."""
    leftover_bytes: int


@dataclass(frozen=True, slots=True)
class FooterFacts:
    """What the footers of data files say beside the table's log."""

    read: int
    damaged: Mapping[str, str]
    """By file why it cannot be read."""
    row_counts: Mapping[str, tuple[int, int]]
    """By file the rows that it has and those that the log has for it, where they differ."""
    unfit: Mapping[str, str]
    """By file the column that cannot be read as the table has it."""
    beyond: Mapping[str, int]
    """By column that the table does not have, in how many files it is."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """All that is known of a table."""

    path: str
    format: str
    version: int
    files: int
    bytes: int
    rows: int
    partitions: int
    missing: Sequence[DataFile]
    resized: Sequence[tuple[DataFile, int]]
    """Files whose size differs from the log's, with the size on disk."""
    small: SmallFiles | None
    unneeded: UnneededFiles
    log: LogFacts
    footers: FooterFacts
