"""Delta tables: read through ``deltalake``, committed by a file of our own in their log.

The commit is ours because it carries more than deltalake's functions put together: files, application transactions (offsets), columns,
properties and our own words, all in one version that is made from one snapshot, and synced. Protocol: reader version 1, writer version 2,
no features; any Delta reader can read the tables, and deltalake's own tools work on them.
"""

import contextlib
import json
import logging
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from moldau import __version__
from moldau.lake.tables.data_files import DataFile
from moldau.lake.tables.format import (
    RowChange,
    Snapshot,
    TableChange,
    TableCommit,
    TableError,
    VersionsDeletedError,
    no_version,
)
from moldau.lake.tables.places.addresses import is_address, place_of, unfit
from moldau.lake.tables.schemas import from_json, to_json
from moldau.lake.tables.version_file import commit_id, dumped, make_version, name_of, numbers_in, prepare
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)

LOG = "_delta_log"
CHECKPOINT_INTERVAL = 50
"""Versions between two checkpoints."""
_UNFIT = frozenset("%?#\\")
_READER, _WRITER = 1, 2
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def uri_of(path: str) -> str:
    """The address of a table as deltalake takes it. ValueError for a character that deltalake 1.6 takes for something else even so."""
    if is_address(path):
        problem = unfit(path)
        if problem is not None:
            raise ValueError(problem)
        return path.rstrip("/")
    absolute = Path(path).absolute()
    strange = sorted(_UNFIT & set(str(absolute)))
    if strange:
        raise ValueError(f"{absolute}: there can be no Delta table at a path with {' '.join(strange)}")
    return absolute.as_uri()


class DeltaSnapshot:
    """One version of a Delta table."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        self._path = path
        self.table = table
        self.version = int(table.version())

    @cached_property
    def metadata(self) -> Any:
        """The table, as deltalake reads it."""
        return self.table.metadata()

    @property
    def id(self) -> str:
        """The table's own id."""
        return str(self.metadata.id)

    @cached_property
    def schema(self) -> Any:
        """Arrow schema of all columns."""
        try:
            return from_json(json.loads(self.table.schema().to_json()))
        except ValueError as error:
            raise TableError(f"{self._path}: {error}") from None

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns whose values stand in the folders' names."""
        return tuple(self.metadata.partition_columns)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return dict(self.metadata.configuration)

    def offset(self, application_id: str) -> int | None:
        """The newest version of an application id."""
        return self.table.transaction_version(application_id)

    def files(self) -> list[DataFile]:
        """The data files of this version; their statistics stay in the log."""
        names = self.partition_columns
        found = pa.table(self.table.get_add_actions(flatten=True))
        columns = [found.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
        values = [[_partition_text(value) for value in found.column(f"partition.{name}").to_pylist()] for name in names]
        del found  # with the bounds of every column of every file
        partitions: dict[tuple[str | None, ...], dict[str, str | None]] = {}
        files = []
        for number, (path, size, rows) in enumerate(zip(*columns, strict=True)):
            key = tuple(column[number] for column in values)
            partition = partitions.setdefault(key, dict(zip(names, key, strict=True)))
            files.append(DataFile(unquote(path), partition, size, rows or 0, ""))
        return files


def _encoded(path: str) -> str:
    """A path as the log has it: a part of an address, in which a percent sign and a space are encoded."""
    return quote(path, safe="/=!'()*,:;@&+$~")


def _partition_text(value: Any) -> str | None:
    return None if value is None else str(value)


class DeltaFormat:
    """Delta tables."""

    name = "delta"
    words_kept = None

    def open(self, path: str, version: int | None = None) -> Snapshot | None:
        """A snapshot. TableError for a version that is not there, or a table that deltalake cannot read."""
        try:
            uri = uri_of(path)
        except ValueError as error:
            raise TableError(str(error)) from None
        try:
            snapshot = DeltaSnapshot(path, DeltaTable(uri, version=version))
        except TableNotFoundError:
            return None
        except (DeltaError, OverflowError) as error:
            newest = None if version is None else self.open(path)
            if version is not None and newest is not None and not 0 <= version <= newest.version:
                raise no_version(path, version, newest.version) from None
            raise TableError(f"{path}: {error}") from error
        except OSError as error:  # of an object store
            raise TableError(f"{path}: cannot be read: {_one_line(error)}") from error
        protocol = snapshot.table.protocol()
        if protocol.min_reader_version > _READER:
            features = f" with {', '.join(sorted(protocol.reader_features))}" if protocol.reader_features else ""
            needed = f"a reader of version {protocol.min_reader_version}{features}"
            raise TableError(
                f"{path}: the table needs {needed}; this one is of version {_READER}, and would read deleted rows, or wrong columns"
            )
        return snapshot

    def create(self, path: str, schema: Any, partition_columns: Sequence[str], description: str) -> None:
        """Make version 0."""
        prepare(path, LOG)
        metadata = {
            "id": str(uuid.uuid4()),
            "description": description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(to_json(schema)),
            "partitionColumns": list(partition_columns),
            "configuration": {},
            "createdTime": now_ms(),
        }
        protocol = {"minReaderVersion": _READER, "minWriterVersion": _WRITER}
        self._write(path, 0, [_commit_info("CREATE TABLE", {}), {"protocol": protocol}, {"metaData": metadata}])

    def put(self, path: str, base: Snapshot, change: TableChange) -> int:
        """Make the version after `base`."""
        assert isinstance(base, DeltaSnapshot)
        protocol = base.table.protocol()
        if protocol.min_writer_version > _WRITER:
            raise TableError(f"{path}: the table needs a writer of version {protocol.min_writer_version}; this one is of version {_WRITER}")
        time_ms = now_ms()
        actions: list[Mapping[str, Any]] = [_commit_info(change.operation, change.metadata)]
        if change.schema is not None or change.properties is not None:
            actions.append({"metaData": _metadata(base, change)})
        actions += [
            {"txn": {"appId": name, "version": version, "lastUpdated": time_ms}} for name, version in sorted(change.offsets.items())
        ]
        actions += [
            {"remove": {"path": _encoded(file.path), "deletionTimestamp": time_ms, "dataChange": change.rows_change,
                        "extendedFileMetadata": True, "partitionValues": dict(file.partition), "size": file.size}}
            for file in change.removes
        ]  # fmt: skip
        actions += [
            {"add": {"path": _encoded(file.path), "partitionValues": dict(file.partition), "size": file.size, "modificationTime": time_ms,
                     "dataChange": change.rows_change, "stats": file.statistics}}
            for file in change.adds
        ]  # fmt: skip
        version = base.version + 1
        self._write(path, version, actions)
        if version % CHECKPOINT_INTERVAL == 0:
            self._checkpoint(path)
        return version

    def application_ids(self, path: str) -> set[str]:
        """Those in the existing log files and checkpoints; deltalake returns only one whose name it is given."""
        found = {each["appId"] for _, actions in self._logged(path, -1, "txn") for each in actions}
        place = place_of(path)
        with _reading(path):
            for name in place.names(LOG):
                if ".checkpoint" in name and name.endswith(".parquet"):
                    with contextlib.suppress(FileNotFoundError):  # it was just deleted
                        rows = pq.ParquetFile(place.source(f"{LOG}/{name}")).read(columns=["txn.appId"])
                        found |= {row["txn"]["appId"] for row in rows.to_pylist() if row.get("txn") is not None}
        return found - {None}

    def commits(self, path: str, after: int) -> Iterator[TableCommit]:
        """The words of each version in the log files that are still there."""
        for number, found in self._logged(path, after, "commitInfo"):
            yield TableCommit(number, found[0] if found else {})

    def row_changes(self, path: str, after: int, until: int) -> Iterator[RowChange]:
        """What each version changed, by its file in the log."""
        for number in range(after + 1, until + 1):
            try:
                with _reading(path):
                    content = place_of(path).read(name_of(LOG, number))
            except FileNotFoundError:
                raise VersionsDeletedError(f"{path}: the log of version {number} was deleted") from None
            actions = [json.loads(line) for line in content.splitlines()]
            words: Mapping[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            adds = [_added(each["add"]) for each in actions if "add" in each and each["add"].get("dataChange", True)]
            removes = sum("remove" in each and each["remove"].get("dataChange", True) for each in actions)
            yield RowChange(number, words, adds, removes)

    def named_since(self, path: str, time_s: float) -> set[str]:
        """Those of the newest version, and those that versions since then have removed, by their files in the log: a checkpoint drops the
        entry of a removed file after a week, and versions from before then can still be read."""
        newest = self.open(path)
        if newest is None:
            raise TableError(f"{path}: there is no table")
        found = {file.path for file in newest.files()}
        place = place_of(path)
        with _reading(path):
            young = [each.name for each in place.states(LOG) if each.changed_s >= time_s and _is_version(each.name)]
            for _, content in place.read_all(sorted(young)):
                removals = (json.loads(line)["remove"] for line in content.splitlines() if b'"remove"' in line[:16])
                found |= {unquote(each["path"]) for each in removals if (each.get("deletionTimestamp") or math.inf) >= time_s * 1000}
        return found

    def _logged(self, path: str, after: int, kind: str) -> Iterator[tuple[int, list[Any]]]:
        """The actions of one kind in each log file above `after` that is still there, oldest first."""
        place = place_of(path)
        with _reading(path):
            numbers = [number for number in numbers_in(place.names(LOG, f"{max(after, 0):020d}")) if number > after]
            for name, content in place.read_all(name_of(LOG, number) for number in numbers):
                found = [action for line in content.splitlines() if (action := json.loads(line).get(kind)) is not None]
                yield int(name[-25:-5]), found

    def _write(self, path: str, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
        make_version(path, LOG, version, "".join(f"{dumped(action)}\n" for action in actions))

    def _checkpoint(self, path: str) -> None:
        """Readers do well without it: an error is no failure of the commit."""
        try:
            make_checkpoint(path)
        except TableError as error:
            log.warning("%s", error)


def make_checkpoint(path: str) -> int:
    """Make a checkpoint of the newest version; its number. TableError.

    No version is deleted: deltalake's `cleanup_metadata` knows neither the doctor's retention nor which counts the audit lacks.
    """
    try:
        table = DeltaTable(uri_of(path))
        table.create_checkpoint()
    except (DeltaError, OSError) as error:
        raise TableError(f"{path}: no checkpoint was made: {error}") from error
    return int(table.version())


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """TableError for a log that cannot be read; FileNotFoundError stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error


def _is_version(name: str) -> bool:
    return bool(numbers_in([name.rpartition("/")[2]]))


def _one_line(error: Exception) -> str:
    """deltalake draws a tree, in colours."""
    return " ".join(_COLOURS.sub("", str(error)).split()).rpartition("↳ ")[2]


def _added(action: Mapping[str, Any]) -> DataFile:
    statistics = action.get("stats") or ""
    rows = json.loads(statistics).get("numRecords", 0) if statistics else 0
    return DataFile(unquote(action["path"]), action["partitionValues"], action["size"], rows, statistics)


def _metadata(base: DeltaSnapshot, change: TableChange) -> dict[str, Any]:
    known = base.metadata
    schema = base.schema if change.schema is None else change.schema
    return {
        "id": known.id,
        "name": known.name,
        "description": known.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(to_json(schema)),
        "partitionColumns": list(known.partition_columns),
        "configuration": dict(base.properties if change.properties is None else change.properties),
        "createdTime": known.created_time,
    }


def _commit_info(operation: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    info = {"timestamp": now_ms(), "operation": operation, "engineInfo": f"moldau/{__version__}"}
    return {"commitInfo": {**info, **metadata, "txnId": commit_id()}}
