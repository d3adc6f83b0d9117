"""Which clusters the batches of a source have been in before: so no record is mirrored to a cluster that it came from.

A producer of a mirror is announced in `_mirror_producers` of the source before its first batch is stored, and the runs of a transaction are
in `_mirror_offsets` before it is committed. So what both topics have when a committed batch has been fetched is enough: where a batch is
not known, both are read up to their ends, by one task for all partitions, and the batch waits for that. Uncommitted records of them count:
the batch itself is committed, and no other one has its producer and its offset.

* A batch that is not transactional, or whose producer is not announced, has been in no other cluster.
* That of an announced producer has the chain of its run. Where the run is not kept any more, and the producer has only ever written
  records of one cluster, the chain is that cluster; else it is lost (LostOriginError), and the partition has to halt.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from moldau.client.partition_requests import EARLIEST, LATEST, READ_UNCOMMITTED
from moldau.mirror.merge.announcements import PRODUCERS, announcement_in
from moldau.mirror.merge.extents import Extents
from moldau.mirror.merge.runs import OFFSETS, Chain, runs_in
from moldau.mirror.reachability import is_logged
from moldau.mirror.reading import list_offset, read_batches
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.mirror.fetched import Batch
    from moldau.ports.clock import Clock
    from moldau.protocol.records.header import BatchHeader
    from moldau.protocol.records.record import Record
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

NATIVES_MAX = 100_000
"""Producers of the source itself that are remembered. One that is not costs a look at the end of `_mirror_producers`."""
ABSENT_MAX = 3
"""How often in a row the metadata have to say that a topic does not exist: a broker that has just started does not know all."""
BUG_PAUSE_S = 5.0
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 10


class LostOriginError(Exception):
    """A batch comes from another cluster, and which ones it has been in is not kept any more."""


class _Place:
    """A partition that is asked about."""

    __slots__ = ("extents", "is_loaded", "read_from")

    def __init__(self, read_from: int) -> None:
        self.extents = Extents()
        self.read_from = read_from
        """Where to begin to read runs; -1: at the beginning."""
        self.is_loaded = False
        """Whether the extents have what there is from there up to where runs have been read."""


class Origins:
    """See the module. Of one source."""

    def __init__(self, source: str, brokers: "Brokers", clock: "Clock", learned: Callable[[], object]) -> None:
        """`learned` is called after each reading."""
        self.rounds = 0
        """Readings that have ended."""
        self._source = source
        self._brokers = brokers
        self._clock = clock
        self._learned = learned
        self._places: dict[TopicPartition, _Place] = {}
        self._announced: dict[int, set[str]] = {}
        """Clusters by producer id."""
        self._natives: OrderedDict[int, None] = OrderedDict()
        self._producers_read = 0
        """Where `_mirror_producers` is read next."""
        self._runs_read = -1
        """Where `_mirror_offsets` is read next; -1: nothing has been read."""
        self._wanted: set[TopicPartition] = set()
        self._begun = 0
        self._reading: asyncio.Task[None] | None = None
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    def follow(self, partition: TopicPartition, read_from: int) -> None:
        """A partition is mirrored; `read_from` is that of its stored position."""
        self._places[partition] = _Place(read_from)

    def unfollow(self, partition: TopicPartition) -> None:
        """A partition is not mirrored any more."""
        self._places.pop(partition, None)

    def passed(self, partition: TopicPartition, position: int) -> None:
        """Nothing before a position is asked for any more."""
        place = self._places.get(partition)
        if place is not None:
            place.extents.drop_before(position)

    def read_from(self, partition: TopicPartition, position: int) -> int:
        """Where a process that begins at this position has to begin to read runs; -1: at the beginning."""
        place = self._places.get(partition)
        if place is None:
            return -1
        if not place.is_loaded:
            return place.read_from
        found = place.extents.read_from(position)
        return self._runs_read if found is None else found

    def is_settled(self, partition: TopicPartition, batches: "Iterable[Batch]") -> bool:
        """Whether the chains of all of these are known."""
        return all(self._is_known(partition, header) for header, _ in batches if header.is_transactional and not header.is_control)

    def require(self, partition: TopicPartition) -> int:
        """Read to the ends of both topics: when so many readings have ended, `chain` knows all batches that have been fetched by now."""
        self._wanted.add(partition)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read())
        return self._begun + 1

    def chain(self, partition: TopicPartition, header: "BatchHeader") -> Chain:
        """The clusters that a batch was in before, the oldest first; none for a batch of a producer of this one. LostOriginError.

        The batch is settled, or the reading that it requires has ended.
        """
        producer_id = header.producer_id
        if not header.is_transactional or producer_id in self._natives:
            return ()
        clusters = self._announced.get(producer_id)
        if clusters is None:
            self._natives[producer_id] = None
            if len(self._natives) > NATIVES_MAX:
                self._natives.popitem(last=False)
            return ()
        place = self._places.get(partition)
        found = place.extents.chain(producer_id, header.base_offset) if place is not None else None
        if found is not None:
            return found
        if len(clusters) == 1:
            return tuple(clusters)
        raise LostOriginError(
            f"the batch at offset {header.base_offset} comes from one of the clusters {', '.join(sorted(clusters))}, and {OFFSETS.topic} "
            f"of {self._source} does not have it any more: its retention.ms is too short for topic {partition.topic}"
        )

    async def close(self) -> None:
        """Read nothing any more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _is_known(self, partition: TopicPartition, header: "BatchHeader") -> bool:
        if header.producer_id in self._natives:
            self._natives.move_to_end(header.producer_id)
            return True
        place = self._places.get(partition)
        return place is not None and place.extents.chain(header.producer_id, header.base_offset) is not None

    # Reading

    async def _read(self) -> None:
        failures = 0
        while self._wanted:
            wanted, self._wanted = self._wanted, set()
            self._begun += 1
            try:
                await self._read_producers()
                if self._announced:
                    await self._read_runs([self._places[each] for each in wanted if each in self._places])
            except (PeerError, WorldError) as error:
                self._wanted |= wanted
                if not is_logged(error) and self._throttle.due(str(error), self._clock.monotonic()):
                    _LOG.warning("origins of batches not known, trying again: source=%s reason=%s", self._source, error)
                failures += 1
                await self._brokers.back_off(failures)
            except Exception:
                _LOG.exception("origins of batches not known because of a bug: source=%s", self._source)
                self._wanted |= wanted
                await asyncio.sleep(BUG_PAUSE_S)
            else:
                failures = 0
                self.rounds = self._begun
                self._learned()

    async def _read_producers(self) -> None:
        end = await self._end(PRODUCERS)
        if end is None:
            return
        known = self._producers_read if self._producers_read <= end else 0  # otherwise the topic has been made again
        start = max(known, await list_offset(self._brokers, PRODUCERS, EARLIEST))
        async for _, records in read_batches(self._brokers, PRODUCERS, start, end, READ_UNCOMMITTED):
            for record in records:
                found = _parsed(announcement_in, record)
                self._announced.setdefault(found.producer_id, set()).add(found.cluster)
        self._producers_read = end

    async def _read_runs(self, wanted: list[_Place]) -> None:
        """The new runs of all partitions, and the older ones of those that are asked about for the first time."""
        end = await self._end(OFFSETS)
        if end is None:
            return
        if end < self._runs_read:  # the topic has been made again
            for each in self._places.values():
                each.is_loaded, each.read_from = False, -1
            self._runs_read = -1
        loading = [each for each in wanted if not each.is_loaded]
        loaded_from = self._runs_read
        start = min([each.read_from for each in loading] + ([loaded_from] if loaded_from >= 0 else []), default=end)
        start = max(start, await list_offset(self._brokers, OFFSETS, EARLIEST))
        taking = {partition: place for partition, place in self._places.items() if place.is_loaded or place in loading}
        for each in taking.values():
            each.extents.begin_round()
        async for header, records in read_batches(self._brokers, OFFSETS, start, end, READ_UNCOMMITTED):
            of_transaction = [_parsed(runs_in, record) for record in records]
            runs = ((found.topic, run.partition, run.target, run.target_end, found.chain) for found in of_transaction for run in found.runs)
            for topic, number, first, end_offset, chain in sorted(runs):  # they are by source and chain, and offsets have to ascend
                place = taking.get(TopicPartition(topic, number))
                if place is not None and header.base_offset >= (loaded_from if place.is_loaded else place.read_from):
                    place.extents.add(header.producer_id, first, end_offset, chain, header.base_offset)
        for each in loading:
            each.is_loaded = True
        self._runs_read = end

    async def _end(self, topic: TopicPartition) -> int | None:
        """Where a topic ends now; None if it does not exist."""
        absent = 0
        while True:
            try:
                await self._brokers.topic(topic.topic)
            except PeerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                absent += 1
                if absent == ABSENT_MAX:
                    return None
                await self._brokers.back_off()
            else:
                return await list_offset(self._brokers, topic, LATEST)


def _parsed(parse: "Callable[[Record], T]", record: "Record") -> T:
    try:
        return parse(record)
    except ValueError as error:
        raise WorldError(str(error), retriable=True) from error
