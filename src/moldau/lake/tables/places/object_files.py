"""The objects of a table as a file system of pyarrow that only reads: what a dataset needs."""

from typing import Any, NoReturn, Protocol

from pyarrow.fs import FileInfo, FileSystemHandler, FileType

from moldau.lake.tables.places.place import FileState


class Readable(Protocol):
    """A place as far as it is read here."""

    def state(self, name: str) -> FileState:
        """A file's size and time."""

    def source(self, name: str) -> Any:
        """What pyarrow reads."""


class ObjectFiles(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Paths are names below the table."""

    def __init__(self, place: Readable) -> None:
        self._place = place

    def get_type_name(self) -> str:
        """For messages."""
        return "objects"

    def normalize_path(self, path: str) -> str:
        """As it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """Of each its size; or that it is not there."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        try:
            return FileInfo(path, FileType.File, size=self._place.state(path).size)
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def open_input_file(self, path: str) -> Any:
        """A file that reads ranges."""
        return self._place.source(path)

    def open_input_stream(self, path: str) -> Any:
        """The same."""
        return self._place.source(path)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("tables are read through this file system, and changed by commits alone")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
