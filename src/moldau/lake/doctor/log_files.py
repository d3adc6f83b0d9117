"""The files in the folder of a table's versions: which there are, which are no longer needed, and what they say about removed files.

An old version may be deleted if nothing that is kept needs it: a reader of version V starts at the newest checkpoint up to V and reads the
versions after it. So all versions below the newest checkpoint at or below the oldest version that is kept can be deleted, the oldest first,
whatever dies in between. But the audit's counts of a load stand in the words of its version until they are published: a version whose
counts are not stays, and all after it.
"""

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from moldau.lake.counts import COUNTS_KEY
from moldau.lake.loading.audit import FOLDER as NOTES
from moldau.lake.tables.places.addresses import place_of
from moldau.lake.tables.places.place import FileState, Place

_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_LEFTOVER = re.compile(r"_moldau_[0-9a-f]{32}\.tmp")


@dataclass(frozen=True, slots=True)
class LogListing:
    """All files of the folder, and what they are by their names."""

    place: Place
    files: int
    bytes: int
    versions: Mapping[int, FileState]
    checkpoints: Mapping[int, Sequence[FileState]]
    """By version; a checkpoint may have several parts."""
    temporary: Sequence[FileState]
    """Versions that are being made, or whose writers died."""

    @property
    def checkpoint(self) -> int | None:
        """The version of the newest checkpoint."""
        return max(self.checkpoints, default=None)


def list_log(path: str, folder: str) -> LogListing:
    """The files of the folder of versions of the table at `path`. OSError."""
    place = place_of(path)
    files = size = 0
    versions: dict[int, FileState] = {}
    parts: dict[tuple[int, int], list[FileState]] = defaultdict(list)
    temporary: list[FileState] = []
    for file in place.states(folder):
        files, size = files + 1, size + file.size
        name = file.name.removeprefix(f"{folder}/")
        if found := _VERSION.fullmatch(name):
            versions[int(found[1])] = file
        elif found := _CHECKPOINT.fullmatch(name):
            parts[int(found[1]), int(found[2] or 1)].append(file)
        elif _LEFTOVER.fullmatch(name):
            temporary.append(file)
    checkpoints = {version: found for (version, count), found in sorted(parts.items()) if len(found) == count}
    return LogListing(place, files, size, dict(sorted(versions.items())), checkpoints, temporary)


def old_versions(listing: LogListing, kept_since_s: float) -> list[tuple[int, FileState]]:
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
        words = _words(listing.place, listing.versions[version].name)
        job = words.get("moldau.job")
        if words.get(COUNTS_KEY):
            published = [audited[key] for key in ((job, words.get("moldau.topic")), (job, None)) if key in audited]
            if published and version > max(published):
                return version
    return None


def _audited(path: str, table_id: str) -> dict[tuple[Any, Any], int]:
    """By job and topic up to which version the counts are published; -1 where there is a tier and none is yet."""
    found: dict[tuple[Any, Any], int] = {}
    place = place_of(path)
    with contextlib.suppress(FileNotFoundError):
        for name in place.names(NOTES):
            if name.startswith(("published-", "tier-")) and name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
                    note = json.loads(place.read(f"{NOTES}/{name}"))
                    if note["table"] == table_id:
                        key = (note["job"], note.get("topic"))
                        found[key] = max(int(note.get("version", -1)), found.get(key, -1))
    return found


def _words(place: Place, name: str) -> Mapping[str, Any]:
    """Of a version that is ours: they are its first line. OSError."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        found = json.loads(place.read(name).partition(b"\n")[0]).get("commitInfo")
        if isinstance(found, dict):
            return found
    return {}


def tombstone_times_ms(listing: LogListing) -> Iterator[int]:
    """When each file was removed whose entry readers still read: in the newest checkpoint, and in the versions after it. OSError."""
    newest = listing.checkpoint
    for part in () if newest is None else listing.checkpoints[newest]:
        with pq.ParquetFile(listing.place.source(part.name)) as file:
            for batch in file.iter_batches(columns=["remove.path", "remove.deletionTimestamp"]):
                yield from (row["remove"].get("deletionTimestamp") or 0 for row in batch.to_pylist() if _is_removal(row))
    after = [each.name for version, each in listing.versions.items() if newest is None or version > newest]
    for _, content in listing.place.read_all(after):
        for line in content.splitlines():
            if b'"remove"' in line[:16]:
                yield json.loads(line)["remove"].get("deletionTimestamp") or 0


def _is_removal(row: Mapping[str, Any]) -> bool:
    removal = row.get("remove")
    return removal is not None and removal.get("path") is not None
