"""Records that a fail-back cuts, kept in files: whole batches as the log had them, in a segment that `moldau log dump` reads."""

import asyncio
import os
from filecmp import cmp
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.client.partition_requests import READ_UNCOMMITTED
from moldau.mirror.fetched import whole_batches
from moldau.mirror.partitions import Position
from moldau.mirror.reading import fetch_from
from moldau.model.errors import StorageError

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.wire.brokers import Brokers

IDLE_S = 30.0
"""Without anything more of a partition its records count as not readable."""


class RecordKeeper:
    """Keeps records of the topics of one cluster below a directory."""

    def __init__(self, brokers: "Brokers", directory: Path) -> None:
        self._brokers = brokers
        self._directory = directory

    async def keep(self, partition: "TopicPartition", offset: int, end: int) -> str:
        """Write the batches of a partition to a file, on disk when it returns; its path. What an earlier fail-back has kept stays.

        StorageError, PeerError, WorldError.
        """
        path = self._directory / str(partition) / f"{offset:020}.part"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                position, loop = Position(offset), asyncio.get_running_loop()
                deadline = loop.time() + IDLE_S
                while position.offset < end:
                    fetched = await fetch_from(self._brokers, partition, position.offset, READ_UNCOMMITTED)
                    batches, records, position = whole_batches(memoryview(fetched.records or b""), position, verifies=True)
                    file.write(records)
                    if batches:
                        deadline = loop.time() + IDLE_S
                    elif loop.time() >= deadline:
                        raise StorageError(f"offset {position.offset} of {partition} cannot be read", path=str(path))
                file.flush()
                os.fsync(file.fileno())
            kept = path.replace(_name_for(path))
            for directory in (kept.parent, self._directory, self._directory.parent):
                _sync(directory)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=str(path)) from error
        return str(kept)


def _name_for(written: Path) -> Path:
    """`OFFSET.log`, or with a number before the end where that has other records."""
    names = (written.with_suffix(f".{number}.log" if number else ".log") for number in count())
    return next(each for each in names if not each.exists() or cmp(each, written, shallow=False))


def _sync(directory: Path) -> None:
    """The entries of a directory are on disk when it returns."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
