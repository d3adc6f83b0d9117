"""Where one segment ends and the next begins: the file of a new segment, the seal of the old one, and the producers' snapshot between."""

from contextlib import suppress
from zlib import crc32

from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.offsets import LogOffsets
from moldau.log.producer_snapshots import Snapshots
from moldau.log.producer_states import ProducerStates
from moldau.log.segment import Segment
from moldau.log.segment_appender import SegmentAppender
from moldau.log.segments import Segments
from moldau.log.unsynced import UnsyncedFiles
from moldau.model.errors import StorageError
from moldau.ports.filesystem import FileSystem

SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
"""A flush also takes a producer snapshot when so much was written since the last one: it bounds what a start has to walk."""


class LogParts:
    """What one log consists of: its place, its settings, its offsets, and what it has in files."""

    __slots__ = (
        "cache",
        "config",
        "directory",
        "epochs",
        "files",
        "offsets",
        "partition",
        "producers",
        "segments",
        "snapshots",
        "unsynced",
    )

    def __init__(
        self,
        files: FileSystem,
        cache: SegmentCache,
        directory: str,
        config: LogConfig,
        offsets: LogOffsets,
        segments: Segments,
        producers: ProducerStates,
        snapshots: Snapshots,
        epochs: LeaderEpochs,
        unsynced: UnsyncedFiles,
    ) -> None:
        self.files = files
        self.cache = cache
        self.directory = directory
        self.partition = producers.partition
        self.config = config
        """As it is now; replaced when the log is reconfigured."""
        self.offsets = offsets
        self.segments = segments
        self.producers = producers
        self.snapshots = snapshots
        self.epochs = epochs
        self.unsynced = unsynced


class SegmentRoller:
    """Creates the segments of a log. Nothing is staged when one of its methods is called."""

    __slots__ = ("_parts", "_snapshot_due")

    def __init__(self, parts: LogParts, *, recovered: bool) -> None:
        self._parts = parts
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES + (0 if recovered else parts.segments.active.size)
        """Size of the active segment from which a snapshot is due."""

    @property
    def is_snapshot_due(self) -> bool:
        """Whether so much was written since the last snapshot that a flush should take one."""
        return self._parts.segments.active.size >= self._snapshot_due

    def append_to(self, segment: Segment, now_ms: int) -> SegmentAppender:
        """The appender of a segment, which looks at its files when it has to."""
        spread = crc32(f"{self._parts.partition}:{segment.base_offset}".encode())
        return SegmentAppender(self._parts.cache, segment, self._parts.config, now_ms, spread)

    def roll(self, appender: SegmentAppender, end_offset: int, now_ms: int) -> SegmentAppender:
        """Seal the active segment and begin a new one at the end of the log. StorageError: the old one stays, or there is a new."""
        if not appender.ready:
            appender.prepare()
        appender.seal()
        self.take_snapshot(end_offset)
        sealed = appender.segment
        self.create_segment(end_offset)
        self._parts.unsynced.add(sealed.path, *sealed.synced_paths())
        sealed.transaction_index.unsynced = False
        return self.append_to(self._parts.segments.active, now_ms)

    def create_segment(self, base_offset: int) -> None:
        """Add an empty segment to the log. StorageError."""
        self._parts.segments.add(self._create_file(base_offset))
        self._parts.unsynced.add_directory(self._parts.directory)
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES

    def take_snapshot(self, end_offset: int) -> None:
        """Keep the producers as they are at the end of the log. One that is there already may be safe on disk, and stays as it is."""
        if end_offset not in self._parts.snapshots.offsets:
            self._parts.unsynced.add(self._parts.snapshots.write(end_offset, self._parts.producers.entries))
        self._parts.snapshots.remove_between(self._parts.segments.bases, end_offset)
        self._snapshot_due = self._parts.segments.active.size + SNAPSHOT_INTERVAL_BYTES

    # A segment in the place of an empty one: see `LogAppender.append_as_follower`

    def create_apart(self, base_offset: int, now_ms: int) -> SegmentAppender:
        """The appender of a new segment, which is no part of the log yet, before the empty one that is all of the log. StorageError."""
        segments = self._parts.segments
        self._remove(len(segments) - 1)
        for offset in list(self._parts.snapshots.offsets):
            self._parts.snapshots.remove(offset)
        return self.append_to(self._create_file(base_offset), now_ms)

    def put_in_place(self, appender: SegmentAppender) -> None:
        """Have what it has written be the only segment; it is on disk first. StorageError: the empty one is still that."""
        assert appender.file is not None
        appender.file.sync()
        self._parts.files.sync_directory(self._parts.directory)
        self._remove(1)
        self._parts.segments.add(appender.segment)
        self._parts.unsynced.add_directory(self._parts.directory)
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES

    def discard(self, appender: SegmentAppender) -> None:
        """Remove a segment that was not put in place, if the disk permits it: it begins before the log, and retention would remove it."""
        with suppress(StorageError):
            appender.close()
        with suppress(StorageError):
            self._parts.files.remove(appender.segment.path)

    def _remove(self, count: int) -> None:
        for removed in self._parts.segments.remove(0, count, "empty", self._parts.config.file_delete_delay_ms):
            self._parts.snapshots.forget(removed.base_offset)

    def _create_file(self, base_offset: int) -> Segment:
        segment = Segment(self._parts.files, self._parts.cache, self._parts.directory, base_offset, 0, new=True)
        file = self._parts.files.open(segment.path, create=True)
        try:
            if file.size():
                file.truncate(0)
        except StorageError:
            with suppress(StorageError):
                self._parts.files.remove(segment.path)
            raise
        finally:
            file.release()
        return segment
