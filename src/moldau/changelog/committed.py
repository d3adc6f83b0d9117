"""The committed records of one partition, from one offset to another: for those who look something up in the log."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from moldau.client.fetched_batches import VisibleBatches, checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchLimits
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.record import Record

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

_BYTES_MAX: Final = 64 << 20
_STABLE_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.05


class CommittedRecords:
    """Of the partition `where`. WorldError where a transaction stays open too long; PeerError."""

    def __init__(
        self,
        cluster: "Cluster",
        where: TopicPartition,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._where = where
        self._monotonic, self._sleep = monotonic, sleep

    def bounds(self) -> tuple[int, int]:
        """First offset, and the present end once all before it is decided."""
        end = self._cluster.list_offsets({self._where: LATEST})[self._where].offset
        deadline = self._monotonic() + _STABLE_WAIT_S
        while self._cluster.list_offsets({self._where: LATEST}, isolation_level=READ_COMMITTED)[self._where].offset < end:
            self._pause(deadline, f"a transaction before offset {end} is not ended")
        return self._cluster.list_offsets({self._where: EARLIEST})[self._where].offset, end

    def decided(self) -> tuple[int, int]:
        """First offset, and the end of what is decided by now."""
        end = self._cluster.list_offsets({self._where: LATEST}, isolation_level=READ_COMMITTED)[self._where].offset
        return self._cluster.list_offsets({self._where: EARLIEST})[self._where].offset, end

    def between(self, begin: int, end: int) -> Iterator[Record]:
        """From `begin` to before `end`."""
        limits = FetchLimits(isolation_level=READ_COMMITTED)
        offset, deadline = begin, self._monotonic() + _STABLE_WAIT_S
        while offset < end:
            fetched = self._cluster.fetch(*self._where, offset, limits)
            visible, after = VisibleBatches(fetched.aborted), offset
            for header, batch in checked_batches(self._where, fetched, offset):
                after = header.last_offset + 1
                if not visible.shows(header, batch):
                    continue
                for record in iterate(batch, max_decompressed_bytes=_BYTES_MAX, with_headers=False):
                    if offset <= record.offset < end:
                        yield record
            if after > offset:
                offset, deadline = after, self._monotonic() + _STABLE_WAIT_S
            elif fetched.last_stable_offset >= end:  # compaction left nothing up to the end
                return
            else:  # a new leader does not know yet that all of it is committed
                self._pause(deadline, f"its leader shows nothing from offset {offset} to {end}")

    def _pause(self, deadline: float, reason: str) -> None:
        if self._monotonic() > deadline:
            raise WorldError(f"partition {self._where}: {reason}", retriable=True)
        self._sleep(_PAUSE_S)
