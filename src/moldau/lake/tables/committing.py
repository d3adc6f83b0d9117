"""How a table is changed: read, check, make the next version; if another writer was faster, begin again.

A job is known to a table by its application ids: those of the offsets, and its claim, which it makes where something of it must stand
before its first offsets do. Of jobs with different names only the first is let in, whether they come one after the other or at once.

Every check is made on the snapshot that the new version is made from, so nothing can come between. A load is refused when an offset is
not the one that it started from (another load was faster), when an offset would go down, when another process has taken the job over, and
when a job of another name has loaded the topic: that one need not have been there when the load was planned.
"""

import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moldau.lake.tables.data_files import remove_files
from moldau.lake.tables.format import Snapshot, TableChange, TableError, TableFormat, UnansweredCommitError, VersionTakenError

_CLAIM = "claim"


class OtherJobError(TableError):
    """A job of another name has loaded the topic into this table; the message names it."""


def application_id(job: str, topic_id: str, partition: int) -> str:
    """Name under which a table keeps the offset of one partition. A recreated topic has a new id, and starts from its beginning."""
    return f"moldau:{job}:{topic_id}:{partition}"


def jobs_of(application_ids: Iterable[str], topic_id: str) -> list[str]:
    """The jobs that have loaded or claimed a topic, by the application ids of a table."""
    parts = (name.rsplit(":", 2) for name in application_ids if name.startswith("moldau:") and name.count(":") > 2)  # not a writer's
    found = {job.removeprefix("moldau:") for job, id_, last in parts if id_ == topic_id and (last.isdecimal() or last == _CLAIM)}
    return sorted(found)


@dataclass(frozen=True, slots=True)
class TopicOwner:
    """A job that loads a topic into a table, and wants to be the only one."""

    job: str
    topic: str
    topic_id: str

    @property
    def claim_id(self) -> str:
        """The application id which marks only that this job loads the topic."""
        return f"moldau:{self.job}:{self.topic_id}:{_CLAIM}"

    def is_known(self, tables: TableFormat, path: str) -> bool:
        """Whether the table knows this job. OtherJobError if it knows another one and not this one.

        A table that two jobs have shared from of old knows both: neither adds a record twice from now on.
        """
        jobs = jobs_of(tables.application_ids(path), self.topic_id)
        if jobs and self.job not in jobs:
            raise OtherJobError(
                f"{path}: job {jobs[0]} loads topic {self.topic} into this table, and job {self.job} would load each record a "
                f"second time; load it under the name {jobs[0]}, or into another directory"
            )
        return bool(jobs)


COMMIT_TRIES = 100
WRITER = "moldau.writer"
"""Key of the writer's name in the words of its versions."""


class LoadConflictError(TableError):
    """Another load of the same job has committed meanwhile; this one has changed nothing."""


class LoadFencedError(LoadConflictError):
    """Another process has taken over this job on this table; this one must stop."""


@dataclass(frozen=True, slots=True)
class LoadedOffset:
    """How far one partition has been loaded: its application id, and the next offset; None before the first load."""

    application_id: str
    offset: int | None


def progress(snapshot: Snapshot | None, application_ids: Iterable[str]) -> list[LoadedOffset]:
    """What the snapshot has of each partition."""
    return [LoadedOffset(name, None if snapshot is None else snapshot.offset(name)) for name in application_ids]


@dataclass(slots=True)
class TableWriter:
    """One process that loads a job. Its first commit takes the job over: an older process is refused from then on.

    Who has taken a job over last stands in the table as an application id of its own, whose version goes up by one with each takeover.
    """

    job: str
    name: str = field(default_factory=lambda: f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%F %T')}")
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    epochs: dict[str, int] = field(default_factory=dict)
    """By table id: the number under which it has taken the job over."""

    @property
    def application_id(self) -> str:
        """Where the number of takeovers stands."""
        return f"moldau:{self.job}:writer"

    def claim(self, tables: TableFormat, path: str, snapshot: Snapshot) -> int | None:
        """The number of a takeover, or None if it is this process's table already. FencedError."""
        now, mine = snapshot.offset(self.application_id), self.epochs.get(snapshot.id)
        if mine is None:
            return (now or 0) + 1
        if now != mine:
            other = last_writer(tables, path, self.job)
            raise LoadFencedError(f"{path}: job {self.job} was taken over by {other}; this is {self.name}, which stops here")
        return None


def last_writer(tables: TableFormat, path: str, job: str, after: int = -1) -> str:
    """The name of the process that committed for a job last, as far as the log still has it."""
    found = "another process"
    for commit_ in tables.commits(path, after):
        if commit_.metadata.get("moldau.job") == job and WRITER in commit_.metadata:
            found = f"{commit_.metadata[WRITER]} (version {commit_.version})"
    return found


def commit(
    tables: TableFormat,
    path: str,
    change: TableChange,
    *,
    base: Snapshot | None = None,
    before: Sequence[LoadedOffset] = (),
    writer: TableWriter | None = None,
    owner: TopicOwner | None = None,
    only_on_base: bool = False,
) -> int:
    """Make a version with this change; its number.

    `base` is the snapshot that the files were written for: other columns since then are a conflict. `before` is what the load started
    from. `owner` is asked for the first commit of a job: a version in which another job has loaded its topic takes nothing of it. With
    `only_on_base` any version since `base` is a conflict. LoadConflictError, FencedError, OtherJobError, TableError for a table that is
    deleted or a disk that is full: nothing was changed.
    """
    for _ in range(COMMIT_TRIES):
        snapshot = _existing(tables, path)
        if only_on_base and base is not None and snapshot.version != base.version:
            raise LoadConflictError(f"{path}: another writer has made version {snapshot.version} since version {base.version}")
        _check_table(path, snapshot, base, change)
        epoch = None if writer is None else writer.claim(tables, path, snapshot)
        _check_offsets(tables, path, snapshot, before, change.offsets, writer)
        if owner is not None and all(known.offset is None for known in before):
            owner.is_known(tables, path)  # of `snapshot` or a newer version: then there is no version to be made after `snapshot`
        made = change
        if writer is not None:
            offsets = dict(change.offsets) if epoch is None else {**change.offsets, writer.application_id: epoch}
            made = replace(change, offsets=offsets, metadata={**change.metadata, WRITER: writer.name})
        try:
            version = tables.put(path, snapshot, made)
        except VersionTakenError:
            continue
        if writer is not None and epoch is not None:
            writer.epochs[snapshot.id] = epoch
        return version
    raise LoadConflictError(f"{path}: others were faster {COMMIT_TRIES} times in a row")


def check(tables: TableFormat, path: str, base: Snapshot, before: Sequence[LoadedOffset], writer: TableWriter) -> None:
    """Raise what `commit` would raise now for a load from `base`; nothing is made. LoadConflictError, FencedError, TableError."""
    snapshot = _existing(tables, path)
    _check_table(path, snapshot, base, TableChange("CHECK"))
    writer.claim(tables, path, snapshot)
    _check_offsets(tables, path, snapshot, before, {}, writer)


def discard(tables: TableFormat, path: str, files: Iterable[str], because: BaseException | None = None) -> None:
    """Remove data files below `path` whose commit was refused, or never tried. Those that the newest version names stay, whatever
    answer its writer had; all stay if there was no answer, since their version may still appear."""
    if isinstance(because, UnansweredCommitError):
        return
    try:
        snapshot = tables.open(path)
    except TableError:
        return
    named = set() if snapshot is None else {file.path for file in snapshot.files()}
    remove_files(path, [each for each in files if each not in named])


def set_properties(tables: TableFormat, path: str, properties: Mapping[str, str]) -> int | None:
    """Set some properties and keep the others; the version, or None if they were so already."""
    for _ in range(COMMIT_TRIES):
        snapshot = _existing(tables, path)
        wanted = {**snapshot.properties, **properties}
        if wanted == dict(snapshot.properties):
            return None
        try:
            return tables.put(path, snapshot, TableChange("SET PROPERTIES", properties=wanted))
        except VersionTakenError:
            continue
    raise LoadConflictError(f"{path}: others were faster {COMMIT_TRIES} times in a row")


def _existing(tables: TableFormat, path: str) -> Snapshot:
    snapshot = tables.open(path)
    if snapshot is None:
        raise TableError(f"{path}: the table was deleted")
    return snapshot


def _check_table(path: str, snapshot: Snapshot, base: Snapshot | None, change: TableChange) -> None:
    if base is not None:
        if snapshot.id != base.id:
            raise LoadConflictError(f"{path}: the table was deleted and recreated meanwhile")
        if snapshot.schema != base.schema:
            raise LoadConflictError(f"{path}: the columns of the table have changed since version {base.version}, which the files were for")
    if change.removes and snapshot.version != (base.version if base else None):
        there = {file.path for file in snapshot.files()}
        for file in change.removes:
            if file.path not in there:
                raise LoadConflictError(f"{path}: file {file.path} was replaced by another writer meanwhile")


def _check_offsets(
    tables: TableFormat, path: str, snapshot: Snapshot, before: Sequence[LoadedOffset], after: Mapping[str, Any], writer: TableWriter | None
) -> None:
    for known in before:
        now = snapshot.offset(known.application_id)
        if now != known.offset:
            by = "" if writer is None else f" by {last_writer(tables, path, writer.job)}"
            raise LoadConflictError(
                f"{path}: another load has moved {known.application_id} from offset {known.offset}, where this one started, to {now}{by}"
            )
    for name, offset in after.items():
        now = snapshot.offset(name)
        if now is not None and offset < now:
            raise LoadConflictError(f"{path}: {name} would go down from {now} to {offset}: no load may do that")
