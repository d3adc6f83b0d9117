"""Counters of requests and of topics' traffic, since the start of the process, and of durations.

Everything is added on the broker's thread. On the shortest way of Produce nothing is counted per request, only per read and
per write of a log (`TopicTraffic.bytes_in`); records are counted by the offsets that a log has gained, at each scrape.

Durations are counted in buckets of powers of two: cheap to add, exact in count and sum, quantiles within a bucket's width. Bucket `b` holds
durations of `b` binary digits in microseconds: 0; 1; 2 and 3; 4 to 7; ... A quantile is interpolated within its bucket, so it is wrong by a
factor of two at the most.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from moldau.ports.transport import FileRange
from moldau.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from moldau.protocol.fast.fetch import FetchPartitionResult
    from moldau.protocol.fast.produce import ProducePartitionResult

BUCKETS = 40
"""The last one holds everything from 76 hours on."""
WINDOW_S = 60.0
_LAST_BUCKET_US = 1 << BUCKETS - 1


class TimeDigest:
    """Durations since the start, and quantiles of those of the last one or two minutes."""

    __slots__ = ("_begin", "_next", "_next_s", "buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.sum_us = 0
        self._begin: Sequence[int] = (0,) * BUCKETS
        """The buckets when the window of `quantiles` began."""
        self._next: Sequence[int] = self._begin
        """The buckets when the next window began."""
        self._next_s: float | None = None

    def add(self, us: int, count: int = 1) -> None:
        """Add `count` durations of `us` microseconds each."""
        self.buckets[us.bit_length() if us < _LAST_BUCKET_US else -1] += count
        self.sum_us += us * count

    @property
    def count(self) -> int:
        """Durations since the start."""
        return sum(self.buckets)

    def quantiles(self, wanted: Sequence[float], now_s: float) -> list[float] | None:
        """Quantiles in microseconds of the last one to two minutes (longer, if this is called less than once a minute); None if nothing was
        added in that time. `now_s`: a monotonic time in seconds.
        """
        if self._next_s is None:
            self._next_s = now_s
        elif now_s - self._next_s >= WINDOW_S:
            self._begin, self._next, self._next_s = self._next, tuple(self.buckets), now_s
        window = [now - before for now, before in zip(self.buckets, self._begin, strict=True)]
        total = sum(window)
        return [_quantile(window, total * share) for share in wanted] if total else None


def _quantile(window: Sequence[int], rank: float) -> float:
    """The duration that `rank` of those in the window do not exceed."""
    below = 0
    for bucket, count in enumerate(window):
        if count and below + count >= rank:
            low = 1 << bucket - 1 if bucket else 0
            return low + low * (rank - below) / count
        below += count
    raise AssertionError("a rank above the count")


_US = 1_000_000


class TopicTraffic:
    """What went through the partitions of one topic that this broker leads or has led."""

    __slots__ = ("bytes_in", "bytes_out", "failed_fetches", "failed_produces", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        """Records appended, control records included, as far as `HostedPartition.count_messages` was called."""
        self.bytes_in = 0
        """Bytes of batches, as they were sent."""
        self.bytes_out = 0
        """Bytes of batches that consumers received."""
        self.failed_produces = 0
        """Partitions of Produce requests that were answered with an error."""
        self.failed_fetches = 0
        """Partitions of Fetch requests that were answered with an error."""


class RequestCounters:
    """The requests of one API that were answered (with acks 0: handled)."""

    __slots__ = ("errors", "queue", "requests", "total")

    def __init__(self) -> None:
        self.requests = 0
        self.errors: dict[int, int] = {}
        """How often a response had each error code, as a whole or for one of its elements; 0 is not counted."""
        self.queue = TimeDigest()
        """From the last byte received on the connection to the start of handling."""
        self.total = TimeDigest()
        """From the last byte received on the connection to the answer, waiting for records included."""

    def add(self, received_s: float, started_s: float, now_s: float, count: int = 1) -> None:
        """Count requests that were answered at `now_s`."""
        self.requests += count
        if started_s == received_s:  # most of them: nothing to add up
            self.queue.buckets[0] += count
        else:
            self.queue.add(int((started_s - received_s) * _US), count)
        us, total = int((now_s - received_s) * _US), self.total
        total.buckets[us.bit_length() if us < _LAST_BUCKET_US else -1] += count  # as `TimeDigest.add`, without a call
        total.sum_us += us * count

    def failed(self, codes: Iterable[int]) -> None:
        """Count error codes of a response; 0 is none."""
        errors = self.errors
        for code in codes:
            if code:
                errors[code] = errors.get(code, 0) + 1


class Counters:
    """All counters of one broker."""

    __slots__ = ("_monotonic", "apis", "fetch", "produce", "topics")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.produce = RequestCounters()
        self.fetch = RequestCounters()
        self.apis: dict[int, RequestCounters] = {ApiKey.PRODUCE: self.produce, ApiKey.FETCH: self.fetch}
        """By API, those that were asked."""
        self.topics: dict[str, TopicTraffic] = {}
        self._monotonic = monotonic

    def topic(self, name: str) -> TopicTraffic:
        """The counters of a topic, made at the first call."""
        return self.topics.get(name) or self.topics.setdefault(name, TopicTraffic())

    def forget_topics(self, names: Iterable[str]) -> None:
        """Drop the counters of deleted topics."""
        for name in names:
            self.topics.pop(name, None)

    def answered(self, api_key: int, received_s: float, started_s: float, codes: Sequence[int]) -> None:
        """Count one request of any API that is answered now, with the error codes of its response."""
        counters = self.apis.get(api_key)
        if counters is None:
            counters = self.apis[api_key] = RequestCounters()
        counters.add(received_s, started_s, self._monotonic())
        if any(codes):
            counters.failed(codes)

    def fetched(self, traffic: TopicTraffic | None, results: "Iterable[FetchPartitionResult]") -> None:
        """Count the results for one topic in an answered Fetch request; without `traffic` the topic is not known here."""
        size = 0
        codes: list[int] = []
        for result in results:
            records = result.records
            if isinstance(records, FileRange):
                size += records.length
            if result.error_code:
                codes.append(result.error_code)
        if traffic is not None:
            traffic.bytes_out += size
            traffic.failed_fetches += len(codes)
        if codes:
            self.fetch.failed(codes)

    def refused(self, traffic: TopicTraffic | None, results: "Iterable[ProducePartitionResult]") -> None:
        """Count the errors for one topic in an answered Produce request; without `traffic` the topic is not known here."""
        codes = [result.error_code for result in results if result.error_code]
        if traffic is not None:
            traffic.failed_produces += len(codes)
        self.produce.failed(codes)
