"""What machines have in common that play a log over a forgetful disk beside a list: how it is opened, flushed, and read from end to end."""

from collections.abc import Iterator

from hypothesis.stateful import RuleBasedStateMachine, rule

from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import batches
from moldau.protocol.records.header import BatchHeader
from moldau.testing.disk import ForgetfulDisk

PARTITION = TopicPartition("events", 0)
DIRECTORY = "data/events-0"
NOW_MS = 1_000_000
FETCH_BYTES = 300


class LogMachine(RuleBasedStateMachine):
    """`log` is there once a subclass has chosen `config` and called `open`. `checkpoint`: recovery point and start offset on disk."""

    config: LogConfig
    log: PartitionLog
    open_files_max = 100

    def __init__(self) -> None:
        super().__init__()
        self.disk = ForgetfulDisk()
        self.disk.make_directory("data")
        self.disk.sync_directory("/")
        self.checkpoint = (0, 0)
        self.leader_epoch = 0

    def open(self, *, clean: bool) -> None:
        """Open it by the checkpoint, and lead with the next epoch."""
        self.leader_epoch += 1
        recovery_point, start_offset = self.checkpoint
        self.log = PartitionLog.open(
            self.disk,
            DIRECTORY,
            PARTITION,
            self.config,
            recovery_point=recovery_point,
            start_offset=start_offset,
            clean=clean,
            now_ms=NOW_MS,
            leader_epoch=self.leader_epoch,
            cache=SegmentCache(self.disk, open_files_max=self.open_files_max),
        )

    def write(self) -> None:
        """Write what is staged, and move it from one list to the other. A rule of the subclass."""
        raise NotImplementedError

    @rule()
    def flush(self) -> None:
        """Everything is on disk, and there is nothing more to flush."""
        self.write()
        job = self.log.flush_job()
        if job is not None:
            job.run()
            self.log.flush_done(job)
        assert self.log.flushed_offset == self.log.log_end_offset
        assert self.log.flush_job() is None

    @rule()
    def write_checkpoint(self) -> None:
        """As a broker does now and then, and at each stop."""
        self.checkpoint = (self.log.flushed_offset, min(self.log.start_offset, self.log.flushed_offset))

    def share_of(self, share: float, end_offset: int) -> int:
        """An offset between the start of the log and `end_offset`."""
        start = self.log.start_offset
        return start + round(share * (end_offset - start))

    def stored(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches, read by fetches of a few hundred bytes; dense, and up to the end of what is written."""
        offset, first = self.log.start_offset, True
        while (part := self.log.read(offset, FETCH_BYTES, self.log.log_end_offset, at_least_one=True).records) is not None:
            data = part.file.pread(part.length, part.position)
            part.release()
            before = offset
            for header, view in batches(memoryview(data)):
                assert header.base_offset <= offset if first else header.base_offset == offset
                yield header, view
                offset, first = header.last_offset + 1, False
            assert offset > before
        assert offset == self.log.log_end_offset
