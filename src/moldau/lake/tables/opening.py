"""The formats of tables by name, each loaded when it is used, and how a table at a path is found, opened and made."""

import contextlib
from collections.abc import Sequence
from typing import Any

from moldau.lake.tables.format import Snapshot, TableError, TableFormat, VersionTakenError
from moldau.lake.tables.places.addresses import absolute, is_address, place_of, unfit
from moldau.lake.tables.places.place import Place

FORMATS = ("delta", "parquet")
_FOLDERS = ("_delta_log", "_manifests")
"""Where the versions of each lie, below the table."""


def format_named(name: str) -> TableFormat:
    """``delta`` or ``parquet``. ValueError for another name, ModuleNotFoundError without deltalake."""
    if name == "parquet":
        from moldau.lake.tables.manifest import ManifestFormat

        return ManifestFormat()
    if name != "delta":
        raise ValueError(f"tables are {' or '.join(FORMATS)}, not {name!r}")
    from moldau.lake.tables.delta import DeltaFormat

    return DeltaFormat()


def format_of(path: str) -> TableFormat | None:
    """The format of the table at `path`; None if there is none. TableError."""
    folder = log_folder(path)
    return None if folder is None else format_named(FORMATS[_FOLDERS.index(folder)])


def log_folder(path: str) -> str | None:
    """Where the versions of the table at `path` lie, below it; None if there is none. TableError."""
    place = place_at(path)
    try:
        return next(filter(place.has_folder, _FOLDERS), None)
    except OSError as error:
        raise TableError(f"{path}: cannot be looked at: {error.strerror or error}") from error


def place_at(path: str) -> Place:
    """The place of a table. TableError for an address that nothing can be read from."""
    try:
        return place_of(path)
    except ValueError as error:
        raise TableError(str(error)) from None


def open_table(path: str, version: int | None = None) -> Snapshot | None:
    """The newest version of the table at `path`, or this one; None if there is no table. TableError."""
    tables = format_of(path)
    return None if tables is None else tables.open(path, version)


def opened(path: str, version: int | None = None) -> Snapshot:
    """As `open_table`; TableError if there is no table."""
    snapshot = open_table(path, version)
    if snapshot is None:
        raise TableError(f"{path}: there is no table")
    return snapshot


def check_place(path: str) -> None:
    """TableError for an address of another kind than ``s3://``, and for a place among the versions of another table."""
    problem = unfit(path) if is_address(path) else None
    if problem is not None:
        raise TableError(problem)
    for folder in _FOLDERS:
        if folder in absolute(path).split("/"):
            raise TableError(f"{path}: inside {folder}, where the versions of another table lie")


def open_or_create(tables: TableFormat, path: str, schema: Any, partition_columns: Sequence[str], description: str) -> Snapshot:
    """The newest version of the table, made if it is missing. TableError if a table of another format or with other partitions is there, or
    there is no place for one.
    """
    check_place(path)
    there = format_of(path)
    if there is not None and there.name != tables.name:
        raise TableError(f"{path}: there is a {there.name} table already, not a {tables.name} table")
    snapshot = tables.open(path)
    if snapshot is None:
        with contextlib.suppress(VersionTakenError):  # another load was faster
            tables.create(path, schema, partition_columns, description)
        snapshot = tables.open(path)
        assert snapshot is not None, f"{path}: a table that was made cannot be found"
    if snapshot.partition_columns != tuple(partition_columns):
        there_by, wanted_by = ", ".join(snapshot.partition_columns), ", ".join(partition_columns)
        raise TableError(f"{path}: the table is partitioned by {there_by}, the load by {wanted_by}")
    return snapshot
