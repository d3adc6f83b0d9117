"""What a load needs of a table: snapshots, and a change of many things at once that happens whole or not at all.

A table is a folder with data files (Parquet) and a log of numbered versions. A version is one file of the log, and the rule that everything
depends on is: it is made with a name that no other writer has made before, or it is not made. So of two writers that both start from
version 7 one makes version 8, and the other begins again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from moldau.lake.tables.data_files import DataFile


class TableError(RuntimeError):
    """The table cannot be used; the message names it."""


class TableMismatchError(TableError):
    """The table exists with other columns, in a way that the rules of evolution do not allow."""


class VersionTakenError(TableError):
    """Another writer has made this version meanwhile; nothing was changed. Only `committing` sees it."""


class UnansweredCommitError(TableError):
    """The store did not answer: the version may be there, now or in a moment, or not. Files that it may name must stay."""


class VersionsDeletedError(TableError):
    """Versions that are needed are no longer kept in the table's log."""


def no_version(path: str, version: int, newest: int, oldest: int = 0) -> TableError:
    """There is a table, and no such version of it, or not any more."""
    known = f"the oldest is {oldest}" if 0 <= version < oldest else f"the newest is {newest}"
    return TableError(f"{path}: there is no version {version}, {known}")


@dataclass(frozen=True, slots=True)
class TableChange:
    """What one version changes. All of it becomes visible at once."""

    operation: str
    """For people who read the history: LOAD, OPTIMIZE, SET PROPERTIES."""
    adds: Sequence[DataFile] = ()
    removes: Sequence[DataFile] = ()
    schema: Any = None
    """The Arrow schema from this version on; None: as before."""
    properties: Mapping[str, str] | None = None
    """All properties from this version on; None: as before."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """New versions of application ids: next offsets, and who writes."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The origin of the version, as JSON values; found again by `TableFormat.commits`."""
    rows_change: bool = True
    """False where the same rows only lie in other files."""


class Snapshot(Protocol):
    """One version of a table."""

    @property
    def version(self) -> int:
        """Its number; the first is 0."""

    @property
    def id(self) -> str:
        """The table's own id: another table at the same place has another one."""

    @property
    def schema(self) -> Any:
        """Arrow schema of all columns, partition columns among them."""

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns whose values stand in the folders' names."""

    @property
    def properties(self) -> Mapping[str, str]:
        """What is known of the table as a whole."""

    def offset(self, application_id: str) -> int | None:
        """The newest version of an application id; None if it has none."""

    def files(self) -> list[DataFile]:
        """The data files of this version."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One version's own words."""

    version: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowChange:
    """The files by which one version changed the rows; empty for a version that only wrote the same rows into other files."""

    version: int
    metadata: Mapping[str, Any]
    """The version's own words, its operation among them."""
    adds: Sequence[DataFile] = ()
    removes: int = 0
    """Files that were removed with their rows."""


class TableFormat(Protocol):
    """How tables lie on disk."""

    @property
    def name(self) -> str:
        """``delta`` or ``parquet``."""

    @property
    def words_kept(self) -> int | None:
        """The words of so many versions are kept, no more; None: those of all, until a repair deletes old ones."""

    def open(self, path: str, version: int | None = None) -> Snapshot | None:
        """The newest version, or this one; None if there is no table. TableError if there is no such version."""

    def create(self, path: str, schema: Any, partition_columns: Sequence[str], description: str) -> None:
        """Make version 0, without rows. VersionTakenError if another writer was faster."""

    def put(self, path: str, base: Snapshot, change: TableChange) -> int:
        """Make the version after `base`; its number. It is durable then. VersionTakenError if another was faster; TableError for a disk
        that does not take it. Either way nothing has changed. UnansweredCommitError for a store that did not answer."""

    def application_ids(self, path: str) -> set[str]:
        """All application ids that the table has a version of."""

    def row_changes(self, path: str, after: int, until: int) -> Iterator[RowChange]:
        """What each version above `after` changed, up to `until`, oldest first. VersionsDeletedError if one of them is no longer kept."""

    def commits(self, path: str, after: int) -> Iterator[TableCommit]:
        """The versions above `after` whose words are still kept, oldest first."""

    def named_since(self, path: str, time_s: float) -> set[str]:
        """Paths of the files that a version names which was the newest at that time or later, as far as versions are kept. TableError."""
