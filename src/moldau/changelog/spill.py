"""Changes of a commit that is larger than memory, in a temporary file until all of them are here."""

import pickle
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import Final, overload

from moldau.changelog.values import Change
from moldau.model.errors import WorldError

_CHUNK: Final = 1_000
"""Changes that are read from the file at once."""


class SpillError(WorldError):
    """The temporary file of a large commit cannot be made, written or read."""


class SpilledChanges(Sequence[Change]):
    """A sequence that is appended to and read in its order; about a thousand changes of it are in memory. `close` removes the file.
    SpillError.

    What is in the file was written by this process, and no other one can open it.
    """

    def __init__(self) -> None:
        with _errors():
            self._file = TemporaryFile()  # noqa: SIM115
        self._starts: list[int] = []
        """The index of the first change of each chunk."""
        self._places: list[int] = []
        self._length = 0
        self._chunk: tuple[int, Sequence[Change]] = (-1, ())

    def extend(self, changes: Sequence[Change]) -> None:
        """Append these."""
        for begin in range(0, len(changes), _CHUNK):
            chunk = list(changes[begin : begin + _CHUNK])
            with _errors():
                self._places.append(self._file.seek(0, 2))
                self._starts.append(self._length)
                pickle.dump(chunk, self._file, pickle.HIGHEST_PROTOCOL)
            self._length += len(chunk)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Change]:
        for number in range(len(self._places)):
            yield from self._read(number)

    @overload
    def __getitem__(self, index: int) -> Change: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Change]: ...

    def __getitem__(self, index: int | slice) -> Change | Sequence[Change]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._length))]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(index)
        number = bisect_right(self._starts, place) - 1
        return self._read(number)[place - self._starts[number]]

    def _read(self, number: int) -> Sequence[Change]:
        if self._chunk[0] != number:
            with _errors():
                self._file.seek(self._places[number])
                self._chunk = (number, pickle.load(self._file))
        return self._chunk[1]

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # what is buffered of it may not fit on the disk
            self._file.close()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpillError(
            f"the temporary file of a large commit: {error.strerror or error}; its directory is that of the variable TMPDIR",
            retriable=False,
        ) from error
