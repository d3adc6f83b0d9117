"""The log directories of a broker and the placements in them; what happens when a directory fails."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from moldau.log.batches import OldFormatError
from moldau.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from moldau.log.damage import DamagedFileError
from moldau.log.directory import LogDirectory
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.names import FolderKind, marked_name
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import MoldauError, StorageError, WorldError
from moldau.model.identity import ID_BYTES, TopicPartition
from moldau.model.log_throttle import LogThrottle
from moldau.ports.filesystem import FileSystem, MissingFileError, NotRegularError

_LOG = logging.getLogger(__name__)
OfflineListener = Callable[[str, list[TopicPartition]], object]
"""Told the path of a log directory that went offline, and the partitions that went with it."""
AllFailedListener = Callable[["AllDirectoriesFailedError"], object]
"""Told, once, that the last log directory went offline."""
SHORTAGE_INTERVAL_S = 1.0
SHORTAGES_MAX = 100
"""Shortages are told once in this time for each directory and reason, of which no more than this are told apart."""


PREFERRED_MAX = 10_000
"""Partitions that are not here for which a directory may be chosen."""


class Placement:
    """A partition's folder in a log directory. Invariant: there is a `log`, or a `problem` that says why there is none."""

    __slots__ = ("_opened", "directory", "folder", "high_watermark", "log", "problem", "rivals", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, directory: LogDirectory, folder: str) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.folder = folder
        self.topic_id: bytes | None = None
        """Of the topic that the folder was made for; None where it has no `partition.metadata`."""
        self.log: PartitionLog | None = None
        self.problem: MoldauError | None = None
        self.high_watermark: int | None = None
        """As of the last checkpoint before this start, until it is known whether the partition has other replicas."""
        self.rivals: list[Placement] = []
        """Other folders of a partition of this name: which one is the topic's is decided once its id is known."""
        self._opened = False

    def opened(self, log: PartitionLog) -> None:
        """The log can be used."""
        self.log = log
        self.problem = None
        self._opened = True

    @property
    def may_be_trimmed(self) -> bool:
        """Whether retention and compaction may work on the log. Until its role is known its end may still be cut off: what they take as
        committed would not be.
        """
        return self.log is not None and self.high_watermark is None

    def take_high_watermark(self) -> None:
        """The partition has other replicas: what is beyond its checkpointed high watermark may not be read, and may be lost."""
        if self.log is not None and self.high_watermark is not None:
            self.log.restore_high_watermark(self.high_watermark)

    def fail(self, problem: MoldauError) -> None:
        """Take the partition offline; nothing more is written to its log. The first problem stays."""
        self.problem = self.problem or problem
        self.close_unclean()

    def close_unclean(self) -> None:
        """Close the log as it is: nothing more is flushed or written."""
        log, self.log = self.log, None
        if log is not None:
            with contextlib.suppress(StorageError):
                log.close()

    @property
    def is_clean(self) -> bool:
        """Whether the next start may trust a log that is offline. Not if it went offline while it was in use, or if it had to be recovered
        and could not be."""
        return self.directory.clean and not self._opened


class FutureLog(Placement):
    """The copy of a log that is to take its place. It has no `log` until its folder is made, and never a `problem`."""

    __slots__ = ("checkpointed_start", "is_busy", "is_made", "source", "syncs", "truncations", "unsynced_bytes")

    def __init__(self, topic_partition: TopicPartition, directory: LogDirectory, folder: str, source: PartitionLog) -> None:
        super().__init__(topic_partition, directory, folder)
        self.source = source
        """What is copied."""
        self.truncations = source.truncations
        """Of it, when the copy had nothing that was cut off since."""
        self.is_made = False
        """Whether there is a folder."""
        self.is_busy = False
        """Whether work on it runs elsewhere: its folder cannot be removed before that has ended."""
        self.unsynced_bytes = 0
        """Copied since the last sync."""
        self.syncs = 0
        """How often it was synced with all that there was."""
        self.checkpointed_start: int | None = None
        """Where it began when the checkpoints of its directory got lines of it; None if they have none."""


class LogSet:
    """Invariant: `placements` holds what the directories hold together; a partition has one placement, and others as its rivals at most."""

    def __init__(
        self,
        files: FileSystem,
        directories: list[LogDirectory],
        random_bytes: Callable[[int], bytes],
        on_offline: OfflineListener,
        on_all_failed: AllFailedListener,
        monotonic: Callable[[], float] | None,
    ) -> None:
        """Without a clock, `monotonic`, each shortage is told."""
        self.files = files
        self.directories = directories
        self.placements: dict[TopicPartition, Placement] = {}
        self.futures: dict[TopicPartition, FutureLog] = {}
        """Copies that are to take the place of logs in other directories."""
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Directories that were chosen for partitions that are not here yet."""
        self.has_new = False
        """Whether there are partitions that no checkpoint on disk has a line of: a folder that is lost before that is not missed."""
        self._held: dict[str, dict[TopicPartition, Placement]] = {directory.path: {} for directory in directories}
        self._random_bytes = random_bytes
        self._on_offline = on_offline
        self._on_all_failed = on_all_failed
        self._monotonic = monotonic
        self._shortages = LogThrottle(SHORTAGE_INTERVAL_S, SHORTAGES_MAX)

    def online(self) -> list[LogDirectory]:
        """Directories in service."""
        return [directory for directory in self.directories if directory.online]

    def held(self, directory: LogDirectory) -> Iterable[Placement]:
        """What a directory holds."""
        return self._held[directory.path].values()

    def emptiest_first(self, topic_partition: TopicPartition) -> list[LogDirectory]:
        """Directories in service, the one with the fewest partitions first, before it the one that was chosen for a partition."""
        chosen = self.preferred.get(topic_partition)
        return sorted(self.online(), key=lambda directory: (directory is not chosen, len(self._held[directory.path])))

    def prefer(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Have a partition made in a directory, if it is made before this process ends; of very many the first are forgotten."""
        self.preferred.pop(topic_partition, None)
        if len(self.preferred) >= PREFERRED_MAX:
            del self.preferred[next(iter(self.preferred))]
        self.preferred[topic_partition] = directory

    def holds(self, placement: Placement) -> bool:
        """Whether it is still the partition's."""
        return self.placements.get(placement.topic_partition) is placement

    def in_service(self) -> Iterator[Placement]:
        """Placements whose log is open. The set may change between two steps."""
        return (placement for placement in list(self.placements.values()) if placement.log is not None)

    def add(self, placement: Placement) -> None:
        """Take in a partition's folder."""
        assert placement.topic_partition not in self.placements
        self.preferred.pop(placement.topic_partition, None)
        self.placements[placement.topic_partition] = placement
        self._held[placement.directory.path][placement.topic_partition] = placement

    def mark_deleted(self, placement: Placement) -> str:
        """Close a partition's log, give its folder the name of a deleted one, and forget it; the new path.

        Durable once `settle` was called for the directory; a start before that finds by the name that it was deleted. StorageError: it
        is as before, but offline.
        """
        placement.close_unclean()
        try:
            path = self._rename(placement, FolderKind.DELETE)
        except StorageError as error:
            placement.problem = error
            raise
        self._remove(placement)
        placement.directory.forget(placement.topic_partition)
        return path

    def drop_future(self, future: FutureLog) -> None:
        """Forget the copy of a log, and close it. Its folder stays."""
        del self.futures[future.topic_partition]
        future.close_unclean()
        if future.checkpointed_start is not None:
            future.directory.forget(future.topic_partition)

    def set_aside(self, placement: Placement) -> None:
        """Close a log that is not of the topic of that name, and keep its folder as a stray one, durably. StorageError: it is offline.

        The folder keeps its name until the checkpoints have no lines of it: a line without a folder is a partition that is lost.
        """
        directory = placement.directory
        placement.close_unclean()
        try:
            directory.forget(placement.topic_partition)
            self.settle(directory)
            path = self._rename(placement, FolderKind.STRAY)
            self.files.sync_directory(directory.path)
        except StorageError as error:
            placement.problem = error
            raise
        if self.holds(placement):
            self._remove(placement)
        _LOG.warning("folder of an earlier topic, or never used, set aside: folder=%s path=%s", placement.folder, path)

    def _rename(self, placement: Placement, kind: FolderKind) -> str:
        name = marked_name(placement.topic_partition, kind, self._random_bytes(ID_BYTES))
        path = f"{placement.directory.path}/{name}"
        if self.files.exists(placement.folder):  # one that is lost has nothing to be marked
            self.files.rename(placement.folder, path)
        return path

    def _remove(self, placement: Placement) -> None:
        del self.placements[placement.topic_partition]
        del self._held[placement.directory.path][placement.topic_partition]

    def replace(self, placement: Placement, other: Placement) -> None:
        """Have a rival take the place of a placement, which is none of its rivals from now on."""
        self._remove(placement)
        self.add(other)

    def settle(self, directory: LogDirectory) -> None:
        """Make names in a directory and its checkpoints durable, in this order. StorageError."""
        self.note_offsets(directory)
        self.settling(directory)()

    def settling(self, directory: LogDirectory) -> Callable[[], None]:
        """What does that with the offsets that were noted, on any thread. StorageError."""
        write = directory.checkpoint()

        def settle() -> None:
            self.files.sync_directory(directory.path)
            write()

        return settle

    def note_offsets(self, directory: LogDirectory) -> None:
        """Take the offsets of the directory's logs over into its checkpoints, in memory."""
        for placement in self.held(directory):
            self.note_offset(placement)

    def note_offset(self, placement: Placement) -> None:
        """Take the offsets of one log over into its directory's checkpoints, in memory."""
        if (log := placement.log) is not None:
            offsets, key = placement.directory.offsets, placement.topic_partition
            offsets[RECOVERY_POINTS][key] = log.flushed_offset
            log.checkpointed_batches = log.flushed_batches
            offsets[LOG_STARTS][key] = min(log.start_offset, log.flushed_offset)  # a power cut may have the log end there
            offsets[HIGH_WATERMARKS][key] = log.high_watermark if placement.high_watermark is None else placement.high_watermark
            self.note_cut(placement)

    def lower_checkpoints(self, placement: Placement, offset: int) -> None:
        """Before a log is cut: have no checkpoint on disk reach beyond `offset`. StorageError."""
        offsets, key = placement.directory.offsets, placement.topic_partition
        is_lower = False
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
            if offsets[name].get(key, 0) > offset:
                offsets[name][key] = offset
                is_lower = True
        if is_lower:
            placement.directory.checkpoint()()

    def note_holes(self, placement: Placement) -> None:
        """Before offsets are left out of a log: have a line on disk of one that compaction may have left holes in. StorageError."""
        cleaned, key = placement.directory.offsets[CLEANED], placement.topic_partition
        if placement.log is not None and key not in cleaned:
            cleaned[key] = placement.log.start_offset
            try:
                placement.directory.checkpoint()()
            except StorageError:
                del cleaned[key]
                raise

    def note_cut(self, placement: Placement) -> None:
        """Offsets that were cut off and are used again are dirty."""
        cut = None if placement.log is None else placement.log.take_cut()
        cleaned = placement.directory.offsets[CLEANED]
        if cut is not None and cut < cleaned.get(placement.topic_partition, 0):
            cleaned[placement.topic_partition] = cut

    def partition_failed(self, placement: Placement, error: StorageError) -> None:
        """Take note of an error that a partition's log met. Files of it that are missing or not regular affect no other partition."""
        gone = isinstance(error, MissingFileError | NotRegularError) or not self.files.is_directory(placement.folder)
        if gone and not error.no_space and self._is_sound(placement.directory):
            self.take_partition_offline(placement, error)
        else:
            self.storage_failed(placement.directory, error)

    def take_partition_offline(self, placement: Placement, error: MoldauError) -> None:
        """Close a partition's log as it is; the others of its directory stay online. Harmless when it is offline already."""
        if placement.log is not None:
            placement.fail(error)
            _LOG.error("partition offline: partition=%s reason=%s", placement.topic_partition, error)
            self._on_offline(placement.directory.path, [placement.topic_partition])

    def _is_sound(self, directory: LogDirectory) -> bool:
        """Whether the directory itself is still there."""
        return self.files.exists(f"{directory.path}/{META_PROPERTIES}")

    def storage_failed(self, directory: LogDirectory, error: StorageError) -> None:
        """Take note of an error of the disk: a full one passes, any other takes the directory offline.

        A batch of an old format is none: who has met it could not go on, and nobody else is concerned.
        """
        if isinstance(error, OldFormatError):
            _LOG.error("batch not read: path=%s reason=%s", error.path, error.reason)
        elif isinstance(error, MissingFileError | NotRegularError) and self._is_sound(directory):
            _LOG.error("file not used: %s", error)
        elif not error.no_space:
            if directory.online:
                directory.mark_failed()
            self.take_offline(directory, error)
        elif self._monotonic is None or self._shortages.due((directory.path, error.reason), self._monotonic()):
            _LOG.warning("storage short: path=%s reason=%s", error.path, error.reason)

    def take_offline(self, directory: LogDirectory, error: StorageError | DamagedFileError) -> None:
        """Close the directory's logs as they are and give its lock back. Harmless when it is offline already."""
        if not directory.online:
            return
        directory.error = error
        partitions = [placement.topic_partition for placement in self.held(directory)]
        for placement in self.held(directory):
            placement.fail(error)
        for future in [each for each in self.futures.values() if each.directory is directory]:
            self.drop_future(future)
        directory.release()
        _LOG.error("log directory offline: path=%s partitions=%d reason=%s", directory.path, len(partitions), error)
        if self.all_failed:
            failure = AllDirectoriesFailedError(self.directories)
            _LOG.critical("all log directories offline: %s", failure)
            self._on_all_failed(failure)
        self._on_offline(directory.path, partitions)

    @property
    def all_failed(self) -> bool:
        """Whether nothing is left to serve."""
        return not self.online()


class AllDirectoriesFailedError(WorldError):
    """No log directory can be used."""

    def __init__(self, directories: Iterable[LogDirectory]) -> None:
        super().__init__("no log directory can be used: " + "; ".join(str(directory.error) for directory in directories), retriable=False)
