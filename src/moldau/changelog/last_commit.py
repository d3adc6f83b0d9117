"""The last commit of a shard that the log has, found from the end of its partition of the topic of commits."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.changelog.envelope import CommitRecord, decode_commit
from moldau.changelog.naming import commits_topic
from moldau.client.fetched_batches import VisibleBatches, checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchLimits
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

_FIRST_LOOK: Final = 64
_GROWTH: Final = 8
_BYTES_MAX: Final = 16 << 20
_STABLE_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.05


class LastCommit:
    """Looks for it in one shard. The producer of the shard has been initialised before, so what it had open is ended."""

    def __init__(
        self,
        cluster: "Cluster",
        changelog: str,
        shard: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._where = TopicPartition(commits_topic(changelog), shard)
        self._monotonic, self._sleep = monotonic, sleep

    def find(self) -> CommitRecord | None:
        """The record; None before the first commit. RecordError, WorldError, PeerError."""
        start, end = self._bounds()
        count = _FIRST_LOOK
        while end > start:
            begin = max(start, end - count)
            found = self._last_between(begin, end)
            if found is not None or begin == start:
                return found
            count *= _GROWTH
        return None

    def _bounds(self) -> tuple[int, int]:
        """First offset, and the present end once all before it is decided."""
        end = self._cluster.list_offsets({self._where: LATEST})[self._where].offset
        deadline = self._monotonic() + _STABLE_WAIT_S
        while self._cluster.list_offsets({self._where: LATEST}, isolation_level=READ_COMMITTED)[self._where].offset < end:
            self._pause(deadline, f"a transaction before offset {end} is not ended")
        return self._cluster.list_offsets({self._where: EARLIEST})[self._where].offset, end

    def _last_between(self, begin: int, end: int) -> CommitRecord | None:
        found: CommitRecord | None = None
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
                    if begin <= record.offset < end:
                        decoded = decode_commit(*self._where, record.offset, record.key, record.value)
                        found = decoded if isinstance(decoded, CommitRecord) else found
            if after > offset:
                offset = after
            elif fetched.last_stable_offset >= end:  # compaction left nothing up to the end
                break
            else:
                self._pause(deadline, f"its leader shows nothing from offset {offset} to {end}")
        return found

    def _pause(self, deadline: float, reason: str) -> None:
        if self._monotonic() > deadline:
            raise WorldError(f"partition {self._where}: the last commit is not found: {reason}", retriable=True)
        self._sleep(_PAUSE_S)
