"""Plain Parquet with a manifest: the same promises without ``deltalake``, for readers that read Parquet and nothing else.

``_manifests/NNNNNNNNNNNNNNNNNNNN.json`` is one version of the table, whole: columns, partition columns, properties, offsets, files, and the
words of the version. The newest one is the table. Each holds all files, so a table of many thousands of files is better kept as Delta;
versions that are older than the newest `VERSIONS_KEPT` are deleted, the oldest first. So the versions are the newest and, of so many, those
below it without a gap: a file further down was made by a writer that slept while its number was used and deleted, and is none.
"""

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from moldau.lake.tables.data_files import DataFile
from moldau.lake.tables.format import (
    RowChange,
    Snapshot,
    TableChange,
    TableCommit,
    TableError,
    UnansweredCommitError,
    VersionsDeletedError,
    VersionTakenError,
    no_version,
)
from moldau.lake.tables.places.addresses import joined, place_of
from moldau.lake.tables.schemas import from_json, to_json
from moldau.lake.tables.version_file import commit_id, dumped, make_version, name_of, numbers_in, prepare
from moldau.tracking.clock import now_ms

FOLDER = "_manifests"
VERSIONS_KEPT = 200
_ROWS_CHANGE = "rowsChange"
_COMMIT_ID = "txnId"
_SAME_ROWS = ("OPTIMIZE", "WIDEN COLUMNS")
"""Operations of versions that do not say whether rows change: those that older releases made."""
_NAMES = ("version", "id", "schema", "partitionColumns", "properties", "offsets", "files", "commit")


class ManifestSnapshot:
    """One version: one file of JSON."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.version = int(content["version"])
        self.id = str(content["id"])
        self.schema = from_json(content["schema"])
        self.partition_columns = tuple(content["partitionColumns"])
        self.properties: Mapping[str, str] = content["properties"]

    def offset(self, application_id: str) -> int | None:
        """The newest version of an application id."""
        found = self.content["offsets"].get(application_id)
        return None if found is None else int(found)

    def files(self) -> list[DataFile]:
        """The data files of this version."""
        return [DataFile(**each) for each in self.content["files"]]


class ManifestFormat:
    """Folders of Parquet files."""

    name = "parquet"

    @property
    def words_kept(self) -> int:
        """They are in the versions."""
        return VERSIONS_KEPT

    def open(self, path: str, version: int | None = None) -> Snapshot | None:
        """A snapshot. TableError for a version that was deleted."""
        while True:
            numbers = self._versions(path)
            if not numbers:
                return None
            wanted = numbers[-1] if version is None else version
            try:
                return ManifestSnapshot(self._content(path, wanted))
            except FileNotFoundError:
                if version is not None:
                    raise no_version(path, version, numbers[-1], numbers[0]) from None

    def create(self, path: str, schema: Any, partition_columns: Sequence[str], description: str) -> None:
        """Make version 0."""
        prepare(path, FOLDER)
        self._write(path, {
            "version": 0, "id": str(uuid.uuid4()), "description": description, "schema": to_json(schema),
            "partitionColumns": list(partition_columns), "properties": {}, "offsets": {}, "files": [],
            "commit": {"operation": "CREATE TABLE", _COMMIT_ID: commit_id()},
        })  # fmt: skip

    def put(self, path: str, base: Snapshot, change: TableChange) -> int:
        """Make the version after `base`."""
        assert isinstance(base, ManifestSnapshot)
        gone = {file.path for file in change.removes}
        old = base.content
        new = {
            **old,
            "version": base.version + 1,
            "schema": old["schema"] if change.schema is None else to_json(change.schema),
            "properties": dict(old["properties"] if change.properties is None else change.properties),
            "offsets": {**old["offsets"], **change.offsets},
            "files": [each for each in old["files"] if each["path"] not in gone] + [asdict(file) for file in change.adds],
            "commit": {
                "operation": change.operation,
                "timestamp": now_ms(),
                _ROWS_CHANGE: change.rows_change,
                **change.metadata,
                _COMMIT_ID: commit_id(),
            },
        }
        version = base.version + 1
        self._write(path, new)
        try:
            numbers = self._numbers(path)
        except TableError as error:
            raise UnansweredCommitError(f"{path}: version {version} was made, and it is not known whether it counts: {error}") from error
        if version not in _newest(numbers):
            self._delete(path, version)
            raise VersionTakenError(f"{path}: version {version} was made and deleted already")
        for number in numbers:
            if number > version - VERSIONS_KEPT:
                break
            self._delete(path, number)
        return version

    def application_ids(self, path: str) -> set[str]:
        """Those of the newest version, which has them all."""
        snapshot = self.open(path)
        return set() if snapshot is None else set(cast("ManifestSnapshot", snapshot).content["offsets"])

    def commits(self, path: str, after: int) -> Iterator[TableCommit]:
        """The words of each version that is still there."""
        for number in self._versions(path):
            if number > after:
                try:
                    content = self._content(path, number)
                except FileNotFoundError:
                    continue
                yield TableCommit(number, content["commit"])

    def named_since(self, path: str, time_s: float) -> set[str]:
        """Those of the newest version, and of each that a version since then has followed."""
        newest = self.open(path)
        if newest is None:
            raise TableError(f"{path}: there is no table")
        found = {file.path for file in newest.files()}
        for each in self.commits(path, 0):
            if each.metadata.get("timestamp", 0) >= time_s * 1000:
                with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                    found |= {file["path"] for file in self._content(path, each.version - 1)["files"]}
        return found

    def row_changes(self, path: str, after: int, until: int) -> Iterator[RowChange]:
        """What each version changed, by its files and those of the version before it."""
        before: Mapping[str, Any] = {} if after < 0 else self._kept(path, after)
        for number in range(after + 1, until + 1):
            now = self._kept(path, number)
            words = now["commit"]
            if not words.get(_ROWS_CHANGE, words["operation"] not in _SAME_ROWS):
                yield RowChange(number, words)
            else:
                old, new = ({each["path"] for each in content.get("files", ())} for content in (before, now))
                adds = [DataFile(**each) for each in now["files"] if each["path"] not in old]
                yield RowChange(number, words, adds, len(old - new))
            before = now

    def _kept(self, path: str, version: int) -> dict[str, Any]:
        try:
            return self._content(path, version)
        except FileNotFoundError:
            raise VersionsDeletedError(f"{path}: version {version} was deleted") from None

    def _versions(self, path: str) -> list[int]:
        return _newest(self._numbers(path))

    def _numbers(self, path: str) -> list[int]:
        """Of all files that look like versions."""
        try:
            return numbers_in(place_of(path).names(FOLDER))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise TableError(f"{path}: cannot be looked at: {error.strerror or error}") from error

    def _content(self, path: str, version: int) -> dict[str, Any]:
        """The content of the file of a version. FileNotFoundError; TableError for a damaged one."""
        name = joined(path, name_of(FOLDER, version))
        try:
            content = json.loads(place_of(path).read(name_of(FOLDER, version)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise TableError(f"{name}: cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise TableError(f"{name}: no manifest: {error}") from None
        missing = [each for each in _NAMES if not isinstance(content, dict) or each not in content]
        if missing:
            raise TableError(f"{name}: no manifest: {missing[0]} is missing")
        return cast("dict[str, Any]", content)

    def _delete(self, path: str, version: int) -> None:
        """Delete the file of a version that is not needed; another writer may have done it, and after an error the next one does it."""
        with contextlib.suppress(OSError):
            place_of(path).delete([name_of(FOLDER, version)])

    def _write(self, path: str, content: Mapping[str, Any]) -> None:
        make_version(path, FOLDER, content["version"], dumped(content))


def _newest(numbers: Sequence[int]) -> list[int]:
    """Those of rising numbers that are versions."""
    newest = numbers[-VERSIONS_KEPT:]
    return [number for place, number in enumerate(newest, 1 - len(newest)) if number == newest[-1] + place]
