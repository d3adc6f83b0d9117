"""How much of what is there goes into one micro-batch: admission control, as Spark's Kafka connector does it; and into how many tasks."""

from collections.abc import Mapping, Sequence

from moldau.lake.reading.offsets import OffsetRange
from moldau.model.identity import TopicPartition

Offsets = Mapping[TopicPartition, int]
TASK_OFFSETS_MIN = 5_000
"""To read so many takes about as long as Spark takes to start a Python task."""


def admitted(starts: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """New ends, so that about `most` offsets are read, from each partition in proportion to what waits there.

    A partition that has anything gives at least one offset, else a small one would starve beside large ones: with more such partitions
    than `most`, that many are read.
    """
    sizes = {partition: end - starts[partition] for partition, end in ends.items() if end > starts[partition]}
    if sum(sizes.values()) <= most:
        return dict(ends)
    more, weight = max(0, most - len(sizes)), sum(size - 1 for size in sizes.values())
    chosen, passed = dict(ends), 0
    for partition, size in sizes.items():
        before, passed = passed, passed + size - 1
        share = passed * more // weight - before * more // weight if weight else 0  # what all of them lose by rounding adds up to nothing
        chosen[partition] = starts[partition] + 1 + share
    return chosen


def waiting(starts: Offsets, ends: Offsets) -> int:
    """Offsets between them."""
    return sum(max(0, end - starts[partition]) for partition, end in ends.items())


def share_tasks(ranges: Sequence[OffsetRange], least: int = TASK_OFFSETS_MIN) -> list[list[OffsetRange]]:
    """Ranges of a micro-batch by task: small ones share one, until it has `least` offsets."""
    tasks: list[list[OffsetRange]] = []
    size = least
    for wanted in ranges:
        if size >= least:
            tasks.append([])
            size = 0
        tasks[-1].append(wanted)
        size += wanted.size
    return tasks


class Patience:
    """Whether a batch waits for more: while less than `least` offsets are there, but at most `delay_ms` after the last batch.

    The first batch of a run does not wait.
    """

    def __init__(self, least: int, delay_ms: int) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._last_ms: float | None = None

    def waits(self, offsets: int, now_ms: float) -> bool:
        """Whether to wait now, with so many offsets there; otherwise a batch begins now."""
        if self._last_ms is not None and offsets < self._least and now_ms - self._last_ms < self._delay_ms:
            return True
        if offsets:
            self._last_ms = now_ms
        return False
