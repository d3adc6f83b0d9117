"""Fetch: ranges of log files, at once or when there is enough.

A request without a session lists all that it wants; for those in one see `sessions`.

A request waits when there is less than `min_bytes`, or `max_bytes` if that is less, none of its partitions has an error, and it asks for
something. An error, an offset out of range, a log that diverges from the client's is answered at once. The first partition with data gives
at least one whole batch, however long, so that a client with small limits makes progress; after that the limits hold.

Isolation level 1 reads up to the last stable offset, and gets a list of the aborted transactions in what it reads: their records are
there, and clients skip them. It waits for what is decided: a marker wakes it, not each append of an ongoing transaction. A response
lists few thousand of them: a longer stretch is cut, and further partitions wait for the next fetch.

A follower that the partition is assigned to reads up to the log end, and what it asks for it has: its fetch moves the committed offset.

A consumer that names a rack may be sent to a follower, and a follower serves it: see `read_replicas`.

A consumer needs READ on each topic, a follower CLUSTER_ACTION on the cluster. The topic that a connection read last is kept with the permit
epoch, so that the usual request, for one topic and like the one before it, costs two comparisons and no question. A waiting request that
is attempted asks again if the epoch has changed. The quota of the client is asked when the response is made.

A request of many partitions is handled in steps: see `long`.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.broker.handlers.current_leaders import FETCH_FIRST, named
from moldau.broker.handlers.fetch.call import ReadPermit
from moldau.broker.quotas import NO_QUOTAS
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.purgatory import DelayedFetch, FetchIsolation
from moldau.broker.security import Operation
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError, StorageError
from moldau.model.steps import Pause
from moldau.ports.transport import FileRange, Part
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.fast.fetch import FetchFrame, FetchFramePartition, FetchPartitionResult, encode_fetch_response

if TYPE_CHECKING:
    from moldau.broker.handlers.fetch.call import Services
    from moldau.broker.request import RequestSource
    from moldau.log.partition_log import PartitionLog
    from moldau.log.reader import ReadResult
    from moldau.protocol.fast.writing import LeaderEndpoint

FIRST_WITH_TOPIC_IDS = 13
READ_COMMITTED = 1
ABORTED_MAX = 5_000
"""Aborted transactions of one response, after which no more records are read: about 2 us each. One batch may be in more of them."""

READING_S = 0.010
"""Time after which a response that has records reads no more of them."""
LOOKS_APART = 16
"""Partitions read between two looks at the time."""

Answer = Callable[[Sequence[Part]], object]
Results = tuple[bytes, list[FetchPartitionResult]]


class Fetch:
    """One Fetch request while it is worked on."""

    __slots__ = (
        "aborted_left",
        "answer",
        "broker",
        "committed",
        "correlation_id",
        "enough",
        "found",
        "frame",
        "isolation",
        "led",
        "left",
        "permit",
        "permits",
        "read_until",
        "reads",
        "received_s",
        "source",
        "started_s",
        "urgent",
        "version",
    )

    def __init__(
        self,
        broker: "Services",
        source: "RequestSource",
        permit: ReadPermit,
        version: int,
        correlation_id: int,
        received_s: float,
        frame: FetchFrame,
    ) -> None:
        """As `FetchCall`, and the body."""
        self.broker = broker
        self.source = source
        self.permit = permit if frame.replica_id < 0 else ReadPermit()
        self.permits = broker.replicas.appends.permits
        self.received_s = received_s
        self.started_s = broker.clock.monotonic()
        self.frame = frame
        self.committed = frame.isolation_level == READ_COMMITTED and frame.replica_id < 0
        self.isolation = (
            FetchIsolation.LOG_END
            if frame.replica_id >= 0
            else FetchIsolation.LAST_STABLE
            if self.committed
            else FetchIsolation.HIGH_WATERMARK
        )
        self.enough = min(frame.min_bytes, frame.max_bytes, broker.admission.limits.fetch_bytes_max)
        """Bytes to wait for."""
        self.version = version
        self.correlation_id = correlation_id
        self.led: list[HostedPartition] = []
        """Partitions that were read."""
        self.reads = 0
        """How often it was begun to be read. A follower's progress is that of the first time: later its log may be another."""
        self.left: int
        """Bytes that may still be read."""
        self.aborted_left: int
        self.read_until: float
        self.found: int
        """Bytes of records that were read."""
        self.urgent: bool
        """Whether a result cannot wait."""
        self.answer: Answer | None = None

    @property
    def may_wait(self) -> bool:
        """Whether it wants to wait, and there is room for one more that does."""
        broker = self.broker
        return self.frame.max_wait_ms > 0 and broker.purgatory.held < broker.admission.limits.fetches_waiting_max

    def encode(self, topics: list[Results], session_id: int = 0) -> list[Part]:
        """The answer; it is counted."""
        for each in topics:
            self.count(each)
        throttle_ms = self.throttle_ms()
        self.answered(throttle_ms)
        found, leaders = self.with_leaders(topics)
        return encode_fetch_response(self.version, self.correlation_id, throttle_ms, 0, session_id, found, leaders)

    def with_leaders(
        self, topics: Sequence[Results]
    ) -> "tuple[Sequence[tuple[bytes, Sequence[FetchPartitionResult]]], Sequence[LeaderEndpoint]]":
        """Results that name to a consumer the leaders of what other brokers lead, and their addresses."""
        if not self.urgent or self.version < FETCH_FIRST or self.frame.replica_id >= 0:
            return topics, ()
        return named(self.broker, self.source.channel, topics, by_id=True)

    def refuse(self, code: ErrorCode) -> list[Part]:
        """The answer to a request that is refused as a whole; it is counted."""
        throttle_ms = self.throttle_ms()
        self.answered(throttle_ms, code)
        return encode_fetch_response(self.version, self.correlation_id, throttle_ms, code, 0, [])

    def count(self, results: Results) -> None:
        """Count what the answer has of one topic."""
        topic, found = results
        traffic = self.broker.partitions.traffic_of(topic, by_id=self.version >= FIRST_WITH_TOPIC_IDS)
        if traffic is None and found and (followed := self._followed(topic, found[0].partition)) is not None:
            traffic = followed.traffic
        self.broker.counters.fetched(traffic, found)

    def throttle_ms(self) -> int:
        """Milliseconds for which the client is muted after the answer."""
        quotas = self.broker.pipeline.quotas
        return 0 if quotas is NO_QUOTAS else quotas.throttle_ms(self.source.channel, ApiKey.FETCH, 1)

    def answered(self, throttle_ms: int, *codes: ErrorCode) -> None:
        """Count the request, which is answered now, as a whole with these errors, and mute the connection."""
        broker = self.broker
        counters = broker.counters.fetch
        counters.add(self.received_s, self.started_s, broker.clock.monotonic())
        if codes:
            counters.failed(codes)
        if throttle_ms:
            self.source.mute(throttle_ms)

    def read(self) -> list[Results]:
        """Results, with what there is of records."""
        self.begin()
        return [(topic, self.read_some(topic, wanted)) for topic, wanted in self.frame.topics]

    def read_again(self, request: DelayedFetch | None) -> list[Results]:
        """As `read`, for what waits as `request`, or for what waits no longer."""
        return self.read()

    def begin(self) -> None:
        """Nothing is read."""
        self.reads += 1
        self.left = min(self.frame.max_bytes, self.broker.admission.limits.fetch_bytes_max)
        self.aborted_left = ABORTED_MAX
        self.found = 0
        self.read_until = self.broker.clock.monotonic() + READING_S
        self.urgent = False
        self.led.clear()

    def read_some(self, topic: bytes, wanted: Sequence[FetchFramePartition]) -> list[FetchPartitionResult]:
        """The results of partitions of one topic, after those that were read since the beginning."""
        broker = self.broker
        by_id = self.version >= FIRST_WITH_TOPIC_IDS
        partitions = broker.partitions_of(topic, by_id=by_id)
        permit = self.permit
        if (partitions is not permit.partitions or permit.epoch != self.permits.value) and not self._may_read(topic, partitions):
            self.urgent = True
            return [_refused(want.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for want in wanted]
        left, aborted_left, found, urgent = self.left, self.aborted_left, self.found, self.urgent
        results: list[FetchPartitionResult] = []
        for want in wanted:
            partition = partitions.get(want.partition) or self._followed(topic, want.partition)
            if partition is None:
                result = _refused(want.partition, broker.missing_partition(topic, want.partition, by_id=by_id).code)
                urgent = True
            else:
                self.led.append(partition)
                if found and len(self.led) % LOOKS_APART == 0 and broker.clock.monotonic() > self.read_until:
                    left = 0
                result = self._read_partition(partition, want, left, aborted_left, at_least_one=found == 0)
                records = result.records
                if type(records) is FileRange:
                    found += records.length
                    left -= records.length
                    if result.aborted_transactions:
                        aborted_left -= len(result.aborted_transactions)
                        left = left if aborted_left > 0 else 0
                elif result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0:
                    urgent = True
            results.append(result)
        self.left, self.aborted_left, self.found, self.urgent = left, aborted_left, found, urgent
        return results

    def missing_bytes(self) -> int:
        """How many more bytes there have to be than were found; 0 or less if there are enough.

        A read ends with its segment and before the batch that is too long for it, so there may be more than it has found.
        """
        if self.found >= self.enough:
            return 0
        try:
            return self.enough - max(self.found, sum(self.available_in(topic, wanted) for topic, wanted in self.frame.topics))
        except StorageError:  # the next read reports it
            return 0

    def available_in(self, topic: bytes, wanted: Sequence[FetchFramePartition]) -> int:
        """Bytes that can be read of partitions of a topic. StorageError."""
        available = 0
        partitions = self.broker.partitions_of(topic, by_id=self.version >= FIRST_WITH_TOPIC_IDS)
        for want in wanted:
            partition = partitions.get(want.partition) or self._followed(topic, want.partition)
            if partition is not None and want.fetch_offset < (limit := self._limit(partition)):
                available += partition.log.readable_bytes(want.fetch_offset, limit, want.max_bytes)
        return available

    def _may_read(self, topic: bytes, partitions: Mapping[int, HostedPartition]) -> bool:
        """Ask the authorizer. A topic id without a name is of a topic that is not known, and nothing is read."""
        broker, channel, epoch = self.broker, self.source.channel, self.permits.value
        authorizer = broker.pipeline.authorizer
        if self.isolation is FetchIsolation.LOG_END:
            return authorizer.allows(channel, Operation.CLUSTER_ACTION)
        for partition in partitions.values():
            if not authorizer.allows(channel, Operation.READ, partition.topic_partition.topic):
                return False
            self.permit.partitions, self.permit.epoch = partitions, epoch
            return True
        if self.version < FIRST_WITH_TOPIC_IDS:
            return authorizer.allows(channel, Operation.READ, topic.decode())
        info = broker.metadata.topics_by_id.get(topic)
        return info is None or authorizer.allows(channel, Operation.READ, info.name)

    def _followed(self, topic: bytes, index: int) -> HostedPartition | None:
        """A partition that this broker follows, for a consumer that may read from followers."""
        if not self.frame.rack_id or self.frame.replica_id >= 0:
            return None
        from moldau.broker.handlers.fetch.read_replicas import followed_partition

        return followed_partition(self.broker, topic, index, by_id=self.version >= FIRST_WITH_TOPIC_IDS)

    def _preferred(self, partition: HostedPartition, offset: int) -> int:
        """The replica that a consumer with a rack had better read from, -1 for this one."""
        if not partition.is_led or len(partition.machine.isr) < 2:
            return -1
        from moldau.broker.handlers.fetch.read_replicas import preferred_replica

        return preferred_replica(self.broker, self.source.channel, partition, self.frame.rack_id, offset)

    def _limit(self, partition: HostedPartition) -> int:
        """The offset before which the records are that may be read."""
        if self.isolation is FetchIsolation.LOG_END:
            return self._follower_limit(partition)
        return partition.log.last_stable_offset if self.committed else partition.log.high_watermark

    def _follower_limit(self, partition: HostedPartition) -> int:
        """The same for a follower: nothing while its throttle holds it back."""
        throttle = self.broker.replicas.replication.leader_throttle
        return 0 if throttle.holds_back(partition, self.frame.replica_id) else partition.log.log_end_offset

    def _read_partition(
        self, partition: HostedPartition, want: FetchFramePartition, left: int, aborted_left: int, *, at_least_one: bool
    ) -> FetchPartitionResult:
        log, follows = partition.log, self.isolation is FetchIsolation.LOG_END
        try:
            if follows:
                partition.machine.check_follower(self.frame.replica_id)
            if want.current_leader_epoch >= 0:
                partition.machine.check_leader_epoch(want.current_leader_epoch)
            offset = want.fetch_offset
            high_watermark = log.high_watermark
            stable_offset = log.last_stable_offset if log.unsettled else high_watermark
            if want.last_fetched_epoch >= 0:
                epoch, end_offset = partition.end_offset_for_epoch(want.last_fetched_epoch)
                if epoch < 0 or end_offset < 0:
                    raise _not_in_log(partition, f"epoch {want.last_fetched_epoch}")
                if epoch < want.last_fetched_epoch or end_offset < offset:
                    if not partition.is_led and end_offset >= high_watermark:  # a follower may not have all of that epoch yet
                        raise _not_in_log(partition, f"all of epoch {want.last_fetched_epoch}")
                    return FetchPartitionResult(
                        partition.index, 0, high_watermark, stable_offset, log.start_offset, b"", diverging_epoch=(epoch, end_offset)
                    )
            if not log.start_offset <= offset <= log.log_end_offset:
                raise _not_in_log(partition, f"offset {offset}")
            if self.frame.rack_id and not follows and (replica := self._preferred(partition, offset)) >= 0:
                return FetchPartitionResult(
                    partition.index, 0, high_watermark, stable_offset, log.start_offset, b"", preferred_read_replica=replica
                )
            if follows and self.reads == 1:
                self.broker.replicas.fetched_by_follower(
                    partition, self.frame.replica_id, self.frame.replica_epoch, offset, want.current_leader_epoch, want.log_start_offset
                )
                if log.high_watermark != high_watermark:
                    high_watermark, stable_offset = log.high_watermark, log.last_stable_offset
            records: FileRange | bytes = b""
            aborted: Sequence[tuple[int, int]] | None = () if self.committed else None
            limit = stable_offset if self.committed else self._follower_limit(partition) if follows else high_watermark
            if offset < limit and (left > 0 or at_least_one):
                size = max(min(want.max_bytes, left), 0)
                read = log.read(offset, size, limit, at_least_one=at_least_one)
                if self.committed:
                    aborted = _aborted(log, read, offset, limit)
                    if read.records is not None and len(aborted) > aborted_left:
                        size = read.records.length * aborted_left // len(aborted)
                        read.records.release()
                        read = log.read(offset, size, limit, at_least_one=at_least_one)
                        aborted = _aborted(log, read, offset, limit)
                elif follows and read.records is not None:
                    self.broker.replicas.replication.leader_throttle.sent(partition, read.records.length)
                records = read.records or b""
            return FetchPartitionResult(partition.index, 0, high_watermark, stable_offset, log.start_offset, records, aborted)
        except CorruptBatchError as error:
            return _refused(partition.index, error.code, partition)
        except PeerError as error:
            return _refused(partition.index, error.code, partition)
        except StorageError as error:
            self.broker.storage_failed(partition, error)
            return _refused(partition.index, ErrorCode.KAFKA_STORAGE_ERROR)

    def settle(self, topics: list[Results]) -> Generator[Pause, None, tuple[int, list[Results]]]:
        """The session that is answered, none here, and what of the results is; in steps."""
        yield from ()
        return 0, topics

    def release(self) -> None:
        """It is answered, or no connection waits for the answer any more."""

    def attempt(self, expired: bool, request: DelayedFetch | None = None) -> bool:
        """Answer if there is enough to send, or if the time is over."""
        topics = self.read_again(None if expired else request)
        if not (expired or self.urgent) and (missing := self.missing_bytes()) > 0:
            if request is not None:
                request.missing_bytes = missing
            release_ranges(topics)
            return False
        assert self.answer is not None
        self.answer(self.encode(topics))
        return True


def wanted_only(request: FetchFrame) -> FetchFrame:
    """The request without topics of which it wants nothing, unless there is only one: as Kafka, nothing is said of them."""
    if len(request.topics) > 1 and not all(wanted for _, wanted in request.topics):
        return request._replace(topics=[each for each in request.topics if each[1]])
    return request


def _refused(index: int, code: ErrorCode, partition: HostedPartition | None = None) -> FetchPartitionResult:
    if partition is None or code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchPartitionResult(index, code, -1, -1, -1, b"")
    log = partition.log
    return FetchPartitionResult(index, code, log.high_watermark, log.last_stable_offset, log.start_offset, b"")


def _not_in_log(partition: HostedPartition, what: str) -> PeerError:
    """For what a log does not have: a follower's may have it later, and its consumer goes back to the leader."""
    code = ErrorCode.OFFSET_OUT_OF_RANGE if partition.is_led else ErrorCode.OFFSET_NOT_AVAILABLE
    return PeerError(code, f"{partition.topic_partition}: {what} is not in {partition.log.start_offset}..{partition.log.log_end_offset}")


def _aborted(log: "PartitionLog", read: "ReadResult", offset: int, limit: int) -> list[tuple[int, int]]:
    try:
        return log.aborted_in(read, offset, limit)
    except StorageError:
        if read.records is not None:
            read.records.release()
        raise


def release_ranges(topics: list[Results]) -> None:
    """Give back the ranges of results that are not sent."""
    for _, results in topics:
        for result in results:
            if isinstance(result.records, FileRange):
                result.records.release()
