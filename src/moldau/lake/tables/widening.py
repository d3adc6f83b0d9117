"""Columns of a table to wider types: the files that have the old ones are written anew, in one version of its own.

Delta has a feature by which files keep their narrow numbers, but few readers know it. A schema seldom changes this way, and a table of one
type for each column can be read by all.
"""

from moldau.lake.tables.committing import commit, discard
from moldau.lake.tables.data_files import DataFile, FileError
from moldau.lake.tables.evolution import Evolution
from moldau.lake.tables.format import Change, Snapshot, TableError, TableFormat
from moldau.lake.tables.rewriting import rewrite


def widen(tables: TableFormat, path: str, snapshot: Snapshot, evolution: Evolution) -> int:
    """Commit the new columns and the same rows in them; the version. LoadConflictError if anybody has committed meanwhile."""
    files = snapshot.files()
    wider: list[DataFile] = []
    try:
        wider.extend(rewrite(path, [each], evolution.schema, "widened") for each in files)
        metadata = {"moldau.widened": list(evolution.widened)}
        change = Change("WIDEN COLUMNS", wider, files, evolution.schema, metadata=metadata, rows_change=False)
        return commit(tables, path, change, base=snapshot, only_on_base=True)
    except (TableError, FileError, OSError):
        discard(tables, path, [file.path for file in wider])
        raise
