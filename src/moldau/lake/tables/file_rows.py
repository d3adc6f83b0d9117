"""Rows of data files, with the columns of the table that stand in the folders' names."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.lake.tables.data_files import DataFile
from moldau.lake.tables.format import TableError
from moldau.lake.tables.places.addresses import joined, place_of
from moldau.lake.tables.rewriting import fit

ROWS_AT_ONCE = 100_000


class MissingFileError(TableError):
    """A data file that a version names is no longer there."""


def rows_of(directory: str, file: DataFile, columns: Any) -> Iterator[Any]:
    """The rows of a file, `ROWS_AT_ONCE` or fewer at a time, with exactly these columns. MissingFileError; TableError for a damaged one."""
    path = joined(directory, file.path)
    inside = pa.schema([each for each in columns if each.name not in file.partition])
    try:
        with pq.ParquetFile(place_of(directory).source(file.path)) as parquet:
            for batch in parquet.iter_batches(ROWS_AT_ONCE):
                rows = fit(pa.Table.from_batches([batch]), inside)
                yield pa.table([_column(rows, each, file) for each in columns], schema=columns)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: the file is missing") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error


def _column(rows: Any, field: Any, file: DataFile) -> Any:
    if field.name not in file.partition:
        return rows.column(field.name)
    text = file.partition[field.name]
    if text is None:
        return pa.nulls(rows.num_rows, field.type)
    return pa.repeat(pa.scalar(text, pa.string()).cast(field.type), rows.num_rows)
