"""One pass under way, from its first step to its last, on the broker's thread.

1. The checkpoints, on disk: a line for the log in ``cleaner-offset-checkpoint``, and a recovery point after all that is to be cleaned.
   From now on the log may have holes, but only before that point, so that after a crash recovery need not take any for loss.
2. The worker.
3. For each group that it has written, at once: the swap.
4. The names in the folder, brought to disk.
5. The line with the new offset.

A pass that does not come to its end costs nothing but its time: what is swapped in stays, the rest of the log is as it was, and the next
look finds it dirty again. That happens when the log is closed, deleted or truncated, when it is not compacted any more, when a segment that
was about to be replaced has been removed, when the worker dies, and when the disk fails.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from moldau.log.checkpoints import CLEANED
from moldau.log.cleaning.task import WORK, BadBatch, EntryMissing, GroupWritten, PassDone, StorageFailed, decode_message
from moldau.log.swap import remove_cleaned
from moldau.model.errors import StorageError
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.log.cleaning.planning import DirtyLog
    from moldau.log.log_set import Placement
    from moldau.log.segment import Segment
    from moldau.log.segments import RemovedSegment
    from moldau.ports.background import Job, WorkerError, Workers
    from moldau.ports.filesystem import FileSystem


class PassHost(Protocol):
    """What a pass asks of its surroundings."""

    files: "FileSystem"
    workers: "Workers"

    def run(self, work: Callable[[], object], then: Callable[[BaseException | None], object]) -> None:
        """Do `work` on a background thread, then ``then(None)`` or ``then(error)``."""

    def checkpoint(self, running: "RunningPass") -> Callable[[], None]:
        """What brings the checkpoints of the log's directory to disk, as they are now."""

    def swapped(self, running: "RunningPass", removed: "list[RemovedSegment]") -> None:
        """Segments were replaced, and are to be unlinked."""

    def finished(self, running: "RunningPass", done: PassDone) -> None:
        """The log is clean."""

    def gave_up(self, running: "RunningPass", reason: str) -> None:
        """The pass has ended without that. It may be tried again later."""

    def damaged(self, running: "RunningPass", bad: BadBatch) -> None:
        """It has ended at a batch that no pass can get over."""

    def entry_missing(self, running: "RunningPass", offset: int) -> None:
        """It has ended at the marker of an aborted transaction that the index lacks."""

    def storage_failed(self, running: "RunningPass", error: StorageError) -> None:
        """The log's disk has failed."""


class RunningPass:
    """See the module. `outcome` is what the worker has said last."""

    def __init__(self, host: PassHost, placement: "Placement", dirt: "DirtyLog") -> None:
        self.placement = placement
        self.log = dirt.log
        self.first_dirty = dirt.first_dirty
        self._host = host
        self._segments = {segment.base_offset: segment for segment in dirt.segments}
        """Those that are not replaced yet."""
        self._truncations = dirt.log.truncations
        self._job: Job | None = None
        self._stopped = False
        self._outcome: PassDone | BadBatch | StorageFailed | EntryMissing | None = None
        self._obstacle = ""
        """Why not everything that the worker has written could be put in place."""
        self._left_behind = False
        """Whether older segments stay as they were. Then later ones stay too: a tombstone there may be all that hides a record here."""

    def begin(self, task: bytes) -> None:
        """The first step."""
        self.placement.directory.offsets[CLEANED][self.placement.topic_partition] = self.first_dirty
        self._on_disk(self._host.checkpoint(self), lambda: self._start_worker(task))

    def stop(self) -> None:
        """Give it up."""
        self._stopped = True
        if self._job is not None:
            self._job.cancel()

    def _start_worker(self, task: bytes) -> None:
        if self._stopped:
            self._host.gave_up(self, "the broker stops")
        else:
            self._job = self._host.workers.run(WORK, task, self._on_message, self._on_done)

    def _on_message(self, data: bytes) -> None:
        message = decode_message(data)
        if not isinstance(message, GroupWritten):
            self._outcome = message
            return
        self._obstacle = self._why_void() or self._obstacle
        if self._why_void():
            self.stop()
        else:
            self._swap(message)

    def _swap(self, written: GroupWritten) -> None:
        if self._left_behind:
            return
        replaced = self._replaced_by(written)
        if replaced is None:
            self._obstacle = f"segments from offset {written.sources[0].base_offset} on are gone"
            self._left_behind = any(self._are_present([self._segments[source.base_offset]]) for source in written.sources)
            return
        try:
            self.log.replace_segments(replaced, written.size, (written.largest_timestamp, written.largest_offset), written.suffixes)
        except StorageError as error:
            self._obstacle = str(error)
            self._host.storage_failed(self, error)
        else:
            for segment in replaced:
                del self._segments[segment.base_offset]
            reached("compaction: swapped segments")
            self._host.swapped(self, self.log.take_removed())

    def _on_done(self, error: "WorkerError | None") -> None:
        self._obstacle = self._obstacle or self._why_void()
        if self._obstacle or error is not None:
            self._give_up(self._obstacle or str(error))
            return
        match self._outcome:
            case PassDone() as done:
                self._on_disk(lambda: self._host.files.sync_directory(self.log.directory), lambda: self._note(done))
            case BadBatch() as bad:
                self._host.damaged(self, bad)
                self._give_up(f"{bad.path}: at byte {bad.position}, offset {bad.first_offset}: {bad.reason}")
            case EntryMissing(offset):
                self._host.entry_missing(self, offset)
                self._give_up(f"the index of aborted transactions lacked that of the marker at offset {offset}")
            case StorageFailed() as failed if not self._are_present(self._segments.values()):
                self._give_up(f"segments are gone: {failed.path}: {failed.reason}")
            case StorageFailed() as failed:
                self._host.storage_failed(self, StorageError(failed.reason, path=failed.path, no_space=failed.no_space))
                self._give_up(f"{failed.path}: {failed.reason}")
            case None:
                self._give_up("the worker said nothing")

    def _note(self, done: PassDone) -> None:
        if self.placement.log is not self.log:  # a deleted partition has no line in the checkpoints
            self._give_up("the log is closed")
            return
        self.placement.directory.offsets[CLEANED][self.placement.topic_partition] = done.end_offset
        self._on_disk(self._host.checkpoint(self), lambda: self._host.finished(self, done))

    def _give_up(self, reason: str) -> None:
        """Remove what the worker has left, and end."""
        if self.placement.log is self.log:
            self._host.run(lambda: remove_cleaned(self._host.files, self.log.directory), lambda _error: self._host.gave_up(self, reason))
        else:
            self._host.gave_up(self, reason)

    def _on_disk(self, work: Callable[[], object], then: Callable[[], object]) -> None:
        """Continue when this has been done; if it cannot be, the pass ends."""

        def done(error: BaseException | None) -> None:
            if error is None:
                then()
            elif isinstance(error, StorageError):
                self._host.storage_failed(self, error)
                self._give_up(str(error))
            else:
                raise error

        self._host.run(work, done)

    def _why_void(self) -> str:
        """Why the result can be of no use any more; empty if it can."""
        if self.placement.log is not self.log:
            return "the log is closed"
        if self.log.truncations != self._truncations:
            return "the log was cut"
        return "" if self.log.config.compacts else "the log is compacted no more"

    def _replaced_by(self, written: GroupWritten) -> "list[Segment] | None":
        """The segments that a group replaces; None if one of them is not in the log any more."""
        wanted = [self._segments[source.base_offset] for source in written.sources]
        return wanted if self._are_present(wanted) else None

    def _are_present(self, segments: "Iterable[Segment]") -> bool:
        present = {segment.base_offset: segment for segment in self.log.sealed_segments()}
        return all(present.get(segment.base_offset) is segment for segment in segments)
