"""Records that a fail-back cuts, kept in files: whole batches as the log had them, in a segment that `moldau log dump` reads."""

import asyncio
import os
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
        """Write the batches of a partition to a file, on disk when it returns; its path. An older file of this name is replaced.

        StorageError, PeerError, WorldError.
        """
        path = self._directory / str(partition) / f"{offset:020}.log"
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
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=str(path)) from error
        return str(path)
