"""A partition that a process of a merge has, and what was fetched of it."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from moldau.mirror.fetched import Fetched
from moldau.mirror.merge.positions import Key
from moldau.mirror.partitions import Position, SourcePartition


class Given(NamedTuple):
    """What is known of a partition: its key, the target's cluster id, and where it begins if nothing of it has been mirrored."""

    key: Key
    target_id: str
    start: Callable[[], Awaitable[Position]]


class Waiting(NamedTuple):
    """What was fetched and is not written yet."""

    before: Position
    fetched: Fetched
    round: int
    """The reading of the source's `Origins` that has to end before."""


class Part:
    """See the module."""

    __slots__ = ("fetched", "given", "partition", "read", "size", "written")

    def __init__(self, partition: SourcePartition, given: Given) -> None:
        self.partition = partition
        self.given = given
        self.fetched: deque[Waiting] = deque()
        """Not written yet."""
        self.size = 0
        """Bytes of these."""
        self.read = Position(0)
        """After what was taken last."""
        self.written = Position(0)
        """After the last transaction that was committed."""
