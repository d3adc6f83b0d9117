"""Which version of a secondary store a batch reads: noted beside the checkpoint by the first task that needs it, read by all others.

::

    QUERY/versions/17-planes.json      {"version": 8, "id": "0c4e..."}       a table
    QUERY/versions/17-airports.json    {"offsets": {"0": 23, "1": 17}, "starts": {"0": 0, "1": 4}, "id": "9f6c...", ...}    a topic

A note is made whole, under a name that can be taken once, before any row of the batch leaves the task. So all tasks of a batch, and the
batch when it is run again after a crash, read the same version. A savepoint or a checkpoint that is set aside takes its notes along.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from moldau.streams.checkpoints import Checkpoint
from moldau.streams.errors import CheckpointError

FOLDER = "versions"
_KEPT = 200
"""Spark keeps the plans of 100 batches."""
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's properties of the tasks of a stream."""

_GENERATION = "@"
"""Begins the names of directories below the job's with the checkpoints of other generations of the job."""

Note = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """The batch whose task this process runs."""

    run: str
    """Spark's id of the query, as in its checkpoint."""
    number: int


def current_batch() -> TaskBatch | None:
    """None outside a stream, where a DataFrame that is no stream is looked at."""
    from pyspark import TaskContext

    context = TaskContext.get()
    run, number = (None, None) if context is None else (context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID))
    return None if run is None or number is None else TaskBatch(run, int(number))


def noted(directory: str, store: str, batch: TaskBatch, newest: Callable[[], Note]) -> Note:
    """The note of a store for a batch of a job with this directory; `newest` is noted if there is none yet. CheckpointError."""
    folder = os.path.join(checkpoint_of(directory, batch.run), FOLDER)
    path = os.path.join(folder, f"{batch.number}-{store}.json")
    try:
        found = _read(path)
        if found is not None:
            return found
        if not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
            _sync(os.path.dirname(folder))
        if _made(folder, path, newest()):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, f"{batch.number - _KEPT}-{store}.json"))
        found = _read(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CheckpointError(f"{path}: the version of the batch cannot be noted or read: {reason or error}") from error
    assert found is not None, f"{path} was deleted by another process"
    return found


_checkpoints: dict[tuple[str, str], str] = {}


def checkpoint_of(directory: str, run: str) -> str:
    """The directory of the checkpoint with this id, below that of a job. CheckpointError."""
    known = _checkpoints.get((directory, run))
    if known is not None:
        return known
    try:
        generations = [each for each in sorted(os.listdir(directory)) if each.startswith(_GENERATION)]
        places = [os.path.join(directory, *each) for each in ((), *((name,) for name in generations))]
        found = [os.path.join(place, name) for place in places for name in sorted(os.listdir(place))]
    except OSError as error:
        raise CheckpointError(f"{directory}: cannot be read by a task: {(error.strerror or str(error)).lower()}") from error
    for path in found:
        if os.path.isdir(path) and Checkpoint(path).run_id() == run:
            return _checkpoints.setdefault((directory, run), path)
    raise CheckpointError(f"{directory}: has no checkpoint of id {run}; all processes of Spark have to see the directory of the job")


def _read(path: str) -> Note | None:
    try:
        with open(path, encoding="utf-8") as file:
            found: Note = json.load(file)
            return found
    except FileNotFoundError:
        return None


def _made(folder: str, path: str, note: Note) -> bool:
    """Whether this process was the first; the note is on disk then."""
    descriptor, partial = tempfile.mkstemp(dir=folder, prefix=".note.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(note, file, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(partial)
    _sync(folder)
    return True


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
