"""The files in the folder of a table's versions: which there are, which are no longer needed, and what they say about removed files.

An old version may be deleted if nothing that is kept needs it: a reader of version V starts at the newest checkpoint up to V and reads the
versions after it. So all versions below the newest checkpoint at or below the oldest version that is kept can be deleted, the oldest first,
whatever dies in between. But the audit's counts of a load stand in the words of its version until they are published: a version whose
counts are not stays, and all after it.
"""

import contextlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from moldau.lake.loading.audit import FOLDER as NOTES
from moldau.lake.loading.counts import COUNTS_KEY

_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_LEFTOVER = re.compile(r"_moldau_[0-9a-f]{32}\.tmp")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the folder."""

    name: str
    size: int
    changed_s: float


@dataclass(frozen=True, slots=True)
class LogListing:
    """All files of the folder, and what they are by their names."""

    folder: str
    files: int
    bytes: int
    versions: Mapping[int, LogFile]
    checkpoints: Mapping[int, Sequence[LogFile]]
    """By version; a checkpoint may have several parts."""
    temporary: Sequence[LogFile]
    """Versions that are being made, or whose writers died."""

    @property
    def checkpoint(self) -> int | None:
        """The version of the newest checkpoint."""
        return max(self.checkpoints, default=None)


def list_log(folder: str) -> LogListing:
    """The files of a folder of versions. OSError."""
    files = size = 0
    versions: dict[int, LogFile] = {}
    parts: dict[tuple[int, int], list[LogFile]] = defaultdict(list)
    temporary: list[LogFile] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                state = entry.stat()
            except FileNotFoundError:  # a writer has just deleted it
                continue
            file = LogFile(entry.name, state.st_size, state.st_mtime)
            files, size = files + 1, size + file.size
            if found := _VERSION.fullmatch(entry.name):
                versions[int(found[1])] = file
            elif found := _CHECKPOINT.fullmatch(entry.name):
                parts[int(found[1]), int(found[2] or 1)].append(file)
            elif _LEFTOVER.fullmatch(entry.name):
                temporary.append(file)
    checkpoints = {version: found for (version, count), found in sorted(parts.items()) if len(found) == count}
    return LogListing(folder, files, size, dict(sorted(versions.items())), checkpoints, temporary)


def old_versions(listing: LogListing, kept_since_s: float) -> list[tuple[int, LogFile]]:
    """Versions and checkpoints, the oldest first, that no reader of a version needs which was the newest since then."""
    if not listing.versions:
        return []
    young = [version for version, file in listing.versions.items() if file.changed_s >= kept_since_s]
    # the version before the first young one was the newest when the time began
    oldest_kept = max(min(young) - 1, min(listing.versions)) if young else max(listing.versions)
    base = max((version for version in listing.checkpoints if version <= oldest_kept), default=None)
    if base is None:
        return []
    found = [(version, file) for version, file in listing.versions.items() if version < base]
    found += [(version, file) for version, files in listing.checkpoints.items() if version < base for file in files]
    return sorted(found, key=lambda each: (each[0], each[1].name))


def first_unpublished(path: str, table_id: str, listing: LogListing, versions: Iterable[int]) -> int | None:
    """The first of some versions that has counts which are not known to be in the audit; None if there is none."""
    audited = _audited(path, table_id)
    if not audited:
        return None
    for version in sorted(set(versions) & set(listing.versions)):
        words = _words(os.path.join(listing.folder, listing.versions[version].name))
        job = words.get("moldau.job")
        if words.get(COUNTS_KEY):
            published = [audited[key] for key in ((job, words.get("moldau.topic")), (job, None)) if key in audited]
            if published and version > max(published):
                return version
    return None


def _audited(path: str, table_id: str) -> dict[tuple[Any, Any], int]:
    """By job and topic up to which version the counts are published; -1 where there is a tier and none is yet."""
    found: dict[tuple[Any, Any], int] = {}
    folder = os.path.join(path, NOTES)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith(("published-", "tier-")) and name.endswith(".json"):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        note = json.load(file)
                    if note["table"] == table_id:
                        key = (note["job"], note.get("topic"))
                        found[key] = max(int(note.get("version", -1)), found.get(key, -1))
    return found


def _words(path: str) -> Mapping[str, Any]:
    """Of a version that is ours: they are its first line."""
    with contextlib.suppress(OSError, ValueError):
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.readline()).get("commitInfo")
        if isinstance(found, dict):
            return found
    return {}


def tombstone_times_ms(listing: LogListing) -> Iterator[int]:
    """When each file was removed whose entry readers still read: in the newest checkpoint, and in the versions after it. OSError."""
    newest = listing.checkpoint
    for part in () if newest is None else listing.checkpoints[newest]:
        with pq.ParquetFile(os.path.join(listing.folder, part.name)) as file:
            for batch in file.iter_batches(columns=["remove.path", "remove.deletionTimestamp"]):
                yield from (row["remove"].get("deletionTimestamp") or 0 for row in batch.to_pylist() if _is_removal(row))
    for version, log_file in listing.versions.items():
        if newest is None or version > newest:
            with contextlib.suppress(FileNotFoundError), open(os.path.join(listing.folder, log_file.name), encoding="utf-8") as text:
                for line in text:
                    if '"remove"' in line[:16]:
                        yield json.loads(line)["remove"].get("deletionTimestamp") or 0


def _is_removal(row: Mapping[str, Any]) -> bool:
    removal = row.get("remove")
    return removal is not None and removal.get("path") is not None
