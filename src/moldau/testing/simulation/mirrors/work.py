"""What a process of a simulated mirror does, and how it stands with its partitions."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from moldau.mirror.fetched import Limits
from moldau.mirror.partitions import Halt, SourcePartition

MIRROR = "m"
"""The name of a mirror that is alone."""
SOURCE = "source"
"""What mirrors call the cluster that they read."""


class Sharing(Enum):
    """Which program a process runs."""

    ALL_TO_ONE = "all to one"
    """`mirrors.member`: a merge whose partitions go to one process, and to another one often."""
    MERGE = "merge"
    """That of `moldau mirror run`, with the real sharing, orders and reports."""
    COPY = "copy"
    """The same, of a copy."""


class WorkPlan(NamedTuple):
    """What a process is started with."""

    instance: str
    topics: Mapping[str, int]
    """Names, and how many partitions each has."""
    session_timeout_s: float = 6.0
    limits: Limits = Limits()
    sharing: Sharing = Sharing.ALL_TO_ONE
    mirror: str = MIRROR


class Progress(NamedTuple):
    """How a process stands with a partition that it has."""

    position: int | None
    """Where it is read next, as the target has it; None: not known yet."""
    halt: Halt | None
    """Why it stands still."""


class Work(Protocol):
    """A program."""

    async def run(self) -> None:
        """Mirror, until another process has the name of this instance."""

    def progress(self) -> Mapping[SourcePartition, Progress]:
        """Of the partitions that it has, and of those that it has halted."""
