"""The files of a log that are written and not synced, and the job that syncs them in another thread.

The order within a job matters: first the bytes of the segments, then the names of new files, then the leader epochs. Only when all of it is
done does the broker's thread move the recovery point, and only then may an acknowledgement that waits for the disk be sent.
A crash before that leaves an older recovery point, from which the log is read batch by batch.

A rolled segment is synced with its indexes and the producer snapshot taken at the roll, and never looked at again by recovery.
The active segment is synced without its indexes: recovery rebuilds the last stretch of them.
"""

from typing import TYPE_CHECKING

from moldau.log import names
from moldau.log.leader_epochs import LeaderEpochs
from moldau.model.errors import StorageError
from moldau.ports.filesystem import File, FileSystem

if TYPE_CHECKING:
    from moldau.log.segment import Segment


class FlushJob:
    """`run` in any thread, then `LogFlush.flush_done` on the broker's: everything before `offset` is on disk."""

    __slots__ = (
        "_epochs",
        "_files",
        "_sync",
        "batches",
        "directories",
        "failed",
        "generation",
        "is_wanted",
        "offset",
        "paths",
        "place",
        "stable_offset",
    )

    def __init__(
        self, files: FileSystem, offset: int, generation: int, paths: list[str], active: File | None, directories: list[str]
    ) -> None:
        self._files = files
        self.offset = offset
        self.generation = generation
        self.paths = paths
        self.directories = directories
        self.failed = False
        """Whether it is unknown what is on disk."""
        self.is_wanted = True
        """Until its log is closed. Its folder may have another name then, and another log its old name."""
        self.place: tuple[Segment, int] | None = None
        """Where the record at `offset` is going to be."""
        self.batches = 0
        """How many batches the log had counted."""
        self.stable_offset = 0
        """The last stable offset, as what is on disk then decides it."""
        self._epochs: tuple[str, bytes] | None = None
        self._sync: list[File] = []
        try:
            self._sync.extend(files.open(path) for path in paths if files.exists(path))
        except StorageError:
            self.release()
            raise
        if active is not None:
            active.retain()
            self._sync.append(active)

    def add_epochs(self, path: str, data: bytes) -> None:
        """Write the checkpoint of leader epochs too."""
        self._epochs = (path, data)

    def run(self) -> None:
        """Bring everything to disk. StorageError: if `failed`, the recovery point never moves again; else there was no room for the
        epochs, and a later job may bring all of it to disk.
        """
        try:
            for file in self._sync:
                file.sync()
            if not self.is_wanted:
                return
            for directory in self.directories:
                self._files.sync_directory(directory)
            if self._epochs is not None:
                self._files.write_atomically(*self._epochs)
        except StorageError as error:
            self.failed = not error.no_space
            raise

    def wrote(self, epochs: bytes) -> bool:
        """Whether these are the epochs that it wrote."""
        return self._epochs is not None and self._epochs[1] == epochs

    def release(self) -> None:
        """Close what the job held open. On the broker's thread."""
        files, self._sync = self._sync, []
        for file in files:
            file.release()


class UnsyncedFiles:
    """What of one log was written and not synced.

    Invariant: each file with a record between the recovery point and the end is the active segment, in `_paths`, or in a job of `_jobs`.
    """

    __slots__ = ("_directories", "_directory", "_files", "_generation", "_jobs", "_paths")

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._paths: list[str] = []
        self._directories: list[str] = []
        self._jobs: list[FlushJob] = []
        self._generation = 0

    @property
    def truncations(self) -> int:
        """How often offsets were cut off."""
        return self._generation

    @property
    def has_files(self) -> bool:
        """Whether files other than the active segment wait for a sync that is not under way."""
        return bool(self._paths)

    @property
    def has_names(self) -> bool:
        """Whether names of files do."""
        return bool(self._directories)

    def add(self, *paths: str) -> None:
        """These files, and their names, have to be synced."""
        self._paths += paths
        self.add_directory(self._directory)

    def add_directory(self, path: str) -> None:
        """Names in this directory have to be synced."""
        if path not in self._directories:
            self._directories.append(path)

    def truncated(self) -> None:
        """Offsets were cut off: a job that runs now must not move the recovery point."""
        self._generation += 1

    def job(self, offset: int, active: File | None, epochs: LeaderEpochs) -> FlushJob:
        """The job after which all before `offset` is on disk. It includes what jobs still running are at. StorageError."""
        if any(job.failed for job in self._jobs):
            raise StorageError("an earlier sync failed; the log has to be opened again", path=self._directory)
        paths = [path for job in self._jobs for path in job.paths] + self._paths
        directories = list(dict.fromkeys([path for job in self._jobs for path in job.directories] + self._directories))
        job = FlushJob(self._files, offset, self._generation, paths, active, directories)
        if epochs.changed:
            job.add_epochs(f"{self._directory}/{names.LEADER_EPOCHS}", epochs.encode())
        self._jobs.append(job)
        self._paths, self._directories = [], []
        return job

    def done(self, job: FlushJob, epochs: LeaderEpochs) -> bool:
        """Take note that `job` has run; whether its offset still counts."""
        job.release()
        if not job.is_wanted:
            return False
        self._jobs.remove(job)
        if epochs.changed and job.wrote(epochs.encode()):
            epochs.changed = False
        return job.generation == self._generation

    def give_up(self, job: FlushJob) -> None:
        """Take note that `job` has raised. What it was to bring to disk is left to the next one; if a sync has failed there is none."""
        job.release()
        if job.is_wanted and not job.failed:
            self._jobs.remove(job)
            self._paths = job.paths + self._paths
            for directory in job.directories:
                self.add_directory(directory)

    def close(self) -> None:
        """No job counts any more. One that runs in another thread keeps its files until it has ended."""
        for job in self._jobs:
            job.is_wanted = False
        self._jobs.clear()
