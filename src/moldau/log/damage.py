"""A small file that does not say what it should."""

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
