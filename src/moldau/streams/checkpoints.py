"""What Spark keeps in the checkpoint of a query, as far as a job reads it: the query's id, and what each batch was to read.

::

    metadata      {"id":"0c4e1a9e-..."}
    offsets/17    v1
                  {"batchWatermarkMs":1357000000000,"batchTimestampMs":1357000100000,"conf":{...}}
                  {"flights": {"0": 23, "1": 17, "id": "9f6c..."}}          one line for each input, `-` for one without offsets yet
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.streams.errors import CheckpointError

_VERSION = "v1"
_NOTHING = "-"
_NOTE_S = 30.0
_LOOK_S = 0.05

Positions = Mapping[str, Mapping[str, int]]
"""By topic and partition (as text): the next offset to read."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch as the checkpoint has it before its tasks run."""

    watermark_ms: int
    time_ms: int
    """`current_timestamp()` in all its tasks, also when it is run again."""
    ends: Positions
    """Up to where it reads."""
    inputs: tuple[Mapping[str, Mapping[str, Any]], ...] = ()
    """The same by the number of the input, with the ids of the topics."""


class Checkpoint:
    """The checkpoint of one query in a directory that this process sees. CheckpointError for files that cannot be read."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def run_id(self) -> str | None:
        """Spark's id of the query: another checkpoint has another one. None before its first start."""
        text = self._read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.directory}: metadata is not what Spark writes there: {error}") from error

    def batch(self, number: int) -> PlannedBatch:
        """What a batch was to read."""
        text = self._read(os.path.join("offsets", str(number)))
        if text is None:
            raise CheckpointError(f"{self.directory}: there is no plan of batch {number}")
        try:
            return parse_batch(text)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CheckpointError(f"{self.directory}: the plan of batch {number} cannot be read: {error}") from error

    def furthest(self, number: int) -> Positions:
        """Up to where a batch was to read; of several inputs of one topic the one that is further ahead."""
        text = self._read(os.path.join("offsets", str(number)))
        return {} if text is None else positions_of(text.splitlines()[2:], max)

    def wait_committed(self, number: int | None) -> None:
        """Wait until Spark has noted a batch as done that its sink has written, which takes it moments."""
        if number is None:
            return
        deadline = time.monotonic() + _NOTE_S
        while self.committed() != number:
            if time.monotonic() > deadline:
                raise CheckpointError(f"{self.directory}: batch {number} is written, and was not noted as done within {_NOTE_S:g} s")
            time.sleep(_LOOK_S)

    def committed(self) -> int | None:
        """The number of the newest batch that is done; None before the first."""
        return self._newest("commits")

    def is_complete(self) -> bool:
        """Whether the watermark that the newest batch gave is the one with which it ran: no later batch closes windows without new records.

        Of a query that keeps state; False while a batch is not done, but one that reads nothing and has no other watermark.
        """
        newest, number = self.newest(), self.committed()
        if newest is None:
            return True
        text = None if number is None else self._read(os.path.join("commits", str(number)))
        if text is None or number is None:
            return False
        try:
            after = int(json.loads(text.splitlines()[1])["nextBatchWatermarkMs"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CheckpointError(f"{self.directory}: the note of batch {number} cannot be read: {error}") from error
        done = self.batch(number)
        return after <= done.watermark_ms and (newest == number or self.batch(newest).inputs == done.inputs)

    def newest(self) -> int | None:
        """The number of the newest batch that has a plan; None before the first."""
        return self._newest("offsets")

    def _newest(self, name: str) -> int | None:
        folder = os.path.join(self.directory, name)
        try:
            return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=None)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{folder}: cannot be read: {(error.strerror or str(error)).lower()}") from error

    def _read(self, name: str) -> str | None:
        try:
            with open(os.path.join(self.directory, name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{self.directory}: {name} cannot be read: {(error.strerror or str(error)).lower()}") from error


def parse_batch(text: str) -> PlannedBatch:
    """A file of `offsets`. ValueError, KeyError, TypeError, IndexError."""
    version, words, *inputs = text.splitlines()
    if version != _VERSION:
        raise ValueError(f"it is of version {version}; {_VERSION} is read here")
    known = json.loads(words)
    each = tuple({} if line in (_NOTHING, "") else json.loads(line) for line in inputs)
    return PlannedBatch(int(known["batchWatermarkMs"]), int(known["batchTimestampMs"]), positions_of(inputs), each)


def positions_of(inputs: Sequence[str], of_two: Callable[[int, int], int] = min) -> Positions:
    """Of the offsets of several inputs, as JSON each; two inputs of one topic: the one that is further behind, or `of_two`."""
    found: dict[str, dict[str, int]] = {}
    for line in inputs:
        if line in (_NOTHING, "", "null"):
            continue
        topics: dict[str, dict[str, Any]] = json.loads(line)
        for topic, partitions in topics.items():
            if not topic:
                continue  # the round of its limits
            of_topic = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                if partition.isdecimal():
                    of_topic[partition] = of_two(int(offset), of_topic.get(partition, int(offset)))
    return found
