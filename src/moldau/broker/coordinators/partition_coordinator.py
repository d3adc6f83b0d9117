"""The coordinator of one partition of an internal topic: its phase, its state, and the queue of writes that are not committed yet.

Writes are applied and answered in the order of the log, in whatever order the log answers: one whose answer comes before that of an
earlier write waits for it. The rules and the table of phases are in :mod:`moldau.broker.coordinators.runtime`.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from moldau.model.errors import PeerError
from moldau.model.steps import Steps, Suspension

if TYPE_CHECKING:
    from collections.abc import Hashable

    from moldau.broker.admission.state import Budget
    from moldau.broker.coordinators.deadlines import Deadlines
    from moldau.broker.coordinators.state_log import Done, KeyValue, LoadedBatch, StateLog, TransactionalProducer

_LOG = logging.getLogger(__name__)

NO_OFFSET = -1
APPENDING = -2
"""The base offset of a write while the log has not returned it."""


class CoordinatorState(Protocol):
    """What one kind of coordinator keeps of a partition."""

    def replay(self, batch: "LoadedBatch") -> None:
        """Apply the next batch of the log. Records that cannot be understood are left out."""

    def finish_replay(self) -> Steps:
        """The log has been read to its end: in steps, make what was read ready to be served. It may write."""

    def loaded(self) -> None:
        """The coordinator is active from now on."""

    def resigned(self, error: PeerError) -> Steps:
        """In steps, which begin at once, answer `error` to those who wait for something other than a write, and release all memory. The
        last call.
        """

    def memory(self) -> "Sequence[Budget]":
        """The budgets that bound it, together with the state of other partitions."""


S = TypeVar("S", bound=CoordinatorState)


class Runtime(Protocol[S]):
    """What the coordinators of all partitions share: :class:`moldau.broker.coordinators.runtime.CoordinatorRuntime`."""

    @property
    def topic(self) -> str:
        """The internal topic."""

    @property
    def log(self) -> "StateLog":
        """Where its records go."""

    @property
    def deadlines(self) -> "Deadlines":
        """The timers."""

    @property
    def make_state(self) -> "Callable[[PartitionCoordinator[S]], S]":
        """Makes the state of a partition."""

    def write_lost(self, coordinator: "PartitionCoordinator[S]", error: PeerError) -> None:
        """A write is in the log and will not be committed."""

    def failed_by_bug(self, coordinator: "PartitionCoordinator[S]") -> None:
        """See `PartitionCoordinator.fail`."""

    def not_coordinator(self, partition: int) -> PeerError:
        """The error for a partition without a coordinator here."""


class Phase(Enum):
    """How far a partition is."""

    LOADING = "loading"
    ACTIVE = "active"
    REFUSED = "refused"
    """Its state does not fit into memory; nothing is lost."""
    FAILED = "failed"
    """It cannot be read."""
    RESIGNED = "resigned"


class _Write:
    """A write that is not applied yet, or what waits for those before it."""

    __slots__ = ("base_offset", "committed", "done", "error", "is_answered", "owner")

    def __init__(self, owner: "PartitionCoordinator[Any]", committed: "Callable[[int], object] | None", done: "Done") -> None:
        self.owner = owner
        self.committed = committed
        self.done = done
        self.base_offset = APPENDING
        self.is_answered = False
        self.error: PeerError | None = None

    def answered(self, error: PeerError | None) -> None:
        """The log has committed it, or not; inside `append` or later."""
        self.error = error
        self.is_answered = True
        if self.base_offset != APPENDING:
            self.owner.settle(self)


class PartitionCoordinator(Generic[S]):
    """The coordinator of one partition, from its election until it resigns; then `is_over`.

    Invariant: `_writes` has the writes that are in the log, or being appended, and are not applied, in the order of the log.
    """

    __slots__ = ("_is_settling", "_runtime", "_writes", "epoch", "has_replayed", "is_over", "now_ms", "partition", "phase", "state")

    def __init__(self, runtime: Runtime[S], partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        """The leader epoch of the partition; markers carry it."""
        self.phase = Phase.LOADING
        self.has_replayed = False
        """Whether all that the log had has been replayed, so that `finish_replay` may write."""
        self._runtime = runtime
        self.now_ms: Callable[[], int] = runtime.deadlines.now_ms
        """The time of deadlines, in milliseconds that never go back."""
        self.is_over = False
        """Whether it has resigned."""
        self._writes: deque[_Write] = deque()
        self._is_settling = False
        self.state: S = runtime.make_state(self)

    def write(
        self,
        records: "Sequence[KeyValue]",
        committed: "Callable[[int], object] | None",
        done: "Done",
        producer: "TransactionalProducer | None" = None,
    ) -> None:
        """Append records, one batch. When it is committed, now or later: ``committed(base_offset)`` changes the state, then
        ``done(None)`` answers; both after those of the writes before it.

        ``done(error)`` without `committed`: as `StateLog.append` has it, or NOT_COORDINATOR when the coordinator resigns before. With
        NOT_COORDINATOR the records may be in the log.
        """
        if self.is_over:
            done(self._not_coordinator())
            return
        assert self.has_replayed, "a coordinator that replays its log does not write"
        write = _Write(self, committed, done)
        writes = self._writes
        writes.append(write)
        try:
            base_offset = self._runtime.log.append(self.partition, records, write.answered, producer)
        except BaseException:
            if write in writes:  # otherwise it has resigned meanwhile, and answered
                writes.remove(write)
            raise
        if self.is_over:
            return  # meanwhile, and has answered
        if base_offset is None:
            writes.remove(write)
            self._answer(write, write.error)
        else:
            write.base_offset = base_offset
        if write.is_answered:
            self.settle(write)

    def after_writes(self, done: "Done") -> None:
        """``done(None)`` when all writes before are committed, at once if there are none; ``done(NOT_COORDINATOR)`` if it resigns before.

        For decisions that depend on what is not applied yet, such as deleting a group: its last commit may still be queued.
        """
        if self.is_over:
            done(self._not_coordinator())
        elif self._writes:
            write = _Write(self, None, done)
            write.is_answered = True
            write.base_offset = NO_OFFSET
            self._writes.append(write)
        else:
            done(None)

    def after_all(self, done: "Done") -> None:
        """As `after_writes`, and all that others have written to the log so far is committed too; what is written after this call is
        applied after `done`.
        """
        if self.is_over:
            done(self._not_coordinator())
            return
        write = _Write(self, None, done)
        write.base_offset = NO_OFFSET
        self._writes.append(write)
        self._runtime.log.settled(self.partition, write.answered)

    def applied(self) -> Steps:
        """Steps that end when all writes before are committed and applied, or the coordinator has resigned; none if there are none."""
        if self._writes:
            yield Suspension(lambda resume: self.after_writes(lambda _error: resume()))

    def deadline(self, key: "Hashable", due_ms: float | None, action: Callable[[], object]) -> None:
        """Call `action` once, not before `due_ms` by `now_ms`; replaces the key's deadline. None cancels it."""
        if due_ms is None:
            self._runtime.deadlines.cancel(self, key)
        elif not self.is_over:
            self._runtime.deadlines.set(self, key, due_ms, action)

    def fail(self) -> None:
        """A bug: memory may not be what the log says, or a machine waits for what never comes. Resign, and load again a while later."""
        self._runtime.failed_by_bug(self)

    def while_serving(self, steps: Steps) -> Steps:
        """The same steps; they end when the coordinator resigns."""
        try:
            for pause in steps:
                yield pause
                if self.is_over:
                    return
        finally:
            steps.close()

    # For the runtime

    def settle(self, write: _Write) -> None:
        """The log has answered a write whose append has returned: apply and answer the oldest ones, as many as are committed.

        What their callbacks write follows after them.
        """
        if self.is_over:
            return
        if write.error is not None and write.base_offset != APPENDING:
            self._runtime.write_lost(self, write.error)
            return
        if self._is_settling:
            return
        self._is_settling = True
        writes = self._writes
        while writes:
            write = writes[0]
            if not write.is_answered or write.base_offset == APPENDING:
                break
            writes.popleft()
            if write.committed is not None:
                try:
                    write.committed(write.base_offset)
                except Exception:
                    _LOG.exception("committed record not applied by a bug: partition=%s", self._name)
                    self.fail()
            try:
                write.done(self._not_coordinator() if self.is_over else None)
            except Exception:  # a bug on the way to one client must not hold up the others
                self._note_lost_answer()
        self._is_settling = False

    def resign(self, error: PeerError) -> Steps:
        """Answer all that waits for a write; the steps answer all that waits in the state. The runtime has forgotten the coordinator."""
        self.phase = Phase.RESIGNED
        self.is_over = True
        self._runtime.deadlines.drop(self)
        released = self.state.resigned(error)
        writes = self._writes
        while writes:
            write = writes.popleft()
            self._answer(write, write.error or error)
        return released

    def _answer(self, write: _Write, error: PeerError | None) -> None:
        try:
            write.done(error)
        except Exception:
            self._note_lost_answer()

    def _note_lost_answer(self) -> None:
        _LOG.exception("answer lost by a bug: partition=%s", self._name)

    def _not_coordinator(self) -> PeerError:
        return self._runtime.not_coordinator(self.partition)

    @property
    def _name(self) -> str:
        return f"{self._runtime.topic}-{self.partition}"
