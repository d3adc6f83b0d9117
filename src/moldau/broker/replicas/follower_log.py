"""What a follower does to its logs with what it has fetched: append, truncate, begin elsewhere. Each ends with the machine.

A log is truncated only after its checkpoints on disk do not reach beyond the new end: after a crash a start would miss what is cut off.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.replicas.partition_events import LeaderHighWatermark, LogTruncated
from moldau.fetching.events import LogEnd
from moldau.model.errors import StorageError
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.log.partition_log import PartitionLog
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)


def end_of(log: "PartitionLog") -> LogEnd:
    """The log, as far as a fetch says what it is."""
    return LogEnd(log.log_end_offset, log.latest_epoch, log.start_offset)


class FollowerLogs:
    """Errors: StorageError, which has been seen to, and CorruptBatchError. The log is as it was, or as far as `Partition` knows."""

    def __init__(self, replicas: "ReplicaManager", clock: "Clock") -> None:
        self._replicas = replicas
        self._clock = clock

    def apply(self, hosted: "HostedPartition", records: memoryview, high_watermark: int, log_start_offset: int) -> None:
        """Append fetched batches; then show what the leader shows, and drop what the leader has dropped."""
        log = hosted.log
        try:
            if records:
                try:
                    before_holes = partial(self._replicas.logs.note_holes, hosted.topic_partition)
                    log.append_as_follower(records, self._clock.time_ms(), before_holes)
                finally:  # where it failed, some batches may be in the log
                    hosted.machine.grew(log.log_end_offset)
            self._replicas.step(hosted, LeaderHighWatermark(high_watermark))
            if log_start_offset > log.start_offset:
                log.delete_records(min(log_start_offset, log.high_watermark))
        except StorageError as error:
            self._replicas.storage_failed(hosted, error)
            raise
        if log.must_flush:
            self._replicas.flusher.request(hosted)

    def truncate(self, hosted: "HostedPartition", epoch: int, end_offset: int) -> None:
        """Truncate the log to where it agrees with the leader's, in which `epoch` ends at `end_offset`.

        That may be before the high watermark without a loss: of a compacted log the leader has no epoch whose records were all removed
        before it fetched them. What this log had of that epoch, the leader has newer records of.
        """
        _, own_end_offset = hosted.log.end_offset_for_epoch(epoch)
        self._note_loss(hosted, end_offset)
        self._cut(hosted, end_offset if own_end_offset < 0 else min(end_offset, own_end_offset))

    def truncate_to(self, hosted: "HostedPartition", end_offset: int) -> None:
        """Cut off what is not before the end of the leader's log."""
        self._note_loss(hosted, end_offset)
        self._cut(hosted, end_offset)

    @staticmethod
    def _note_loss(hosted: "HostedPartition", end_offset: int) -> None:
        """The leader's log differs from `end_offset` on."""
        high_watermark = hosted.log.high_watermark
        if end_offset < high_watermark:  # only an unclean election makes this right; see the leader's log
            reached("cluster: a follower truncated below its own high watermark")
            _LOG.warning(
                "log truncated below its high watermark, as its new leader has less: partition=%s high_watermark=%d end_offset=%d",
                hosted.topic_partition,
                high_watermark,
                end_offset,
            )

    def start_at(self, hosted: "HostedPartition", offset: int) -> None:
        """Empty the log, to begin at `offset`: start, high watermark and producers with it."""
        _LOG.warning(
            "log emptied, as its end is before the start of its leader's: partition=%s end_offset=%d start_offset=%d",
            hosted.topic_partition,
            hosted.log.log_end_offset,
            offset,
        )
        self._cut(hosted, offset, fully=True)

    def _cut(self, hosted: "HostedPartition", offset: int, *, fully: bool = False) -> None:
        log = hosted.log
        try:
            if fully:
                self._replicas.logs.lower_checkpoints(hosted.topic_partition, min(offset, log.start_offset))
                log.truncate_fully_and_start_at(offset)
            else:
                log.truncate_to(offset, partial(self._replicas.logs.lower_checkpoints, hosted.topic_partition))
        except StorageError as error:
            self._replicas.storage_failed(hosted, error)
            raise
        reached("cluster: a follower truncated its log")
        self._replicas.step(hosted, LogTruncated(log.log_end_offset, log.start_offset))
