"""The port of a table's place: what tables need of a file system, and no more.

Every operation raises OSError, FileNotFoundError for a file that is not there; what was wrong stands in the message or in `strerror`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol


class UnansweredError(OSError):
    """A file may or may not have been put: there was no answer, and none to the repetitions; or it is there, and may not be durable."""


def reason(error: OSError) -> str:
    """What was wrong, as the end of a line; what a store says has names in it, and stays as it is."""
    return error.strerror.lower() if error.strerror else str(error)


@dataclass(frozen=True, slots=True)
class FileState:
    """A file that is there."""

    name: str
    """Relative to the table."""
    size: int
    changed_s: float
    """When it was put, in seconds since 1970."""


class Place(Protocol):
    """Where one table lies."""

    @property
    def scratch(self) -> str | None:
        """A directory of this machine for files without a name; None: where temporary files are."""

    def check(self) -> None:
        """Files can be put and deleted here, and a name that is taken is refused. Leaves nothing."""

    def prepare(self, folder: str) -> None:
        """Files can be put into the folder from now on; its name survives a power failure."""

    def has_folder(self, folder: str) -> bool:
        """Whether the folder is there."""

    def changed_ns(self, folder: str) -> int | None:
        """A number that changes when a file of the folder is put or deleted; None if there is none to be had."""

    def put_new(self, name: str, content: bytes) -> None:
        """Put a whole file if its name is free; it is durable then. FileExistsError if another one has the name, and UnansweredError;
        after any other error nothing has happened.

        `content` is no other writer's: so a repetition after a lost answer finds out that the file is this one.
        """

    def put(self, name: str, content: bytes) -> None:
        """Put a whole file in place of the one that there may be."""

    def read(self, name: str) -> bytes:
        """A whole file."""

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Each file that is still there, in this order."""

    def source(self, name: str) -> Any:
        """What pyarrow opens to read parts of a file."""

    def file_system(self) -> tuple[Any, str]:
        """A file system of pyarrow, and the table's path in it."""

    def create(self, name: str) -> BinaryIO:
        """A new data file, to be written and then ended or abandoned."""

    def end(self, name: str, file: BinaryIO) -> None:
        """The file that `create` returned is written; it can be read and is durable once `settle` has returned."""

    def abandon(self, name: str, file: BinaryIO) -> None:
        """Remove a file that `create` returned, ended or not. An error leaves it as an orphan."""

    def settle(self, names: list[str]) -> None:
        """Wait until these ended files and their names are durable."""

    def state(self, name: str) -> FileState:
        """A file's size and time."""

    def names(self, folder: str, after: str = "") -> list[str]:
        """What the files in a folder are called in it, in no order; only those above `after`. Those in folders below it are not wanted, and
        may be among them. FileNotFoundError may be raised for a folder that is not there, or it has no files."""

    def states(self, folder: str) -> list[FileState]:
        """The files in a folder, likewise."""

    def walk(self, below: str = "") -> Iterator[FileState]:
        """All files, but for those in folders whose names begin with an underscore."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already are none the less."""

    @property
    def keeps_marks(self) -> bool:
        """Whether the time of a file can be set."""

    def mark(self, name: str) -> None:
        """Set the time of a file to now, if the place keeps that."""
