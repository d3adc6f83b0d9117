"""All logs of a broker, in one or several log directories.

A directory that fails goes offline alone: its logs are closed as they are and answer KAFKA_STORAGE_ERROR, the others go on. Only when the
last one fails does `all_failed` become true and `on_all_failed` is told: the process has nothing left to serve.

Nothing is deleted for being unknown: a folder of a topic that nobody registered is opened and kept with retention and compaction off, what
has no partition's name is not looked at, and folders marked ``-stray`` are left alone, as are ``-future`` ones of another system.

Times and random bytes are handed in; what takes long (checkpoints, removals) runs in the background where there is one.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.damage import DamagedFileError
from moldau.log.directory import Identity, LogDirectory
from moldau.log.housekeeping import Housekeeping, Removals
from moldau.log.lifecycle import Lifecycle
from moldau.log.loading import Loader, TopicConfig
from moldau.log.log_set import AllDirectoriesFailedError, AllFailedListener, LogSet, OfflineListener
from moldau.log.partition_log import PartitionLog
from moldau.log.producer_bound import ALONE_MAX, ProducerBound
from moldau.model.errors import MoldauError, StorageError, WorldError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps, drain
from moldau.ports.background import Background, InlineBackground, run_all
from moldau.ports.filesystem import FileSystem, LockHeldError

if TYPE_CHECKING:
    from moldau.log.adopt import AdoptedTopic
    from moldau.log.cleaning.cleaner import LogCleaner
    from moldau.log.description import DirectoryDescription
    from moldau.log.future_logs import FutureLogs
    from moldau.ports.background import Workers

_LOG = logging.getLogger(__name__)


class LogManager:
    """See the module. All methods are called on the broker's thread.

    `create`, its part `choose_folder`, what comes before and after it for many (`make_folders`, `drop_folders`), `delete` and its halves
    `mark_deleted` and `settle_deleted` are those of :class:`moldau.log.lifecycle.Lifecycle`;
    `checkpoint`, `apply_retention`, `expire_producers` and `remove_due` those of :class:`moldau.log.housekeeping.Housekeeping`.
    """

    def __init__(
        self,
        files: FileSystem,
        directories: Sequence[str],
        default_config: LogConfig,
        *,
        broker_id: int,
        cluster_id: str,
        random_bytes: Callable[[int], bytes],
        topic_config: TopicConfig = lambda _topic: None,
        background: Background | None = None,
        on_offline: OfflineListener = lambda _path, _partitions: None,
        on_all_failed: AllFailedListener = lambda _failure: None,
        monotonic: Callable[[], float] | None = None,
        cache: SegmentCache | None = None,
        producers_max: Callable[[], int] = lambda: ALONE_MAX,
        epoch_given: Callable[[int], int | None] = lambda _producer_id: None,
    ) -> None:
        """`producers_max`: how many producers all logs remember together, at the moment; `epoch_given`: the epoch that the transaction
        coordinator gave a producer last, None for one that has none from it."""
        self._files = files
        self.broker_epochs: tuple[int, ...] = ()
        """The broker's registrations since which it has lost nothing, the present one last: for the mark of a clean stop."""
        self._identity = Identity(broker_id, cluster_id)
        self._random_bytes = random_bytes
        self._cache = SegmentCache(files) if cache is None else cache
        opened = [LogDirectory(files, path) for path in directories]
        self._logs = LogSet(files, opened, random_bytes, on_offline, on_all_failed, monotonic)
        self._removals = Removals()
        self._background = background
        self._cleaner: LogCleaner | None = None
        self._futures: FutureLogs | None = None
        self._producer_bound = ProducerBound(producers_max, epoch_given)
        self._loader = Loader(files, self._cache, default_config, topic_config, self._logs, self._removals, self._producer_bound)
        lifecycle = Lifecycle(files, self._logs, self._loader, self._removals, default_config, background)
        self.create = lifecycle.create
        self.delete = lifecycle.delete
        self.choose_folder = lifecycle.choose_folder
        self.make_folders = lifecycle.make_folders
        self.drop_folders = lifecycle.drop_folders
        self.mark_deleted = lifecycle.mark_deleted
        self.settle_deleted = lifecycle.settle_deleted
        self._retry_settling = lifecycle.retry_settling
        housekeeping = Housekeeping(files, self._logs, self._removals, background)
        self.checkpoint = housekeeping.checkpoint
        self.apply_retention = housekeeping.apply_retention
        self.expire_producers = housekeeping.expire_producers
        self.remove_due = housekeeping.remove_due
        self.next_removal_ms = self._removals.next_due_ms

    # Start and stop

    def start(self, now_ms: int, *, adopt: bool = False) -> None:
        """Open all directories and the logs in them.

        LockHeldError and ForeignDirectoryError stop the start: somebody has to decide. A directory that cannot be used goes offline;
        AllDirectoriesFailedError if none is left. With `adopt`, what was marked for deletion is left as it is.
        """
        if not adopt:
            self._refuse_foreign()
        try:
            for directory in self._logs.directories:
                self._open_directory(directory, adopt)
        except WorldError:
            self._release_locks()
            raise
        with self._producer_bound.loading():
            self._load(lambda directory: self._loader.load(directory, now_ms, finish_deletions=not adopt))
            self._load(lambda directory: self._loader.finish_moves(directory, now_ms, finish_deletions=not adopt))
        self._load(self._loader.settle)
        self.broker_epochs = self.clean_epochs()  # of a broker that stops before it has registered
        if self.all_failed:
            raise AllDirectoriesFailedError(self._logs.directories)
        paths = ",".join(directory.path for directory in self._logs.online())
        numbers = self.statistics()
        _LOG.info("logs loaded: paths=%s " + " ".join(f"{name}=%d" for name in numbers), paths, *numbers.values())

    def _load(self, step: Callable[[LogDirectory], None]) -> None:
        """Do one step of the loading with each directory in service; one that fails goes offline."""
        for directory in self._logs.online():
            try:
                step(directory)
            except StorageError as error:
                self._logs.take_offline(directory, error)

    def _refuse_foreign(self) -> None:
        """ForeignDirectoryError before anything is written into any directory; other trouble shows when they are opened."""
        for directory in self._logs.directories:
            with contextlib.suppress(StorageError, DamagedFileError):
                directory.refuse_foreign(self._identity)

    def _open_directory(self, directory: LogDirectory, adopt: bool) -> None:
        try:
            directory.open(self._identity, adopt=adopt)
        except LockHeldError:
            raise
        except (StorageError, DamagedFileError) as error:
            self._logs.take_offline(directory, error)

    def adopt_topics(self) -> "list[AdoptedTopic]":
        """The topics of all partitions found, after a start with `adopt`; every folder has its topic's id then. StorageError."""
        from moldau.log.adopt import adopt_topics

        return adopt_topics(self._files, self._logs.placements.values(), self._random_bytes)

    def clean_epochs(self) -> tuple[int, ...]:
        """The registrations since which this broker has lost nothing, if it stopped in order; none unless all directories say the same."""
        epochs = dict.fromkeys(each.clean_epochs if each.online and each.clean else () for each in self._logs.directories)
        return next(iter(epochs)) if len(epochs) == 1 else ()

    def shutdown(self) -> None:
        """Do all of `shutting_down` at once, on this thread."""
        drain(self.shutting_down(InlineBackground(), lambda: False))

    def shutting_down(self, background: Background, is_late: Callable[[], bool]) -> Steps:
        """Flush and close all logs, write the checkpoints and then the mark of a clean stop, and give the locks back.

        Never raises for a disk that fails: its directory gets no mark, and its logs are recovered at the next start. So are those of a
        directory with logs that were not flushed before it was late; what was flushed of them keeps its recovery point.
        """
        from moldau.log.closing import Closing

        for future in list(self._logs.futures.values()):
            self._logs.drop_future(future)
        for directory in self._logs.online():
            closing = Closing(self._logs.held(directory), background, is_late, self._logs.note_offset)
            yield from closing.steps()
            if closing.left:
                _LOG.warning(
                    "no time to flush all logs to disk: path=%s logs=%d; the next start checks them as after a crash "
                    "(shutdown.timeout.ms)", directory.path, closing.left,
                )  # fmt: skip
            settle = self._logs.settling(directory)

            def end(directory: LogDirectory = directory, closing: Closing = closing, settle: Callable[[], None] = settle) -> None:
                settle()
                if closing.failed:
                    directory.mark_failed()
                elif not closing.left:
                    directory.mark_clean(self.broker_epochs)

            try:
                yield from run_all(background, [end])
            except StorageError as error:
                _LOG.error("log directory not stopped cleanly: path=%s reason=%s", directory.path, error)
        self._release_locks()
        self._cache.close()

    def _release_locks(self) -> None:
        for directory in self._logs.directories:
            directory.release()

    # Partitions

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None if it has none here, or if it is offline (`problem` tells why)."""
        placement = self._logs.placements.get(topic_partition)
        return None if placement is None else placement.log

    def problem(self, topic_partition: TopicPartition) -> MoldauError | None:
        """Why a partition is offline, to be answered with KAFKA_STORAGE_ERROR; None if it is not offline, or not here."""
        placement = self._logs.placements.get(topic_partition)
        return None if placement is None else placement.problem

    def topic_id(self, topic_partition: TopicPartition) -> bytes | None:
        """The topic's id that the partition's folder carries."""
        placement = self._logs.placements.get(topic_partition)
        return None if placement is None else placement.topic_id

    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a folder, in service or offline."""
        return list(self._logs.placements)

    def logs(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        """All logs in service."""
        return ((placement.topic_partition, placement.log) for placement in self._logs.in_service() if placement.log is not None)

    def retry_full(self, now_ms: int) -> Steps:
        """Try again to bring deletions to disk for which that had no room, and to open the logs that it kept closed."""
        yield from self._retry_settling()
        for placement in list(self._logs.placements.values()):
            yield None
            if not self._logs.holds(placement):  # deleted since the steps began
                continue
            if isinstance(placement.problem, StorageError) and placement.problem.no_space and placement.directory.online:
                try:
                    self._loader.try_again(placement, now_ms)
                except StorageError as error:
                    self._logs.storage_failed(placement.directory, error)

    def cleaner(self, workers: Callable[[], "Workers"], time_ms: Callable[[], int]) -> "LogCleaner | None":
        """What compacts the logs; None as long as there is no log that it could find something in."""
        if self._cleaner is None and any(log.config.compacts and log.sealed_segments() for _, log in self.logs()):
            from moldau.log.cleaning.cleaner import LogCleaner

            self._cleaner = LogCleaner(self._files, self._logs, self._removals, workers(), self._background, time_ms)
        return self._cleaner

    @property
    def futures(self) -> "FutureLogs":
        """What moves logs between directories."""
        if self._futures is None:
            from moldau.log.future_logs import FutureLogs

            self._futures = FutureLogs(self._files, self._logs, self._loader, self._removals, self._random_bytes)
        return self._futures

    def stop_cleaning(self) -> None:
        """Give up what is being compacted, for good; its worker ends soon."""
        if self._cleaner is not None:
            self._cleaner.stop()

    def decide_high_watermark(self, topic_partition: TopicPartition, *, is_replicated: bool) -> None:
        """After a log was opened, and before anything reads it: whether its partition has other replicas, so that the checkpointed high
        watermark counts, or all that the log has may be read."""
        placement = self._logs.placements[topic_partition]
        if is_replicated:
            placement.take_high_watermark()
        placement.high_watermark = None

    def flush_recovered(self, log: PartitionLog) -> None:
        """With ``visibility=flushed`` a log shows what recovery found once it is on disk, and shows it from the start. StorageError."""
        job = log.flush_job() if log.flushed_offset < log.log_end_offset else None
        if job is None:
            return
        try:
            job.run()
        except StorageError as error:
            log.flush_failed(job)
            self.storage_failed(log.topic_partition, error)
            raise
        log.flush_done(job)

    def lower_checkpoints(self, topic_partition: TopicPartition, offset: int) -> None:
        """As :meth:`moldau.log.log_set.LogSet.lower_checkpoints`."""
        self._logs.lower_checkpoints(self._logs.placements[topic_partition], offset)

    def note_holes(self, topic_partition: TopicPartition) -> None:
        """As :meth:`moldau.log.log_set.LogSet.note_holes`."""
        self._logs.note_holes(self._logs.placements[topic_partition])

    # Disks

    def storage_failed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Take note of an error that a partition's log raised: a full disk passes, missing files take the partition offline, any
        other error its directory."""
        placement = self._logs.placements.get(topic_partition)
        if placement is not None:
            self._logs.partition_failed(placement, error)

    def take_offline(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Close a partition's log as it is until the next start; its directory stays."""
        placement = self._logs.placements.get(topic_partition)
        if placement is not None:
            self._logs.take_partition_offline(placement, error)

    @property
    def all_failed(self) -> bool:
        """Whether no log directory is left in service."""
        return self._logs.all_failed

    @property
    def has_new(self) -> bool:
        """Whether partitions were made since the last checkpoint."""
        return self._logs.has_new

    def describe(self) -> "list[DirectoryDescription]":
        """What DescribeLogDirs tells."""
        from moldau.log.description import describe

        return [describe(self._files, directory, self._logs) for directory in self._logs.directories]

    def statistics(self) -> dict[str, int]:
        """How many of what there are."""
        in_service = sum(1 for _ in self._logs.in_service())
        return {
            "directories": len(self._logs.directories),
            "directories_offline": len(self._logs.directories) - len(self._logs.online()),
            "partitions": in_service,
            "partitions_offline": len(self._logs.placements) - in_service,
            "removals_waiting": len(self._removals),
            **self._cache.statistics(),
            **self._producer_bound.statistics(),
            **({} if self._cleaner is None else self._cleaner.statistics()),
        }
