"""What the tasks of a batch have counted of the inputs of a query.

Tasks count those whose event times they make (`moldau.lake.reading.event_times`). The others, whose times are expressions of Spark, Spark
counts (`observe`), which takes it twice as long.
"""

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from moldau.lake.reading.counting import FoundCounts, adjoining, read_counts
from moldau.lake.reading.input_counts import InputCounts
from moldau.lake.reading.offsets import OffsetRange
from moldau.streams.checkpoints import Checkpoint
from moldau.streams.errors import BatchError
from moldau.streams.late import batch_range
from moldau.streams.outputs import BatchNumber
from moldau.streams.plans import StreamInput

log = logging.getLogger(__name__)

FOLDER: Final = "counts"
"""Below a checkpoint: what the tasks of the batch that is being written have counted."""
Part = TypeVar("Part")


def parts_read(
    found: Mapping[OffsetRange, Part], topic: str, start: Mapping[str, Any], end: Mapping[str, Any]
) -> tuple[list[Part], list[str]]:
    """Of ranges those that a batch was to read of a topic, each record once; and the partitions of which not all is there."""
    starts, ends = batch_range(topic, start, end)
    parts: list[Part] = []
    missing: list[str] = []
    for partition, last in ends.items():
        ranges = [each for each in found if (each.topic, str(each.partition)) == (topic, partition)]
        is_new = starts[partition] < 0  # it is read from its first record; nothing, if it has none
        chosen = () if is_new and not ranges else adjoining(ranges, None if is_new else starts[partition], last)
        if chosen is None:
            missing.append(f"{topic}-{partition}")
        parts += [found[each] for each in chosen or ()]
    return parts, missing


class TaskCounted:
    """The inputs of a query that its tasks count, by name, and where they leave what they count, for the audit too."""

    def __init__(self, inputs: Mapping[str, StreamInput], checkpoint: Checkpoint) -> None:
        self.inputs = inputs
        self.directory = os.path.join(os.path.abspath(checkpoint.directory), FOLDER)

    def read(self, batch: BatchNumber) -> FoundCounts:
        """What tasks have left of this batch. BatchError."""
        try:
            return read_counts(self.directory)
        except (OSError, ValueError) as error:
            raise BatchError(f"query {batch.query}: the counts of batch {batch.number} cannot be read: {error}") from error

    def counts(self, batch: BatchNumber, found: FoundCounts, starts: Sequence[Mapping[str, Any]]) -> dict[str, InputCounts | None]:
        """Of each input; None of one of which the query has not read all."""
        counts: dict[str, InputCounts | None] = {}
        for name, each in self.inputs.items():
            parts, missing = parts_read(found.inputs.get(name, {}), each.topic, starts[each.number], batch.planned.inputs[each.number])
            counts[name] = None if missing else sum_of(parts)
            for where in missing:
                log.warning("query %s, batch %d: not all of %s was read: the job's counts miss it", batch.query, batch.number, where)
        return counts

    def clear(self) -> None:
        """Nothing is left of a batch, or of an attempt at one."""
        shutil.rmtree(self.directory, ignore_errors=True)


def sum_of(parts: list[InputCounts]) -> InputCounts:
    """Of all parts."""
    total = InputCounts()
    for each in parts:
        total = total.plus(each)
    return total
