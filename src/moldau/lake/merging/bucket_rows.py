"""New rows by bucket: in memory, and beyond `BYTES_MAX` in a file without a name, which the system removes with the process."""

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa

from moldau.lake.tables.data_files import FileError
from moldau.lake.tables.places.addresses import place_of

BYTES_MAX = 32 << 20
"""Of rows in memory; dividing them by bucket takes twice as much again."""


class BucketRows:
    """Takes rows in any order, then gives those of one bucket after the other.

    The file, if there is one, is beside the table at `directory`, or where temporary files are if that is in an object store.
    """

    def __init__(self, directory: str, schema: Any) -> None:
        self._directory = directory
        self._schema = schema
        self._tables: list[Any] = []
        self._numbers: list[Any] = []
        self._held = 0
        self._file: Any = None
        self._segments: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._last: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: Any, buckets: Any) -> None:
        """Take rows, and the bucket of each. FileError."""
        if rows.num_rows == 0:
            return
        self._tables.append(rows)
        self._numbers.append(buckets)
        self._held += rows.nbytes
        if self._held > BYTES_MAX:
            self._write()

    def finish(self) -> list[int]:
        """No more rows come; the buckets that have some, rising."""
        self._last = dict(self._divided())
        return sorted({*self._segments, *self._last})

    def of(self, bucket: int) -> Iterator[Any]:
        """The rows of a bucket, in tables of at most about `BYTES_MAX`; once. FileError."""
        for start, size in self._segments.pop(bucket, ()):
            try:
                self._file.seek(start)
                content = self._file.read(size)
            except OSError as error:
                raise self._failure("read", error) from error
            with pa.ipc.open_stream(content) as reader:
                yield reader.read_all()
        if bucket in self._last:
            yield self._last.pop(bucket)

    def _divided(self) -> Iterator[tuple[int, Any]]:
        if not self._tables:
            return
        numbers = np.concatenate(self._numbers)
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        rows = pa.concat_tables(self._tables).combine_chunks()
        self._tables, self._numbers, self._held = [], [], 0
        rows = rows.take(pa.array(order))
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, stop in pairwise(cuts):
            yield int(numbers[start]), rows.slice(start, stop - start)

    def _write(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=place_of(self._directory).scratch)  # noqa: SIM115  # closed by `__exit__`
            for bucket, rows in self._divided():
                start = self._file.seek(0, 2)
                with pa.ipc.new_stream(self._file, self._schema) as writer:
                    writer.write_table(rows)
                self._segments[bucket].append((start, self._file.tell() - start))
        except OSError as error:
            raise self._failure("written", error) from error

    def _failure(self, what: str, error: OSError) -> FileError:
        return FileError(f"{self._directory}: rows of a merge cannot be {what}: {(error.strerror or str(error)).lower()}")
