"""One log directory as a whole: its lock, whose it is, its checkpoints, its mark of a clean stop.

The order that matters. At start: lock, identity, checkpoints, remove the clean mark, then open logs; a crash while they are opened is
thus seen as one. At stop: logs are flushed and closed, then the checkpoints are written, then the mark, each durable before the next.

After a failed sync memory holds bytes that the disk does not have. A broker that is started again would read those, take them for good
and, after a sync that has nothing left to do, for safe. So a directory that fails is marked, and at the next start its logs are read from
the disk. The mark need not reach the disk: when the machine stops, what is in memory is gone too. A disk that fails altogether takes no
mark; so after any stop that was not clean, what is not known to be synced is read from the disk.
"""

import contextlib
import json
import logging
import posixpath
from collections.abc import Callable, Mapping, Sequence

from moldau.log.checkpoints import (
    ACCEPTED_LOSS,
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    CheckpointWriter,
    format_offsets,
    read_offsets,
)
from moldau.log.damage import DamagedFileError
from moldau.log.meta_properties import ADOPTED, OURS, MetaProperties, format_meta_properties, read_meta_properties
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.names import FolderKind, parse_folder
from moldau.model.errors import StorageError, WorldError
from moldau.model.identity import TopicPartition
from moldau.model.value import Value
from moldau.ports.filesystem import FileLock, FileSystem

_LOG = logging.getLogger(__name__)

LOCK = ".lock"
CLEAN_MARK = ".kafka_cleanshutdown"
NO_EPOCH = -1
FAILED_MARK = ".moldau_failed"
WITHOUT_CHECKPOINT = {
    RECOVERY_POINTS: "after a crash every log is checked from its beginning",
    HIGH_WATERMARKS: "high watermarks are the ends of the logs",
    LOG_STARTS: "logs begin with their first segments, and show again what DeleteRecords removed from those",
    CLEANED: "logs are compacted from their beginning",
}
"""What is done without a checkpoint file."""
KEPT_PROPERTIES = f"{META_PROPERTIES}.adopted"
"""Where the identity of an adopted directory is kept when ours takes its place."""


class Identity(Value):
    """Whose directories these are."""

    broker_id: int
    cluster_id: str


class ForeignDirectoryError(WorldError):
    """A log directory was written by another system, cluster or broker, and nobody said that it shall be adopted."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path} {message}", retriable=False)
        self.path = path


class LogDirectory:
    """A directory in use. Whoever gets a StorageError from it other than a full disk takes it offline by setting `error`.

    Invariant: `offsets` holds for each of the checkpoint files a line for each partition that was ever seen in this directory and not
    deleted, also for those whose logs are offline; for that of compaction, for each that was ever compacted.
    """

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = path
        self.error: StorageError | DamagedFileError | None = None
        """Why it is offline."""
        self.clean = False
        """Whether the last stop was clean: everything in the logs is on disk and whole."""
        self.clean_epochs: tuple[int, ...] = ()
        """The broker's registrations up to that stop, since which it has lost nothing."""
        self.adopted = False
        """Whether another system once wrote it."""
        self.failed_before = False
        """Whether its disk failed, so that memory may hold what that does not have."""
        self.offsets: dict[str, dict[TopicPartition, int]] = {name: {} for name in OFFSET_CHECKPOINTS}
        self.knows_recovery_points = True
        """Whether a partition without a recovery point never had one."""
        self.accepted_loss: set[TopicPartition] = set()
        """Partitions that may be opened although records of theirs are lost."""
        self.unlowered: set[TopicPartition] = set()
        """Partitions whose logs end before the recovery points that are on disk: the lower ones found no room."""
        self._forgotten: dict[TopicPartition, int] = {}
        self._forgets = 0
        self._forgets_on_disk = 0
        """`forget` has been called so often, and so often when the checkpoints on disk were made."""
        self._has_compacted = False
        """Whether there is, or may be, a checkpoint of compaction."""
        self._checkpoints = CheckpointWriter(files, path)
        self._files = files
        self._lock: FileLock | None = None

    @property
    def online(self) -> bool:
        """Whether its logs can be served."""
        return self.error is None

    def open(self, identity: Identity, *, adopt: bool) -> None:
        """Lock it, making it first if it is missing, and read what it says about itself and its logs.

        LockHeldError, ForeignDirectoryError; DamagedFileError for a meta.properties that cannot be understood; StorageError.
        """
        if not adopt:
            self.refuse_foreign(identity)  # before the lock file is made
        self._make()
        self._lock = self._files.lock(f"{self.path}/{LOCK}")
        self._claim(identity, adopt)
        self._read_checkpoints()
        self._has_compacted = self._files.exists(f"{self.path}/{CLEANED}")
        self.failed_before = self._files.exists(f"{self.path}/{FAILED_MARK}")
        self.clean = self._files.exists(f"{self.path}/{CLEAN_MARK}")
        if self.clean:
            self.clean_epochs = self._read_clean_epochs()
            self._files.remove(f"{self.path}/{CLEAN_MARK}")
            self._files.sync_directory(self.path)

    def _read_clean_epochs(self) -> tuple[int, ...]:
        """What the mark of a clean stop says; it counts as one whatever it says."""
        try:
            first, *more = self._files.read(f"{self.path}/{CLEAN_MARK}").splitlines()
            epochs = [*(json.loads(more[0])["previousBrokerEpochs"] if more else ()), json.loads(first)["brokerEpoch"]]
        except (StorageError, ValueError, KeyError, TypeError):
            return ()
        return tuple(epochs) if all(isinstance(each, int) for each in epochs) and epochs[-1] != NO_EPOCH else ()

    def _read_checkpoints(self) -> None:
        written = [name for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS) if self._files.exists(f"{self.path}/{name}")]
        for name in self.offsets:
            path = f"{self.path}/{name}"
            try:
                self.offsets[name] = read_offsets(self._files, path)
            except DamagedFileError as error:
                _LOG.warning("checkpoint not used: %s; %s", error, WITHOUT_CHECKPOINT[name])
                self.knows_recovery_points &= name != RECOVERY_POINTS
            else:
                if written and name != CLEANED and (name not in written or not self._files.size(path)):
                    _LOG.warning("checkpoint is missing or empty: path=%s; %s", path, WITHOUT_CHECKPOINT[name])
                    self.knows_recovery_points &= name != RECOVERY_POINTS
        try:
            self.accepted_loss = set(read_offsets(self._files, f"{self.path}/{ACCEPTED_LOSS}"))
        except DamagedFileError as error:
            _LOG.warning("accepted losses not known: %s; run the command again", error)

    def refuse_foreign(self, identity: Identity) -> None:
        """ForeignDirectoryError for a directory that is not this broker's and would have to be adopted. Writes nothing.

        DamagedFileError, StorageError.
        """
        if self._files.exists(self.path):
            self._refuse(self._why_foreign(read_meta_properties(self._files, self.path), identity))

    def _refuse(self, foreign: str | None) -> None:
        if foreign is not None:
            raise ForeignDirectoryError(self.path, f"{foreign}; start with --adopt to take it over")

    def record(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Take over new offsets for one checkpoint file, in memory."""
        self.offsets[name].update(offsets)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop a deleted partition's lines, in memory. They must be on disk no more when a partition of that name is made again, or its
        recovery would begin too late; see `has_stale_lines`."""
        for offsets in self.offsets.values():
            offsets.pop(topic_partition, None)
        if not self.has_stale_lines:
            self._forgotten.clear()
        self._forgets += 1
        self._forgotten[topic_partition] = self._forgets

    @property
    def has_stale_lines(self) -> bool:
        """Whether checkpoints on disk may have lines of partitions that were deleted."""
        return self._forgets > self._forgets_on_disk

    def has_stale_line(self, topic_partition: TopicPartition) -> bool:
        """Whether they may have one of a deleted partition of this name."""
        return self._forgotten.get(topic_partition, 0) > self._forgets_on_disk

    def known(self) -> set[TopicPartition]:
        """The partitions that have a line in any checkpoint: they had a folder here."""
        return {key for offsets in self.offsets.values() for key in offsets}

    def forget_accepted(self) -> None:
        """The losses that were accepted are dealt with, and so on disk. StorageError."""
        if self.accepted_loss:
            self._files.remove(f"{self.path}/{ACCEPTED_LOSS}")
            self.accepted_loss = set()

    def checkpoint(self) -> Callable[[], None]:
        """The work of bringing the checkpoints, as they should be now, to disk. It may run in any thread; StorageError."""
        forgets, write = self._forgets, self._checkpoints.prepare(self._checkpoint_contents())

        def run() -> None:
            write()
            self._forgets_on_disk = max(self._forgets_on_disk, forgets)

        return run

    def _checkpoint_contents(self) -> Callable[[], dict[str, bytes]]:
        """The checkpoint files as they should be now, to be made on any thread: with many partitions that takes long.

        Log starts at 0 go without saying, and so does that nothing was ever compacted.
        """
        self._has_compacted = self._has_compacted or bool(self.offsets[CLEANED])
        now = {name: dict(offsets) for name, offsets in self.offsets.items() if name != CLEANED or self._has_compacted}

        def contents() -> dict[str, bytes]:
            now[LOG_STARTS] = {topic_partition: offset for topic_partition, offset in now[LOG_STARTS].items() if offset > 0}
            return {name: format_offsets(offsets) for name, offsets in now.items()}

        return contents

    def mark_clean(self, broker_epochs: Sequence[int]) -> None:
        """Say, durably, that all logs are closed and flushed and the checkpoints written, by the broker in the last of these registrations,
        and that it has lost nothing since the first. Kafka reads the first line, and no further.
        """
        *previous, last = broker_epochs or (NO_EPOCH,)
        mark = b'{"version":0,"brokerEpoch":%d}' % last
        if previous:
            mark += b'\n{"previousBrokerEpochs":%s}' % json.dumps(previous, separators=(",", ":")).encode()
        self._files.write_atomically(f"{self.path}/{CLEAN_MARK}", mark)

    def mark_failed(self) -> None:
        """Say that its files are to be read from the disk at the next start. Does what it can: the disk has failed."""
        with contextlib.suppress(StorageError):
            self._files.open(f"{self.path}/{FAILED_MARK}", create=True).release()

    def forget_failure(self) -> None:
        """The logs have been read from the disk. StorageError."""
        self.failed_before = False
        self._files.remove(f"{self.path}/{FAILED_MARK}")

    def release(self) -> None:
        """Give the lock back."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _make(self) -> None:
        """Create it and its missing parents, with names that survive a crash."""
        made: list[str] = []
        path = self.path
        while path and not self._files.exists(path):
            made.append(path)
            path = posixpath.dirname(path)
        if made:
            self._files.make_directory(self.path)
        for path in made:
            self._files.sync_directory(posixpath.dirname(path) or ".")

    def _claim(self, identity: Identity, adopt: bool) -> None:
        """Check that the directory is this broker's, or make it so."""
        found = read_meta_properties(self._files, self.path)
        foreign = self._why_foreign(found, identity)
        if not adopt:
            self._refuse(foreign)
        self.adopted = foreign is not None or (found is not None and found.moldau == ADOPTED)
        if found is not None and foreign is None:
            return
        kept = f"{self.path}/{KEPT_PROPERTIES}"
        if found is not None and not self._files.exists(kept):
            self._files.write_atomically(kept, self._files.read(f"{self.path}/{META_PROPERTIES}"))
        ours = MetaProperties(0, identity.broker_id, identity.cluster_id, moldau=ADOPTED if self.adopted else OURS)
        self._files.write_atomically(f"{self.path}/{META_PROPERTIES}", format_meta_properties(ours))

    def _why_foreign(self, found: MetaProperties | None, identity: Identity) -> str | None:
        """What speaks against the directory being this broker's; None if it is, or if it is nobody's."""
        if found is None:
            folders = self._partition_folders()
            return f"holds {len(folders)} partition folders ({folders[0]}, ...) but no {META_PROPERTIES}" if folders else None
        if found.moldau is None:
            return f"was written by another system, for the cluster {found.cluster_id or 'without an id'}"
        if found.cluster_id != identity.cluster_id:
            other = f"another --metadata or --zookeeper, or a backup, has the metadata of {found.cluster_id}"
            return f"belongs to the cluster {found.cluster_id}, this broker to {identity.cluster_id} ({other})"
        if found.broker_id != identity.broker_id:
            return f"belongs to broker {found.broker_id}, this is broker {identity.broker_id}"
        return None

    def _partition_folders(self) -> list[str]:
        folders = map(parse_folder, self._files.list(self.path))
        return [folder.name for folder in folders if folder is not None and folder.kind is FolderKind.LOG]
