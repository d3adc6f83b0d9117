"""The shortest form of an append: plain batches of one connection for one partition, acknowledged by the write or by the replicas.

Rows instead of objects: a batch is a ticket, by which its connection knows it, and its base offset. All rows of a read that have to be
replicated wait as one at the gate. A run is opened where nothing else is waited for (`AppendPipeline.open_run`), and may be used while
the permit epoch is the one in which it was opened. That is one number for the whole broker: a change of any partition has each connection
open its run again, which takes some microseconds, and no list of permits is kept.
"""

from bisect import bisect_left
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.partition_events import Level
    from moldau.model.errors import PeerError, StorageError

_base_offset = itemgetter(1)


if TYPE_CHECKING:

    class RunOwner(Protocol):
        """Answers the rows of a run."""

        def settle(self, run: "AppendRun", failures: "Mapping[HostedPartition, PeerError | StorageError]") -> None:
            """The write is over, and failed for these logs (see `AppendRun.written`): answer the rows, and empty the run."""

        def abort(self) -> None:
            """A bug in `settle` leaves requests without an answer: end the connection, so that their client learns of it."""

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
        def unwritten(self) -> "RunQueue":
            """Appends that are staged, in this order."""


class PermitEpoch:
    """Counts the changes after which a permission to append without asking has to be asked for again."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class AppendRun:
    """See the module.

    Invariant: between turns of the loop it has no rows. The list stays the same object, which its owner may keep.
    """

    __slots__ = ("_appends", "append_time_ms", "epoch", "level", "owner", "partition", "rows", "stage")

    owner: "RunOwner | None"
    """While it has rows: it keeps the run."""

    def __init__(self, appends: "StagedAppends", partition: "HostedPartition", epoch: int, level: "Level") -> None:
        self._appends = appends
        self.partition = partition
        self.stage = partition.log.append_as_leader
        """Stages a batch; its row is noted after that."""
        self.epoch = epoch
        self.level = level
        """What the acknowledgement of its rows waits for: WRITTEN or REPLICATED."""
        self.owner = None
        self.append_time_ms = -1
        """Of all rows: those of one read have the same."""
        self.rows: list[tuple[int, int]] = []
        """Ticket and base offset of each batch."""

    def begin(self, append_time_ms: int, owner: "RunOwner") -> None:
        """The first row was staged in the log, and is about to be noted."""
        self.append_time_ms = append_time_ms
        self.owner = owner
        appends, partition = self._appends, self.partition
        appends.unwritten.append(self)
        if partition.staged_bytes == 0:
            appends.dirty.append(partition)

    def fresh(self) -> "AppendRun":
        """Another run for what follows the rows so far, which stay with this one."""
        return AppendRun(self._appends, self.partition, self.epoch, self.level)

    def give_up(self) -> None:
        """Empty the run: its rows are not answered any more."""
        self.owner = None
        self.rows.clear()

    def written(self, failures: "Mapping[HostedPartition, PeerError | StorageError]") -> "tuple[int, PeerError | StorageError | None]":
        """How many of the rows are in the log, the first ones, and why the others are not."""
        error = failures.get(self.partition)
        if error is None:
            return len(self.rows), None
        log = self.partition.log
        return bisect_left(self.rows, log.log_end_offset, key=_base_offset) if self.partition.is_led else 0, error
