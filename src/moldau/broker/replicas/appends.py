"""Appends to logs, from being staged to being acknowledged: the only way to a log for clients, coordinators and markers.

1. `append` stages batches, with offsets; nothing is written yet. Their memory may be the receive buffer of a connection, so `write_staged`
   is called before anything else is received, and between turns of the loop nothing is staged.
2. `write_staged` writes each log once. Then each append finds out, in the order in which they were staged, which of its batches are in
   their logs: one whose write failed may be in the log all the same, if it was written before a new segment was begun.
   The runs of the shortest way of Produce (`append_run`) are among them, and are acknowledged then.
3. A batch that has to reach more than the log (`Level`) waits at the commit gate of its partition.
   A coordinator's record and a marker go from 1 to 3 in one step (`append_at_once`), with nothing to stage them for.
4. When all batches of an append have reached their levels or failed, it joins a queue, and `complete` calls its `done`. Then fetches that
   waited for the records are attempted. `complete` does not nest: a `done` that appends and writes only adds to the queue.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from moldau.broker.replicas.append_run import AppendRun, PermitEpoch
from moldau.broker.replicas.commit_gate import GatedWait
from moldau.broker.replicas.completions import Completions
from moldau.broker.replicas.partition import ACKS_ALL
from moldau.broker.replicas.partition_events import Level
from moldau.broker.replicas.rules import UNLIMITED
from moldau.model.errors import ErrorCode, PeerError, StorageError

if TYPE_CHECKING:
    from moldau.broker.replicas.append_batch import AppendBatch
    from moldau.broker.replicas.commit_gate import GatedAppend
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.purgatory import Purgatory
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

ACKS_NONE = 0
COMPLETED_PER_TURN = 50
"""Appends that a sync, a fetch of a follower, a change of a replica or a deadline completes before other work runs; a write
completes its own beside them."""
_NOTHING = memoryview(b"")
_WRITTEN = Level.WRITTEN

Waited = Callable[[PeerError | StorageError | None], object]


class AppendBugError(StorageError):
    """An append ended with a bug: the log may not be what memory says, and its disk may be sound."""


class PendingAppend:
    """Batches that were appended together, until each has reached its level or failed; a `GatedAppend`."""

    __slots__ = ("_opened", "acks", "batches", "deadline_s", "done", "is_abandoned", "left")

    def __init__(
        self,
        batches: "Sequence[AppendBatch]",
        acks: int,
        deadline_s: float,
        done: Callable[[], object],
        opened: deque[Callable[[], object]],
    ) -> None:
        """`opened`: the queue of completions, which takes `done`."""
        self.batches = batches
        self.acks = acks
        self.deadline_s = deadline_s
        self.done = done
        self.is_abandoned = False
        self.left = 1
        """Batches that wait at a gate, and one until all are settled."""
        self._opened = opened

    def resolve(self, place: int, error: PeerError | StorageError | None) -> None:
        """As `GatedAppend`."""
        if error is not None:
            self.batches[place].error = error
        self.left -= 1
        if self.left == 0:
            self._opened.append(self.done)

    def finish(self) -> None:
        """The broker stops: it is acknowledged as soon as it may be, and no sooner."""

    def cancel(self) -> None:
        """Its connection is lost: `done` is not called, and its batches leave their gates early."""
        self.is_abandoned = True
        self.done = _nothing
        for batch in self.batches:
            gate = batch.partition.gate
            if gate is not None:
                gate.abandoned()


class AppendPipeline:
    """See the module.

    Invariant: `dirty` has exactly the partitions with staged bytes.
    """

    __slots__ = (
        "_busy",
        "_clock",
        "_grown",
        "_is_due",
        "_opened",
        "_purgatory",
        "_request_sync",
        "_storage_failed",
        "_timed",
        "_timer",
        "_timer_s",
        "_woken",
        "completions",
        "dirty",
        "paths_kept",
        "permits",
        "unwritten",
    )

    def __init__(
        self,
        clock: "Clock",
        purgatory: "Purgatory",
        request_sync: "Callable[[HostedPartition], object]",
        storage_failed: "Callable[[HostedPartition, StorageError], object]",
    ) -> None:
        """`request_sync` has a partition's log synced, `storage_failed` sees to a log that failed, and to its disk."""
        self._clock = clock
        self._purgatory = purgatory
        self._request_sync = request_sync
        self._storage_failed = storage_failed
        self.dirty: list[HostedPartition] = []
        self.unwritten: list[PendingAppend | AppendRun] = []
        """Appends that are staged, in this order."""
        self.permits = PermitEpoch()
        self.paths_kept = 0
        """Shortest ways that connections keep for partitions that they produce to in turn."""
        self.completions = Completions()
        self._opened = self.completions.opened
        self._grown: list[tuple[HostedPartition, int, int]] = []
        """Partitions that fetches wait for, with the bytes that became visible and those that were written."""
        self._woken: dict[HostedPartition, None] = {}
        """Partitions whose waiting fetches are all to be attempted."""
        self._busy = False
        """Whether an operation is under way whose end completes what has opened."""
        self._is_due = False
        """Whether `complete` is to be called at the clock's next turn."""
        self._timed: dict[HostedPartition, None] = {}
        """Partitions at whose gates appends with a deadline wait."""
        self._timer: Timer | None = None
        self._timer_s = inf

    def append(
        self, batches: "Sequence[AppendBatch]", acks: int, now_ms: int, done: Callable[[], object], *, timeout_ms: int | None = None
    ) -> PendingAppend:
        """Stage batches. `done` is called once, in `write_staged` or after it: each batch then has reached the level of `acks` or has an
        error. One that is refused harms no other.

        `acks`: 0, 1 or -1, as on the wire. `timeout_ms`: how long to wait for in-sync replicas.
        """
        deadline_s = inf if timeout_ms is None or acks != ACKS_ALL else self._clock.monotonic() + timeout_ms / 1000
        pending = PendingAppend(batches, acks, deadline_s, done, self._opened)
        for batch in batches:
            partition = batch.partition
            try:
                if not partition.is_open:
                    raise _offline(partition)
                partition.machine.check_acks(acks)
                batch.base_offset, batch.last_offset, batch.append_time_ms, duplicate = batch.stage(now_ms)
            except PeerError as error:
                batch.error = error.with_traceback(None)  # whose frames refer to the batch
                if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                    batch.refused(now_ms)
            except StorageError as error:
                self._refuse(batch, error)
            else:
                if not duplicate:
                    if partition.staged_bytes == 0:
                        self.dirty.append(partition)
                    partition.staged_bytes += len(batch.records)
                batch.log_start_offset = partition.log.start_offset
                batch.level = partition.level_for(acks, batch.last_offset)
        self.unwritten.append(pending)
        return pending

    def append_at_once(self, batch: "AppendBatch", now_ms: int, *, completes: bool = True) -> None:
        """Append a batch with acks=all and write it now. Where it then is `in_log` without an error, its acknowledgement is left to the
        caller: at once with `batch.level` WRITTEN, otherwise when `wait` for that level is over. With `completes` false the caller calls
        `complete`, once for several.
        """
        partition = batch.partition
        if partition.staged_bytes:
            self.write_staged()
        log, machine = partition.log, partition.machine
        before = machine.high_watermark
        try:
            if not partition.is_led:
                raise _not_led(partition)
            machine.check_acks(ACKS_ALL)
            batch.base_offset, batch.last_offset, batch.append_time_ms, _ = batch.stage(now_ms)
            try:
                log.write_staged()
                moved = machine.grew(log.log_end_offset) and partition.advanced()
            except StorageError:
                raise
            except Exception as error:
                raise _bug(partition, error) from error
        except PeerError as error:
            batch.error = error.with_traceback(None)  # whose frames refer to the batch
            return
        except StorageError as error:
            self._refuse(batch, error)
            self.complete()
            return
        batch.in_log = True
        batch.level = partition.level_for(ACKS_ALL, batch.last_offset)
        count = len(batch.records)
        partition.traffic.bytes_in += count
        if partition.watchers:
            shown = 0 if not moved else count if machine.is_sole else partition.shown_since(before)
            self._grown.append((partition, shown, count))
        if completes and (self._opened or self._grown or self._woken):
            self.complete()

    def _refuse(self, batch: "AppendBatch", error: StorageError) -> None:
        batch.error = error.with_traceback(None)  # whose frames refer to the batch
        busy, self._busy = self._busy, True
        try:
            self._storage_failed(batch.partition, error)
        finally:
            self._busy = busy

    def open_run(self, partition: "HostedPartition", acks: int) -> "AppendRun | None":
        """What appends to a partition one plain batch after the other; None if not every batch is plain, or if they wait for the disk."""
        if not partition.is_led or partition.limits.walks_records or partition.log.config.flush_messages != UNLIMITED:
            return None
        if partition.machine.is_mirror:
            return None
        try:
            partition.machine.check_acks(acks)
        except PeerError:
            return None
        partition.has_runs = True
        level = _WRITTEN if acks != ACKS_ALL or partition.machine.is_sole else Level.REPLICATED
        return AppendRun(self, partition, self.permits.value, level)

    def end_permits(self, partition: "HostedPartition") -> None:
        """Let no run of a partition append any more without being opened again."""
        if partition.has_runs:
            partition.has_runs = False
            self.permits.value += 1

    def write_staged(self) -> None:
        """Write all that is staged, and complete what needs no more."""
        dirty, self.dirty = self.dirty, []
        unwritten, self.unwritten = self.unwritten, []
        failures: dict[HostedPartition, PeerError | StorageError] = {}
        busy, self._busy = self._busy, True
        try:
            for partition in dirty:
                count, partition.staged_bytes = partition.staged_bytes, 0
                if not partition.is_led:
                    failures[partition] = _not_led(partition)
                    if partition.is_open:
                        partition.log.take_back_staged()
                    continue
                log = partition.log
                write = log.write_staged  # an attribute, which as such is got faster than a method
                try:
                    try:
                        write()
                        partition.traffic.bytes_in += count
                    except StorageError as error:  # what an older segment got is written
                        failures[partition] = error
                    machine = partition.machine
                    before = machine.high_watermark
                    moved = machine.grew(log.log_end_offset) and partition.advanced()
                    if partition.watchers:
                        shown = 0 if not moved else count if machine.is_sole else partition.shown_since(before)
                        self._grown.append((partition, shown, count))
                except Exception as error:  # the other logs have to be written
                    failures[partition] = _bug(partition, error)
            for each in unwritten:
                owner = None
                try:
                    if isinstance(each, AppendRun):
                        owner = each.owner
                        assert owner is not None, "it has rows"
                        owner.settle(each, failures)
                    else:
                        self._settle(each, failures)
                except Exception as error:
                    if not isinstance(each, AppendRun):
                        self._fail(each, error)
                    else:
                        _LOG.exception("append not answered because of a bug: partition=%s", each.partition.topic_partition)
                        each.give_up()
                        if owner is not None:
                            owner.abort()
            if failures:
                for partition, failure in failures.items():
                    if isinstance(failure, StorageError):
                        self._storage_failed(partition, failure)
        finally:
            self._busy = busy
        if self._opened or self._grown or self._woken:
            self.complete(len(unwritten) + COMPLETED_PER_TURN)

    def wait(
        self,
        partition: "HostedPartition",
        last_offset: int,
        level: Level,
        done: Waited,
        *,
        completes: bool = True,
        timeout_ms: int | None = None,
    ) -> GatedWait:
        """Call ``done(None)`` once the record at `last_offset`, which is written, has reached `level`; or with the error. `completes` as
        in `append_at_once`, `timeout_ms` as in `append`.
        """
        deadline_s = inf if timeout_ms is None else self._clock.monotonic() + timeout_ms / 1000
        wait = GatedWait(partition, done, self._opened, deadline_s)
        self._wait(partition, last_offset, level, wait, 0)
        if completes:
            self.complete()
        return wait

    def committed_since(self, partition: "HostedPartition", high_watermark: int) -> None:
        """A follower has moved the committed offset of a partition, whose high watermark was this before: open its gate."""
        if partition.advanced() and partition.watchers:
            self._grown.append((partition, partition.shown_since(high_watermark), 0))
        self.complete()

    def wake(self, partition: "HostedPartition") -> None:
        """Attempt all fetches that wait for a partition, when `complete` is called next."""
        if partition.watchers:
            self._woken[partition] = None

    def complete(self, most: int = COMPLETED_PER_TURN) -> None:
        """Complete appends that have opened, `most` of them in this turn, and attempt the fetches that wait for what has changed."""
        if self._busy:
            return
        self._busy = True
        opened = self._opened
        try:
            while True:
                if opened and most:
                    most = self.completions.run(most)
                if self._grown:
                    grown, self._grown = self._grown, []
                    self._purgatory.appended(grown)
                elif self._woken:
                    woken, self._woken = self._woken, {}
                    self._purgatory.changed(woken)
                else:
                    break
        finally:
            self._busy = False
        if opened and not self._is_due:
            self._is_due = True
            self._clock.call_later(0.0, self._complete_more)

    def _complete_more(self) -> None:
        self._is_due = False
        self.complete()

    def _settle(self, pending: PendingAppend, failures: "Mapping[HostedPartition, PeerError | StorageError]") -> None:
        """After the write: which batches are in their logs, and which of them have to wait."""
        for place, batch in enumerate(pending.batches):
            partition = batch.partition
            batch.records = _NOTHING  # its memory may be needed
            if batch.error is not None:
                continue
            if not partition.is_led or batch.last_offset >= partition.log.log_end_offset:
                batch.error = failures.get(partition) or _not_led(partition)
                continue
            batch.in_log = True
            if batch.level is _WRITTEN:
                continue
            if pending.acks == ACKS_NONE:
                self._request_sync(partition)
            else:
                pending.left += 1
                self._wait(partition, batch.last_offset, batch.level, pending, place)
        pending.left -= 1
        if pending.left == 0:
            self._opened.append(pending.done)

    def _fail(self, pending: PendingAppend, bug: Exception) -> None:
        """A bug kept an append from being settled: whatever its batches wait for, they fail now."""
        for batch in pending.batches:
            batch.error = batch.error or _bug(batch.partition, bug)
        pending.left = 0
        self._opened.append(pending.done)

    def _wait(self, partition: "HostedPartition", last_offset: int, level: Level, append: "GatedAppend", place: int) -> None:
        if last_offset < partition.machine.open_offset(level):
            append.resolve(place, None)
            return
        if not partition.is_led:
            append.resolve(place, _not_led(partition))
            return
        gate = partition.open_gate()
        gate.wait(level, last_offset, append, place)
        if gate.deadline_s < inf:
            self._timed[partition] = None
            if gate.deadline_s < self._timer_s:
                self._set_timer(gate.deadline_s)
        if level & Level.FLUSHED:
            self._request_sync(partition)

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._clock.call_later(max(due_s - self._clock.monotonic(), 0.0), self._expire)

    def _expire(self) -> None:
        """Fail the appends that have waited for in-sync replicas until their deadlines."""
        self._timer, self._timer_s = None, inf
        now_s, timed, next_s = self._clock.monotonic(), self._timed, inf
        for partition in list(timed):
            gate = partition.open_gate()
            gate.expire(now_s)
            if gate.deadline_s == inf:
                del timed[partition]
            next_s = min(next_s, gate.deadline_s)
        if next_s < inf:
            self._set_timer(next_s)
        self.complete()


def _nothing() -> None:
    """For an append without a waiting request."""


def _bug(partition: "HostedPartition", bug: Exception) -> AppendBugError:
    _LOG.error("append failed by a bug: partition=%s", partition.topic_partition, exc_info=bug)
    return AppendBugError("a bug, see the log of the broker", path=str(partition.topic_partition))


def _not_led(partition: "HostedPartition") -> PeerError | StorageError:
    if partition.is_open:
        return PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition} is not led any more")
    return _offline(partition)


def _offline(partition: "HostedPartition") -> StorageError:
    return StorageError("the partition went offline", path=str(partition.topic_partition))
