"""What a Spark task does: reads its ranges one after the other and makes rows of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, Self

from moldau.client.partition_requests import Fetched
from moldau.lake.python_tasks import spare_collections
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import ReadOptions
from moldau.lake.reading.ranges import Fetcher, RangeRead, ReadRules
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.lake.reading.row_shape import RowShape


class ManyFetcher(Fetcher, Protocol):
    """A fetcher that asks for many partitions at once."""

    def fetch_many(self, positions: Mapping[TopicPartition, int], bytes_max: int, wait_ms: int) -> Mapping[TopicPartition, Fetched]:
        """As `fetch`, of all these partitions; of one that has nothing, or no room in `bytes_max`, the records are empty."""


class Beginnings:
    """The fetcher of ranges of one topic that are read one after the other.

    Their first fetches are one, made when the first range is begun, and the topic's id that was asked for before it holds for what it
    brought. What had no room in it is fetched together again when the first of those ranges is begun. Once such a fetch fails, or brings
    nothing, each range asks alone, and meets its trouble itself.
    """

    def __init__(self, log: ManyFetcher, ranges: Sequence[OffsetRange]) -> None:
        self._log = log
        self._starts: dict[TopicPartition, int] = {}
        """Of the first range of each partition, until it is begun, in their order: where there is room for some, they are the next ones."""
        for each in ranges:
            if each.size:
                self._starts.setdefault(TopicPartition(each.topic, each.partition), each.start)
        self._together = True
        self._fetched: dict[TopicPartition, Fetched] = {}
        self._id: str | None = None
        self._begun: TopicPartition | None = None

    def begin(self, wanted: OffsetRange) -> Self:
        """Say that this range is read from now on."""
        self._begun = TopicPartition(wanted.topic, wanted.partition)
        return self

    def fetch(self, partition: TopicPartition, offset: int, bytes_max: int, wait_ms: int) -> Fetched:
        """Batches from `offset` on: what was fetched with those of the other ranges, or of this range alone. WorldError, PeerError."""
        start = self._starts.get(partition)
        if partition not in self._fetched and offset == start:
            self._fetch_together(bytes_max, wait_ms)
        self._starts.pop(partition, None)
        found = self._fetched.pop(partition, None)
        if found is not None and offset == start:
            return found
        return self._log.fetch(partition, offset, bytes_max, wait_ms)

    def _fetch_together(self, bytes_max: int, wait_ms: int) -> None:
        """The beginnings of all ranges that are to come and are not here yet, if they are several."""
        wanted = {where: start for where, start in self._starts.items() if where not in self._fetched}
        if not self._together or len(wanted) < 2:
            return
        self._together = False
        with suppress(MoldauError):
            found = {where: each for where, each in self._log.fetch_many(wanted, bytes_max, wait_ms).items() if each.records}
            self._fetched |= found
            self._together = bool(found)

    def topic_id(self, topic: str) -> str:
        """Id of the topic that has this name now, or had it when the range's beginning was fetched. WorldError, PeerError."""
        if self._id is None or self._begun not in self._fetched:
            self._id = self._log.topic_id(topic)
        return self._id

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """First offset of the log, and the one behind its last. WorldError, PeerError."""
        return self._log.bounds(partition)


Planned = tuple[OffsetRange, str | None]
"""A range, of the topic that had this id when the read was planned."""

_logs: dict[tuple[str, str, float, int, str | None], ClusterLog] = {}
"""Connections of this process, which Spark uses for one task after the other: a small batch of a stream would mostly connect.

Those of one topic, by its id: a connection remembers ids, and would ask for a recreated topic by its old one.
"""


def read_ranges(options: ReadOptions, shape: "RowShape", task: Sequence[Planned]) -> Iterator[Any]:
    """Arrow record batches of the ranges of a task. ReadError, DataLossError, MalformedEventError."""
    for wanted, topic_id, read in reads(options, shape.fields, task):
        maker = shape.maker(wanted, topic_id)
        for columns in read:
            yield from maker.batches(columns)
        maker.finish()


def reads(options: ReadOptions, fields: Iterable[str], task: Sequence[Planned]) -> Iterator[tuple[OffsetRange, str | None, RangeRead]]:
    """The reads of a task, of these fields of the records; each to be iterated over before the next."""
    rules = ReadRules(
        wanted=frozenset(fields),
        bytes_max=options.max_bytes_per_fetch,
        fail_on_data_loss=options.fail_on_data_loss,
        accept_loss=options.accept_loss,
        poll_timeout_s=options.poll_timeout_ms / 1000,
    )
    spare_collections()
    for (_, topic_id), planned in groupby(task, key=lambda each: (each[0].topic, each[1])):
        ranges = [wanted for wanted, _ in planned]
        fetcher = Beginnings(_log(options, topic_id), ranges)
        for wanted in ranges:
            yield wanted, topic_id, RangeRead(fetcher.begin(wanted), wanted, rules, topic_id=topic_id)


def _log(options: ReadOptions, topic_id: str | None) -> ClusterLog:
    timeout_s = min(30.0, options.poll_timeout_ms / 1000)
    key = (options.bootstrap, options.client_id, timeout_s, options.isolation_level, topic_id)
    if key not in _logs:
        _logs[key] = ClusterLog(options.bootstrap, options.client_id, timeout_s, isolation_level=options.isolation_level)
    return _logs[key]
