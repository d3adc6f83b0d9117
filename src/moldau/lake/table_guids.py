"""The guids of the events of a load: in its table and among its dead letters, file by file (for ``moldau audit report --missing``)."""

import os
from typing import Any

import pyarrow.parquet as pq

from moldau.audit.missing import Guids
from moldau.lake.loading.jobs import DEAD_LETTERS_FOLDER
from moldau.lake.tables.opening import open_table


def guids_of_table(directory: str, topic: str, instances: frozenset[str]) -> Guids:
    """Read the column of headers, and of dead letters the values. TableError, TooManyGuidsError."""
    found = Guids(topic, instances)
    for batch in _batches(os.path.join(directory, topic), "header"):
        for header in batch.column("header").to_pylist():
            if header is not None and header["guid"] is not None and header["time"] is not None:
                found.add(int(header["time"].timestamp() * 1000 // 1), header["guid"])
    for batch in _batches(os.path.join(directory, DEAD_LETTERS_FOLDER, topic), "value"):
        for value in batch.column("value").to_pylist():
            found.add_value(value)
    return found


def _batches(path: str, column: str) -> Any:
    snapshot = open_table(path)
    for file in snapshot.files() if snapshot is not None else ():
        with pq.ParquetFile(os.path.join(path, file.path)) as parquet:
            if column in parquet.schema_arrow.names:
                yield from parquet.iter_batches(columns=[column])
