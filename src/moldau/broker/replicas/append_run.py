"""The shortest form of an append: plain batches of one connection for one partition, each acknowledged by the write.

Rows instead of objects: a batch is a ticket, by which its connection knows it, and its base offset. A run is opened only where the write
alone acknowledges (`AppendPipeline.open_run`), and may be used while the permit epoch is the one in which it was opened. That is one number
for the whole broker: a change of any partition has each connection open its run again, which takes some microseconds, and no list of
permits is kept.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.model.errors import StorageError

RunSettled = Callable[["AppendRun", "Mapping[HostedPartition, StorageError]"], object]
"""Answers the rows of a run after the write, with the logs whose write failed (see `AppendRun.written`), and empties the run."""


class RunQueue(Protocol):
    """Where runs are kept that have rows."""

    def append(self, run: "AppendRun", /) -> object:
        """Add one."""


class StagedAppends(Protocol):
    """What an `AppendPipeline` has staged."""

    @property
    def dirty(self) -> "list[HostedPartition]":
        """The partitions with staged bytes."""

    @property
    def unwritten(self) -> RunQueue:
        """Appends that are staged, in this order."""


class PermitEpoch:
    """Counts the changes after which a permission to append without asking has to be asked for again."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class AppendRun:
    """See the module.

    Invariant: between turns of the loop it has no rows. The two lists stay the same objects, so that their methods can be kept.
    """

    __slots__ = ("_appends", "append_time_ms", "base_offsets", "epoch", "partition", "settled", "tickets")

    settled: RunSettled | None
    """While it has rows."""

    def __init__(self, appends: StagedAppends, partition: "HostedPartition", epoch: int) -> None:
        self._appends = appends
        self.partition = partition
        self.epoch = epoch
        self.settled = None
        self.append_time_ms = -1
        """Of all rows: those of one read have the same."""
        self.tickets: list[int] = []
        self.base_offsets: list[int] = []

    def begin(self, append_time_ms: int, settled: RunSettled) -> None:
        """The first row was staged in the log, and is about to be noted."""
        self.append_time_ms = append_time_ms
        self.settled = settled
        self._appends.unwritten.append(self)
        if self.partition.staged_bytes == 0:
            self._appends.dirty.append(self.partition)

    def fresh(self) -> "AppendRun":
        """Another run for what follows the rows so far, which stay with this one."""
        return AppendRun(self._appends, self.partition, self.epoch)

    def written(self, failures: "Mapping[HostedPartition, StorageError]") -> "tuple[int, StorageError | None]":
        """How many of the rows are in the log, the first ones, and why the others are not."""
        error = failures.get(self.partition)
        if error is None:
            return len(self.tickets), None
        log = self.partition.log
        return bisect_left(self.base_offsets, log.log_end_offset) if self.partition.is_led else 0, error
