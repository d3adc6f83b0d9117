"""What of a job fits its checkpoint: inputs, stateful operators and outputs of each query, in a file beside it, compared before a start.

Spark finds a query's inputs by their number and its state by the number of the operator, so that a changed query may read another
operator's state or fail in the middle of a batch. Compared are those parts that Spark cannot take otherwise; what stands between them may
change.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from moldau.adapters.whole_file import write_synced
from moldau.streams.errors import CheckpointError

FILE = "job.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator: what it is, and the parts on which its state depends."""

    name: str
    parts: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{name} {text}" for name, text in self.parts.items())])


@dataclass(frozen=True, slots=True)
class QueryShape:
    """What one query reads, keeps and writes."""

    inputs: tuple[str, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[str, ...]
    mode: str


@dataclass(frozen=True, slots=True)
class JobShape:
    """All queries of a job, by name."""

    job: str
    spark: str
    """Its version."""
    queries: Mapping[str, QueryShape]

    def to_json(self) -> dict[str, Any]:
        """As it is written."""
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "JobShape":
        """ValueError, KeyError, TypeError."""
        if value["version"] != _VERSION:
            raise ValueError(f"it is of version {value['version']}; version {_VERSION} is read here")
        queries = {
            name: QueryShape(
                tuple(each["inputs"]),
                tuple(Operator(one["name"], one["parts"]) for one in each["operators"]),
                tuple(each["outputs"]),
                each["mode"],
            )
            for name, each in value["queries"].items()
        }
        return cls(value["job"], value["spark"], queries)


def differences(before: JobShape, now: JobShape) -> list[str]:
    """What of `now` the checkpoint of `before` does not fit, a line each; empty if it fits. New queries have no checkpoint yet."""
    if before.job != now.job:
        return [f"it is the checkpoint of job {before.job}"]
    found = []
    if _version(now.spark) < _version(before.spark):
        found.append(f"it was written by Spark {before.spark}, and this is Spark {now.spark}")
    for name, was in before.queries.items():
        if name in now.queries:
            found += [f"query {name}: {each}" for each in _of_query(was, now.queries[name])]
    return found


def _of_query(was: QueryShape, now: QueryShape) -> list[str]:
    found = [
        *_of_list("input", was.inputs, now.inputs),
        *_of_operators(was.operators, now.operators),
        *(f"output {each} is no longer written" for each in was.outputs if each not in now.outputs),
        *(f"output {each} is new: it would miss the batches before" for each in now.outputs if each not in was.outputs),
    ]
    if was.mode != now.mode and was.operators:
        found.append(f"the output mode was {was.mode}, and is {now.mode}")
    return found


def _of_list(what: str, was: Sequence[str], now: Sequence[str]) -> list[str]:
    return [_change(f"{what} {number}", old, new) for number, (old, new) in enumerate(zip_longest(was, now), 1) if old != new]


def _of_operators(was: Sequence[Operator], now: Sequence[Operator]) -> list[str]:
    found = []
    for number, (old, new) in enumerate(zip_longest(was, now), 1):
        what = f"stateful operator {number}"
        if old is None or new is None or old.name != new.name:
            if old != new:
                found.append(_change(what, old, new))
            continue
        found += [
            _change(f"{what} ({old.name}), {part}", old.parts.get(part), new.parts.get(part))
            for part in dict.fromkeys([*old.parts, *new.parts])
            if old.parts.get(part) != new.parts.get(part)
        ]
    return found


def _change(what: str, old: object, new: object) -> str:
    if old is None:
        return f"{what} is new: {new}"
    if new is None:
        return f"{what} is missing: it was {old}"
    return f"{what} was {old}, and is {new}"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def read_shape(directory: str) -> JobShape | None:
    """The shape of the job whose checkpoints lie in `directory`; None if none has been started there. CheckpointError."""
    path = os.path.join(directory, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return JobShape.from_json(json.load(file))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: is not the shape of a job: {error}") from error


def write_shape(directory: str, shape: JobShape) -> None:
    """Whole, or as before. CheckpointError."""
    path = os.path.join(directory, FILE)
    try:
        write_synced(path, json.dumps(shape.to_json(), indent=1, sort_keys=True))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from error


def check_fit(directory: str, now: JobShape, *, fresh: bool = False) -> JobShape:
    """The shape to write there: that of `now`, and of queries that were there before. CheckpointError names each difference.

    With `fresh`, only another job's directory is refused: the checkpoints there will be set aside.
    """
    before = read_shape(directory)
    if before is None or (fresh and before.job == now.job):
        return now
    found = differences(before, now)
    if found:
        fresh_way = "; or run it with --fresh, which begins again and writes to the outputs again what they have already"
        raise CheckpointError(
            f"job {now.job} does not fit the checkpoint in {directory}; nothing was read or written. "
            f"{'; '.join(found)}. Undo the change, or give the job another name, directory and outputs"
            f"{fresh_way if before.job == now.job else ''}"
        )
    return JobShape(now.job, now.spark, {**before.queries, **now.queries})


def set_aside(directory: str, queries: Iterable[str]) -> str | None:
    """Move the checkpoints of these queries, and then the shape, into a new folder of `directory`, and return it; None if there are none.

    CheckpointError; what was moved before stays where it is then.
    """
    there = [name for name in (*sorted(queries), FILE) if os.path.lexists(os.path.join(directory, name))]
    if not there:
        return None
    folder = os.path.join(directory, datetime.now(UTC).strftime("_before-%Y%m%dT%H%M%S.%fZ"))
    try:
        os.mkdir(folder)
        for name in there:
            os.rename(os.path.join(directory, name), os.path.join(folder, name))
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be made of the checkpoints: {(error.strerror or str(error)).lower()}") from error
    return folder
