"""Damaged files and lost records."""

from enum import Enum

from moldau.model.errors import WorldError


class Holes(Enum):
    """Where offsets that are missing after the recovery point are no loss."""

    NONE = "none"
    IN_SEGMENTS = "in segments"
    """A follower fetched them from a log that was compacted: where a batch stands at the end of the one before it, nothing is missing."""
    ANYWHERE = "anywhere"
    """The log was compacted, and its recovery point is not known."""


class DamagedFileError(WorldError):
    """A checkpoint, snapshot or property file cannot be understood. Expected after a crash: the reader of the file
    knows what to do without it.
    """

    def __init__(self, path: str, where: str, message: str) -> None:
        super().__init__(f"{path}, {where}: {message}", retriable=False)
        self.path = path
        self.where = where
        """Line or byte, as text."""
        self.message = message


class LostRecordsError(WorldError):
    """Records that were on disk are missing, or cannot be read. The partition stays offline, and its files unchanged, until an operator
    restores them or accepts the loss.
    """

    def __init__(self, folder: str, lost: str) -> None:
        directory, _, partition = folder.rpartition("/")
        super().__init__(
            f"{lost}. Put the files back from a backup, or accept the loss with `moldau log accept-loss {directory} {partition}`; "
            "then start the broker again",
            retriable=False,
        )
