"""A prefix of a bucket of an object store that speaks S3, through ``obstore``.

A version is put on the condition that its name is free (``If-None-Match: *``), which the store decides. If the answer is lost, the
repetition finds the name taken; what is there says by whom, since no two versions have the same content. What was answered is durable.

A data file is written to a temporary file without a name, and put when it is ended: in parts if it is large, several files at a time. An
upload that is cut off leaves no object; parts of it stay in the store until the bucket's lifecycle rule deletes them.
"""

import contextlib
import io
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, BinaryIO

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from moldau.lake.tables.places.place import FileState, UnansweredError

PATIENCE_S = 60.0
"""So long a put without an answer is repeated."""
_PAUSE_S = 0.5
_THREADS = 16
_AT_ONCE = 64
"""Of files that are read whole, so many are held at once at the most."""
_PART_BYTES = 16 << 20
_RETRIES: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}
_REFUSED = (PermissionDeniedError, UnauthenticatedError)
_STATUS = re.compile(r"status code: (4\d\d)")
_ASK_AGAIN = ("408", "409", "429")
_CODE, _MESSAGE = re.compile(r"<Code>([^<]*)</Code>"), re.compile(r"<Message>([^<]*)</Message>")


_uploads: dict[str, Future[None]] = {}
"""By the object's address: what one place of an address has begun another one waits for, since places are made again."""


class ObjectPlace:
    """A prefix of a bucket."""

    def __init__(self, address: str, bucket: str, prefix: str) -> None:
        self._address = address.rstrip("/")
        try:
            self._store = S3Store(bucket, prefix=prefix or None, retry_config=_RETRIES)
        except (BaseError, ValueError) as error:
            raise ValueError(f"{address}: {_reason(error)}") from error
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def scratch(self) -> str | None:
        """No directory of this machine."""
        return None

    def check(self) -> None:
        """Puts an object twice."""
        name = f"_moldau_{uuid.uuid4().hex}.probe"
        self.put_new(name, b"1")
        try:
            self.put_new(name, b"2")
        except FileExistsError:
            return
        finally:
            self.delete([name])
        raise OSError(
            "the object store puts an object whose name is taken (it ignores If-None-Match), so two loads could both make a version"
        )

    def prepare(self, folder: str) -> None:
        """There are no folders."""

    def has_folder(self, folder: str) -> bool:
        """Whether an object's name begins with it."""
        with self._translated(folder):
            return any(obstore.list(self._store, folder, chunk_size=1))

    def changed_ns(self, _folder: str) -> int | None:
        """Only a listing would show."""
        return None

    def put_new(self, name: str, content: bytes) -> None:
        """A conditional put, repeated until there is an answer."""
        until, unanswered = time.monotonic() + PATIENCE_S, False
        while True:
            problem: Exception
            try:
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
                return
            except AlreadyExistsError as error:
                try:
                    if self.read(name) == content:
                        return
                except FileNotFoundError:  # the put that was in the way was not made after all
                    problem = error
                except OSError as unread:  # so it may be this one
                    problem, unanswered = unread, True
                else:
                    raise FileExistsError(f"{self._full(name)}: the name is taken") from error
            except (BaseError, OSError) as error:
                if not unanswered and _is_refusal(error):
                    raise self._translation(name, error) from error
                problem, unanswered = error, True
            if time.monotonic() >= until:
                text = f"{self._full(name)}: no answer, so it may have been put or not: {_reason(problem)}"
                raise UnansweredError(text) from problem
            time.sleep(_PAUSE_S)

    def put(self, name: str, content: bytes) -> None:
        """One put."""
        with self._translated(name):
            obstore.put(self._store, name, content, use_multipart=False)

    def read(self, name: str) -> bytes:
        """One get."""
        with self._translated(name):
            return bytes(obstore.get(self._store, name).bytes())

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Several at a time."""
        wanted = list(names)
        for begin in range(0, len(wanted), _AT_ONCE):
            some = wanted[begin : begin + _AT_ONCE]
            for name, content in zip(some, self._threads().map(self._read_if_there, some), strict=True):
                if content is not None:
                    yield name, content

    def _read_if_there(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except FileNotFoundError:
            return None

    def source(self, name: str) -> Any:
        """A file of pyarrow, which reads ranges."""
        return pa.PythonFile(_ObjectReader(self, name), mode="r")

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """A part of a file."""
        with self._translated(name):
            return bytes(obstore.get_range(self._store, name, start=start, length=length))

    def file_system(self) -> tuple[Any, str]:
        """One that reads the objects of this place."""
        from pyarrow.fs import PyFileSystem

        from moldau.lake.tables.places.object_files import ObjectFiles

        return PyFileSystem(ObjectFiles(self)), ""

    def create(self, _name: str) -> BinaryIO:
        """A file that is nowhere to be seen."""
        return tempfile.TemporaryFile()  # closed when it is put, or abandoned

    def end(self, name: str, file: BinaryIO) -> None:
        """Begin to put it."""
        file.seek(0)
        _uploads[self._full(name)] = self._threads().submit(self._upload, name, file)

    def _upload(self, name: str, file: BinaryIO) -> None:
        with file, self._translated(name):
            obstore.put(self._store, name, file, chunk_size=_PART_BYTES, max_concurrency=2)

    def abandon(self, name: str, file: BinaryIO) -> None:
        """Wait until it is put, if it is ended, and delete it."""
        upload = _uploads.pop(self._full(name), None)
        with contextlib.suppress(OSError):
            if upload is not None and not upload.cancel():
                upload.result()
        file.close()
        with contextlib.suppress(OSError):
            self.delete([name])

    def settle(self, names: list[str]) -> None:
        """Wait until they are put."""
        for name in names:
            upload = _uploads.pop(self._full(name), None)
            if upload is not None:
                upload.result()

    def state(self, name: str) -> FileState:
        """One head."""
        with self._translated(name):
            return _state(obstore.head(self._store, name))

    def names(self, folder: str, after: str = "") -> list[str]:
        """None for a folder that is not there."""
        return [name for each in self._listed(folder, after) if "/" not in (name := each["path"].removeprefix(f"{folder}/"))]

    def states(self, folder: str) -> list[FileState]:
        """None for a folder that is not there."""
        return [_state(each) for each in self._listed(folder) if "/" not in each["path"].removeprefix(f"{folder}/")]

    def walk(self, below: str = "") -> Iterator[FileState]:
        """Of one listing."""
        for each in self._listed(below):
            if not any(part.startswith("_") for part in each["path"].split("/")[:-1]):
                yield _state(each)

    def _listed(self, folder: str, after: str = "") -> Iterator[Any]:
        with self._translated(folder):
            for some in obstore.list(self._store, folder or None, offset=f"{folder}/{after}" if after else None, chunk_size=1000):
                yield from some

    def delete(self, names: Iterable[str]) -> None:
        """In this order, as far as the store keeps it within a request."""
        wanted = list(names)
        for begin in range(0, len(wanted), 1000):
            with self._translated(wanted[begin]), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, wanted[begin : begin + 1000])

    @property
    def keeps_marks(self) -> bool:
        """An object keeps the time when it was put."""
        return False

    def mark(self, _name: str) -> None:
        """Not possible."""

    def _full(self, name: str) -> str:
        return f"{self._address}/{name}"

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "objects")
            return self._pool

    @contextlib.contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise self._translation(name, error) from error

    def _translation(self, name: str, error: Exception) -> OSError:
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
        return kind(f"{self._full(name)}: {_reason(error)}")


def _state(found: Any) -> FileState:
    return FileState(found["path"], found["size"], found["last_modified"].timestamp())


def _reason(error: Exception) -> str:
    """What the store says; without the debugging text of the library, which repeats it."""
    text = str(error).strip()
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        return code[1] if message is None else f"{code[1]}: {message[1].rstrip('.')}"
    return (text.splitlines() or [type(error).__name__])[0].rstrip(": ")


def _is_refusal(error: Exception) -> bool:
    """Whether the store has answered, and has not put anything."""
    status = _STATUS.search(str(error))
    return isinstance(error, _REFUSED) or (status is not None and status[1] not in _ASK_AGAIN)


class _ObjectReader(io.RawIOBase):
    """Reads ranges as they are asked for: Arrow asks for as much as it needs at once."""

    def __init__(self, place: ObjectPlace, name: str) -> None:
        super().__init__()
        self._place, self._name = place, name
        self._size = place.state(name).size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        content = self._place.read_range(self._name, self._position, wanted) if wanted else b""
        self._position += len(content)
        return content
