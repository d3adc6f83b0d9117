"""Which records each task of a load takes: it reads, decodes and writes them, so that nothing goes from one task to another."""

from collections.abc import Sequence

from moldau.lake.reading.offsets import OffsetRange

TASK_OFFSETS_MIN = 200_000
"""To load this many takes a task about as long as its Python process takes to start."""


def share_out(ranges: Sequence[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """The ranges in `count` parts or fewer, each offset in one of them.

    Task k of n takes the k-th n-th of every partition. What partitions have at about the same place is of about the same time, so most
    table partitions get their rows, and so their file, from one task.
    """
    parts = [[_part(each, number, count) for each in ranges] for number in range(count)]
    return [part for each in parts if (part := [wanted for wanted in each if wanted.size])]


def task_count(ranges: Sequence[OffsetRange], parallel: int, writers: int | None) -> int:
    """How many tasks: `writers`, if the job says so; otherwise as many as run at once, or fewer where there is little to load."""
    if writers is not None:
        return writers
    return max(1, min(parallel, sum(each.size for each in ranges) // TASK_OFFSETS_MIN))


def _part(wanted: OffsetRange, number: int, count: int) -> OffsetRange:
    return wanted._replace(start=wanted.start + wanted.size * number // count, end=wanted.start + wanted.size * (number + 1) // count)
