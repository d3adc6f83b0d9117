"""Data files written anew with the same rows: several into one, or with wider types. Nothing is committed here."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.lake.tables.data_files import DataFile, OneFile, sync_files
from moldau.lake.tables.fitting import fit

ROWS_AT_ONCE = 100_000


def rewrite(directory: str, files: Sequence[DataFile], schema: Any, prefix: str) -> DataFile:
    """One new file with the rows of `files`, which are of one table partition, in the columns of `schema`; on disk. FileError."""
    assert files
    partition = dict(files[0].partition)
    columns = pa.schema([each for each in schema if each.name not in partition])
    new = OneFile(directory, f"{prefix}-", partition, columns)
    try:
        for batch in _batches(directory, files):
            new.write(fit(batch, columns))
        written = new.close()
        sync_files(directory, [written.path])
    except BaseException:
        new.discard()
        raise
    return written


def _batches(directory: str, files: Sequence[DataFile]) -> Iterator[Any]:
    for each in files:
        with pq.ParquetFile(os.path.join(directory, each.path)) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield pa.Table.from_batches([batch])
