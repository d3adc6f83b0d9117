"""Tables for readers without Spark: the files of one snapshot as an Arrow dataset, which DuckDB, Polars and pandas read.

The dataset has the table's columns. A file that was written before a column existed has nulls in it, and one with a narrower number is read
as the wider one, inside structs, lists and maps too. Values of the partition columns come from the table's log, and a filter on them opens
no file of another partition.
"""

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pad

from moldau.lake.tables.format import Snapshot, TableError
from moldau.lake.tables.opening import check_place, opened
from moldau.lake.tables.places.addresses import place_of

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset


def scan(path: str, *, version: int | None = None) -> "Dataset":
    """The rows of the newest version of a table, or of `version`. TableError if there is no table, or no such version.

    The snapshot is fixed when this is called: later loads do not change it, and files that no commit names are not read. Rows are read when
    the dataset is; a file that is missing then is an OSError.
    """
    check_place(path)
    snapshot = opened(path, version)
    (files, root), parquet = place_of(path).file_system(), pad.ParquetFileFormat()
    guarantees = _Guarantees(path, snapshot)
    fragments = [
        parquet.make_fragment(os.path.join(root, each.path), files, guarantees.of(each.partition.get), file_size=each.size)
        for each in snapshot.files()
    ]
    return pad.FileSystemDataset(fragments, snapshot.schema, parquet, files)


class _Guarantees:
    """What is true of all rows of a table partition: the values of its columns. Each partition has one expression, for all its files."""

    def __init__(self, path: str, snapshot: Snapshot) -> None:
        self._path = path
        self._columns = [snapshot.schema.field(name) for name in snapshot.partition_columns]
        self._known: dict[tuple[str | None, ...], Any] = {}

    def of(self, value: Any) -> Any:
        """The expression of a partition; `value` returns the text of a column."""
        texts = tuple(value(each.name) for each in self._columns)
        if texts not in self._known:
            self._known[texts] = self._expression(texts)
        return self._known[texts]

    def _expression(self, texts: tuple[str | None, ...]) -> Any:
        found = pad.scalar(True)
        for column, text in zip(self._columns, texts, strict=True):
            field = pad.field(column.name)
            found = found & (field.is_null() if text is None else field == self._typed(column, text))
        return found

    def _typed(self, column: Any, text: str) -> Any:
        try:
            return pa.scalar(text).cast(column.type)
        except pa.ArrowException as error:
            raise TableError(f"{self._path}: {text!r} is no value of partition column {column.name}, which is {column.type}") from error
