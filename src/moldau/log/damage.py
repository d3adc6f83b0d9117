"""Files that do not say what they should, and records that are gone."""

from moldau.model.errors import WorldError


class DamagedFileError(WorldError):
    """A checkpoint, snapshot or property file cannot be understood. Expected after a crash of somebody's disk: whoever reads the file
    knows what to do without it.
    """

    def __init__(self, path: str, where: str, message: str) -> None:
        super().__init__(f"{path}, {where}: {message}", retriable=False)
        self.path = path
        self.where = where
        """Line or byte, as text."""
        self.message = message


class LostRecordsError(WorldError):
    """Records that were on disk are gone, or cannot be read. The partition stays offline, and its files as they are, until somebody puts
    them back or accepts the loss.
    """

    def __init__(self, folder: str, lost: str) -> None:
        directory, _, partition = folder.rpartition("/")
        super().__init__(
            f"{lost}. Put the files back from a backup, or accept the loss with `moldau log accept-loss {directory} {partition}`; "
            "then start the broker again",
            retriable=False,
        )
