"""Where one segment ends and the next begins: the file of a new segment, the seal of the old one, and the producers' snapshot between."""

from contextlib import suppress
from zlib import crc32

from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
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


class SegmentRoller:
    """Creates the segments of a log. Nothing is staged when one of its methods is called."""

    __slots__ = (
        "_cache",
        "_directory",
        "_files",
        "_partition",
        "_producers",
        "_segments",
        "_snapshot_due",
        "_snapshots",
        "_unsynced",
        "config",
    )

    def __init__(
        self,
        files: FileSystem,
        cache: SegmentCache,
        directory: str,
        partition: str,
        config: LogConfig,
        segments: Segments,
        producers: ProducerStates,
        snapshots: Snapshots,
        unsynced: UnsyncedFiles,
        *,
        recovered: bool,
    ) -> None:
        self._files = files
        self._cache = cache
        self._directory = directory
        self._partition = partition
        self.config = config
        self._segments = segments
        self._producers = producers
        self._snapshots = snapshots
        self._unsynced = unsynced
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES + (0 if recovered else segments.active.size)
        """Size of the active segment from which a snapshot is due."""

    @property
    def is_snapshot_due(self) -> bool:
        """Whether so much was written since the last snapshot that a flush should take one."""
        return self._segments.active.size >= self._snapshot_due

    def append_to(self, segment: Segment, now_ms: int) -> SegmentAppender:
        """The appender of a segment, which looks at its files when it has to."""
        spread = crc32(f"{self._partition}:{segment.base_offset}".encode())
        return SegmentAppender(self._cache, segment, self.config, now_ms, spread)

    def roll(self, appender: SegmentAppender, end_offset: int, now_ms: int) -> SegmentAppender:
        """Seal the active segment and begin a new one at the end of the log. StorageError: the old one stays, or there is a new."""
        if not appender.ready:
            appender.prepare()
        appender.seal()
        self.take_snapshot(end_offset)
        sealed = appender.segment
        self.create_segment(end_offset)
        self._unsynced.add(sealed.path, *sealed.index_paths())
        sealed.transaction_index.unsynced = False
        return self.append_to(self._segments.active, now_ms)

    def create_segment(self, base_offset: int) -> None:
        """Add an empty segment to the log. StorageError."""
        self._segments.add(self._create_file(base_offset))
        self._unsynced.add_directory(self._directory)
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES

    def take_snapshot(self, end_offset: int) -> None:
        """Keep the producers as they are at the end of the log. One that is there already may be safe on disk, and stays as it is."""
        if end_offset not in self._snapshots.offsets:
            self._unsynced.add(self._snapshots.write(end_offset, self._producers.entries))
        self._snapshots.remove_between(self._segments.bases, end_offset)
        self._snapshot_due = self._segments.active.size + SNAPSHOT_INTERVAL_BYTES

    # A segment in the place of an empty one: see `LogAppender.append_as_follower`

    def create_apart(self, base_offset: int, now_ms: int) -> SegmentAppender:
        """The appender of a new segment, which is no part of the log yet, before the empty one that is all of the log. StorageError."""
        segments = self._segments
        self._remove(len(segments) - 1)
        for offset in list(self._snapshots.offsets):
            self._snapshots.remove(offset)
        return self.append_to(self._create_file(base_offset), now_ms)

    def put_in_place(self, appender: SegmentAppender) -> None:
        """Have what it has written be the only segment; it is on disk first. StorageError: the empty one is still that."""
        assert appender.file is not None
        appender.file.sync()
        self._files.sync_directory(self._directory)
        self._remove(1)
        self._segments.add(appender.segment)
        self._unsynced.add_directory(self._directory)
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES

    def discard(self, appender: SegmentAppender) -> None:
        """Remove a segment that was not put in place, if the disk permits it: it begins before the log, and retention would remove it."""
        with suppress(StorageError):
            appender.close()
        with suppress(StorageError):
            self._files.remove(appender.segment.path)

    def _remove(self, count: int) -> None:
        for removed in self._segments.remove(0, count, "empty", self.config.file_delete_delay_ms):
            self._snapshots.forget(removed.base_offset)

    def _create_file(self, base_offset: int) -> Segment:
        segment = Segment(self._files, self._cache, self._directory, base_offset, 0, new=True)
        file = self._files.open(segment.path, create=True)
        try:
            if file.size():
                file.truncate(0)
        except StorageError:
            with suppress(StorageError):
                self._files.remove(segment.path)
            raise
        finally:
            file.release()
        return segment
