"""The guids of the events of a load: in its table and among its dead letters, file by file (for ``moldau audit report --missing``)."""

import os
from typing import Any

import pyarrow.parquet as pq

from moldau.audit.missing import Guids
from moldau.lake.loading.job import DEAD_LETTERS_FOLDER
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import format_of, open_table
from moldau.lake.tables.places.addresses import is_address, place_of


class NoTableError(TableError):
    """The directory has no table of the topic."""


def check_directory(directory: str, topic: str, *, counted: bool) -> None:
    """NoTableError unless a load has its table of the topic here; one that has not `counted` it may have none yet."""
    path, dead_letters = _paths(directory, topic)
    if format_of(path) or format_of(dead_letters):
        return
    is_table = format_of(directory) is not None
    if counted or is_table or not (is_address(directory) or os.path.isdir(directory)):
        above = f"; {directory} is a table itself, give the directory that it is in" if is_table else ""
        raise NoTableError(f"no table of topic {topic} at {path}{above}")


def guids_of_table(directory: str, topic: str, instances: frozenset[str]) -> Guids:
    """Read the column of headers, and of dead letters the values. TableError, TooManyGuidsError."""
    found = Guids(topic, instances)
    path, dead_letters = _paths(directory, topic)
    for batch in _batches(path, "header"):
        for header in batch.column("header").to_pylist():
            if header is not None and header["guid"] is not None and header["time"] is not None:
                found.add(int(header["time"].timestamp() * 1000 // 1), header["guid"])
    for batch in _batches(dead_letters, "value"):
        for value in batch.column("value").to_pylist():
            found.add_value(value)
    return found


def _paths(directory: str, topic: str) -> tuple[str, str]:
    """Of the table, and of that of its dead letters."""
    return os.path.join(directory, topic), os.path.join(directory, DEAD_LETTERS_FOLDER, topic)


def _batches(path: str, column: str) -> Any:
    snapshot = open_table(path)
    for file in snapshot.files() if snapshot is not None else ():
        with pq.ParquetFile(place_of(path).source(file.path)) as parquet:
            if column in parquet.schema_arrow.names:
                yield from parquet.iter_batches(columns=[column])
