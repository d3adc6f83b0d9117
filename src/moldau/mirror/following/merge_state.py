"""What a merge has stored in its target, read on from round to round: the positions, and the newest runs.

Positions are read first, so all runs of what is before them are there then. `RUNS_MAX` bounds the runs in memory, and `TAIL` how much of
`_mirror_offsets` a process reads when it begins. An offset from before them is looked up, from the end of the topic backwards, until
it is found; what was found is kept as long as the offset is asked for.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING

from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED
from moldau.mirror.following.run_index import RunIndex
from moldau.mirror.merge.positions import POSITIONS, Key, Stored
from moldau.mirror.merge.runs import OFFSETS, StoredRuns, runs_in
from moldau.mirror.merge.stored_positions import take_positions
from moldau.mirror.reading import list_offset, read_batches
from moldau.mirror.translation.search import Found, Search
from moldau.model.errors import WorldError

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.protocol.records.record import Record
    from moldau.wire.brokers import Brokers

TAIL = 100_000
"""Offsets of `_mirror_offsets`, from its end, that are read at first, and that a look-up reads at a time."""
BATCHES_AT_ONCE = 50
"""Then other tasks have their turn."""

Wanted = tuple[Key, int]
"""A partition of a source, and an offset there."""


class MergeState:
    """See the module. `read_on` comes first."""

    def __init__(self, mirror: str, target: "Brokers", tail: int = TAIL) -> None:
        self.positions: dict[Key, Stored] = {}
        self.is_whole = False
        """Whether `_mirror_offsets` has all runs that there ever were."""
        self._mirror = mirror
        self._target = target
        self._tail = tail
        self._index = RunIndex(is_whole=False)
        self._positions_end: int | None = None
        """Before it everything was read."""
        self._runs_end: int | None = None
        self._looked_up: dict[Wanted, Found] = {}

    async def read_on(self) -> None:
        """Take what has come. PeerError, WorldError."""
        await self._read_positions()
        await self._read_runs()

    def find(self, key: Key, offset: int) -> Found | None:
        """What the runs say of an offset that is not after the position; None: it has to be looked up."""
        stored = self.positions.get(key)
        if key not in self._index and stored is not None and stored.position.offset == offset:
            return Found(-1, {})
        return self._index.find(key, offset) or self._looked_up.get((key, offset))

    def forget_but(self, wanted: Collection[Wanted]) -> None:
        """What else was looked up is not asked for any more."""
        self._looked_up = {each: found for each, found in self._looked_up.items() if each in wanted}

    async def look_up(self, wanted: Collection[Wanted]) -> None:
        """Find these, in what `_mirror_offsets` has. PeerError, WorldError."""
        searches = {each: Search(each[1]) for each in wanted}
        by_key: dict[Key, list[Search]] = {}
        for (key, _), search in searches.items():
            by_key.setdefault(key, []).append(search)
        stop, earliest = self._runs_end or 0, await list_offset(self._target, OFFSETS, EARLIEST)
        while stop > earliest and not all(0 <= each.first <= each.offset for each in searches.values()):
            start = max(stop - self._tail, earliest)
            async for transaction in self._transactions(start, stop):
                for stored in transaction:
                    for search in by_key.get(stored.key, ()):
                        search.add(stored)
            stop = start
        self._looked_up |= {each: search.found() for each, search in searches.items()}

    async def _read_positions(self) -> None:
        end = await list_offset(self._target, POSITIONS, LATEST)
        start = self._positions_end
        if start is None or start > end:  # or the topic was made again
            self.positions.clear()
            start = await list_offset(self._target, POSITIONS, EARLIEST)
        async for _, records in _batches(self._target, POSITIONS, start, end):
            take_positions(records, self.positions, self._mirror)
        self._positions_end = end

    async def _read_runs(self) -> None:
        end, earliest = await list_offset(self._target, OFFSETS, LATEST), await list_offset(self._target, OFFSETS, EARLIEST)
        start = self._runs_end
        self.is_whole = earliest == 0
        if start is None or start > end:  # or the topic was made again
            start = max(earliest, end - self._tail)
            self._index = RunIndex(is_whole=start == 0)
            self._looked_up.clear()
        async for transaction in self._transactions(max(start, earliest), end):
            self._index.add(transaction)  # after a failure from the same place on again, by which the index becomes the same
        self._runs_end = end

    async def _transactions(self, start: int, end: int) -> AsyncIterator[list[StoredRuns]]:
        async for base_offset, records in _batches(self._target, OFFSETS, start, end):
            if base_offset < start:
                continue  # of a transaction all runs are needed, or none
            try:
                yield [found for record in records if (found := runs_in(record)).key.mirror == self._mirror]
            except ValueError as error:
                raise WorldError(str(error), retriable=False) from error


async def _batches(brokers: "Brokers", partition: "TopicPartition", start: int, end: int) -> "AsyncIterator[tuple[int, list[Record]]]":
    """Batches, by their base offsets."""
    count = 0
    async for header, records in read_batches(brokers, partition, start, end, READ_COMMITTED):
        count += 1
        if count % BATCHES_AT_ONCE == 0:
            await asyncio.sleep(0)
        yield header.base_offset, records
