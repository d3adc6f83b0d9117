"""A savepoint: a copy of a job's checkpoints, taken while no query writes a batch.

::

    savepoint.json     what it is of: job, generation, time, and of each query id, last batch, watermark and positions
    job.json           the job's shape
    QUERY/             Spark's checkpoint

A start from it gives the checkpoints new ids, so that outputs take the numbers of its batches as those of another run.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from moldau.streams.checkpoints import Positions
from moldau.streams.errors import CheckpointError
from moldau.streams.reports import QueryReport
from moldau.streams.shape import FILE as SHAPE
from moldau.streams.shape import JobShape, differences, read_shape, write_shape
from moldau.tracking.clock import now_ms

FILE = "savepoint.json"
_VERSION = 1


def write_savepoint(to: str, job: str, generation: int, directory: str, queries: Sequence[QueryReport]) -> None:
    """Copy what is in `directory` while nothing is written there. Whole, or not there. CheckpointError."""
    to = to.rstrip("/")
    if os.path.lexists(to):
        raise CheckpointError(f"{to}: exists already: a savepoint is made in a directory of its own")
    partial = f"{to}.partial-{uuid.uuid4().hex[:8]}"
    try:
        os.makedirs(partial)
        for query in queries:
            if os.path.isdir(os.path.join(directory, query.name)):
                _copy(os.path.join(directory, query.name), os.path.join(partial, query.name))
        _copy_file(os.path.join(directory, SHAPE), os.path.join(partial, SHAPE))
        words = {
            "version": _VERSION,
            "job": job,
            "generation": generation,
            "time_ms": now_ms(),
            "queries": [asdict(each) for each in queries],
        }
        with open(os.path.join(partial, FILE), "w", encoding="utf-8") as file:
            json.dump(words, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, to)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"{to}: cannot be written: {error.filename}: {(error.strerror or str(error)).lower()}") from error


def _copy(source: str, target: str) -> None:
    """A directory; state that Spark removes meanwhile is older than what a start needs, and what it has not named yet is none."""
    os.makedirs(target, exist_ok=True)
    for entry in sorted(os.scandir(source), key=lambda each: each.name):
        if entry.is_dir():
            _copy(entry.path, os.path.join(target, entry.name))
        elif not entry.name.endswith(".tmp") and not entry.name.endswith(".tmp.crc"):
            with contextlib.suppress(FileNotFoundError):
                _copy_file(entry.path, os.path.join(target, entry.name))


def _copy_file(source: str, target: str) -> None:
    with open(source, "rb") as read, open(target, "wb") as written:
        shutil.copyfileobj(read, written)
        written.flush()
        os.fsync(written.fileno())


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that a job starts from."""

    directory: str
    generation: int
    shape: JobShape
    positions: dict[str, Positions]
    """By query."""

    @classmethod
    def read(cls, directory: str, job: str) -> "Savepoint":
        """CheckpointError for one of another job, and for what is none."""
        path = os.path.join(directory, FILE)
        try:
            with open(path, encoding="utf-8") as file:
                words: dict[str, Any] = json.load(file)
            if words["version"] != _VERSION:
                raise ValueError(f"it is of version {words['version']}; version {_VERSION} is read here")
            of, generation = str(words["job"]), int(words["generation"])
            positions = {each["name"]: each["positions"] for each in words["queries"]}
        except FileNotFoundError as error:
            raise CheckpointError(f"{directory}: there is no savepoint: it has no {FILE}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        if of != job:
            raise CheckpointError(f"{directory}: is a savepoint of job {of}, not of {job}")
        shape = read_shape(directory)
        if shape is None:
            raise CheckpointError(f"{directory}: the savepoint has no {SHAPE}")
        return cls(directory, generation, shape, positions)

    def checked(self, now: JobShape) -> JobShape:
        """`now`, if the savepoint fits it: outputs apart, which are those of the generation that starts. CheckpointError."""
        queries = {name: replace(was, outputs=now.queries[name].outputs) for name, was in self.shape.queries.items() if name in now.queries}
        if found := differences(replace(self.shape, queries=queries), now):
            raise CheckpointError(
                f"job {now.job} does not fit the savepoint in {self.directory}; nothing was read or written. {'; '.join(found)}. Undo the "
                f"change, or reprocess from an offset or a time"
            )
        return now

    def restore(self, directory: str, now: JobShape) -> None:
        """Put its checkpoints of the queries that the job has into `directory`, with new ids. CheckpointError."""
        self.checked(now)
        try:
            os.makedirs(directory, exist_ok=True)
            for name in now.queries:
                source, target = os.path.join(self.directory, name), os.path.join(directory, name)
                if not os.path.isdir(source):
                    continue
                shutil.rmtree(target, ignore_errors=True)  # of a start that died before it wrote the shape
                partial = f"{target}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                _copy(source, partial)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(partial, ".metadata.crc"))
                with open(os.path.join(partial, "metadata"), "w", encoding="utf-8") as file:
                    json.dump({"id": str(uuid.uuid4())}, file)
                os.rename(partial, target)
        except OSError as error:
            raise CheckpointError(f"{directory}: the savepoint cannot be copied there: {(error.strerror or str(error)).lower()}") from error
        write_shape(directory, now)
