"""Produce: batches to their logs.

The batches of a request are checked, then appended together (`replicas.appends`). The response is made when every batch has reached what
its acknowledgement means, or has failed:

* acks 0: nothing is sent; an error closes the connection, the only sign that the client can see (as in Kafka).
* acks 1: the batch is in the page cache; with `flush.messages` reached, on disk.
* acks all: the same, in the log of each in-sync replica.

A request with batches whose records have to be checked on another thread is appended after these checks, as a whole. Refused here beyond
what a log refuses: versions 0 to 2, which have older batch formats (listed all the same, see `protocol.versions`), with
UNSUPPORTED_VERSION.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.current_leaders import PRODUCE_FIRST, named
from moldau.broker.handlers.produce.validation import check_no_mirror, check_segment, header_of_refused, prepare
from moldau.broker.replicas.append_batch import AppendBatch
from moldau.broker.replicas.appends import ACKS_NONE
from moldau.broker.replicas.partition import ACKS_ALL
from moldau.broker.security import Operation
from moldau.model.errors import ErrorCode, PeerError, RejectedRecordsError, StorageError
from moldau.model.topic_names import LENGTH_MAX
from moldau.protocol.fast.produce import ProducePartitionResult

if TYPE_CHECKING:
    from moldau.broker.admission.admission import Admission
    from moldau.broker.handlers.produce.walks import BatchWalks, Walk
    from moldau.broker.handlers.services import ConfigServices, Guards, MetadataServices, PartitionServices, TransactionServices
    from moldau.broker.metadata.mirror_epochs import MirrorEpochs
    from moldau.broker.metrics.counters import Counters
    from moldau.broker.replicas.appends import PendingAppend
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.security import Channel
    from moldau.ports.clock import Clock
    from moldau.protocol.fast.produce import ProduceFrame
    from moldau.protocol.fast.writing import LeaderEndpoint
    from moldau.protocol.records.header import BatchHeader

FIRST_VERSION = 3
LAST_VERSION = 13
FIRST_WITH_TOPIC_IDS = 13
ACKS_LEADER = 1

Results = tuple[bytes, Sequence[ProducePartitionResult]]
TopicResults = list[tuple[bytes, list[ProducePartitionResult]]]


class ProducePart(AppendBatch):
    """One partition of a request: its batch, or the `error` for which it is refused."""

    __slots__ = ("index", "walk")

    partition: "HostedPartition"
    """Where it is known; with the batch, where that was accepted."""
    header: "BatchHeader"

    def __init__(self, index: int) -> None:
        self.index = index
        self.error = None
        self.in_log = False
        self.walk: Walk | None = None
        """The check of its records on another thread."""

    def result(self) -> ProducePartitionResult:
        """What the response says of it."""
        error = self.error
        if error is None:
            return ProducePartitionResult(self.index, 0, self.base_offset, self.append_time_ms, self.log_start_offset)
        if isinstance(error, StorageError):
            return ProducePartitionResult(self.index, ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
        if isinstance(error, RejectedRecordsError):
            return ProducePartitionResult(
                self.index,
                error.code,
                log_start_offset=self.partition.log.start_offset,
                error_message=error.message,
                record_errors=error.record_errors,
            )
        return ProducePartitionResult(self.index, error.code, error_message=error.message)


if TYPE_CHECKING:

    class Services(ConfigServices, MetadataServices, PartitionServices, TransactionServices, Protocol):
        """What Produce uses of the broker."""

        @property
        def admission(self) -> "Admission":
            """Bounds of requests."""

        @property
        def batch_walks(self) -> "BatchWalks":
            """Checks of batches on another thread."""

        @property
        def clock(self) -> "Clock":
            """Its time."""

        @property
        def counters(self) -> "Counters":
            """What is counted of requests."""

        @property
        def mirror_epochs(self) -> "MirrorEpochs":
            """Keeps leader epochs above those of sources."""

        @property
        def pipeline(self) -> Guards:
            """Authoriser and quotas."""

        @property
        def replicas(self) -> "ReplicaManager":
            """Appends."""

    class BatchAdmission(Protocol):
        """What admits batches on the shortest way that their logs do not admit by themselves."""

        def admit(self, header: "BatchHeader", now_ms: int) -> bool:
            """Whether the log may take this batch now."""


class ProduceOperation:
    """One Produce request while it is worked on: `prepare`, then, once the `held` parts are checked, `append`, then `encode`."""

    def __init__(
        self, broker: "Services", channel: "Channel", request: "ProduceFrame", version: int, correlation_id: int, *, is_kept: bool = False
    ) -> None:
        """`channel`: who produces. `is_kept`: whether the memory of the batches is the request's own."""
        self.version = version
        self.correlation_id = correlation_id
        self.acks = request.acks
        self.transactional_id = request.transactional_id
        self.topics: list[tuple[bytes, list[ProducePart]]] = []
        self.held: Sequence[ProducePart] = ()
        """Parts of which some have to be checked on another thread."""
        self.has_waited = False
        """Whether something may have happened since the batches were checked."""
        self._broker = broker
        self._channel = channel
        self._by_id = version >= FIRST_WITH_TOPIC_IDS
        self._is_kept = is_kept
        self.timeout_ms = request.timeout_ms

    def prepare(self, request: "ProduceFrame", now_ms: int) -> None:
        """Check every batch."""
        walks = False
        for topic, partitions in request.topics:
            parts = [self.prepare_part(topic, index, records, now_ms) for index, records in partitions]
            self.topics.append((topic, parts))
            walks = walks or any(part.walk is not None for part in parts)
        if walks:
            self.hold(self.parts())

    def prepare_part(self, topic: bytes, index: int, records: memoryview | None, now_ms: int) -> ProducePart:
        """Check one batch."""
        part = ProducePart(index)
        self._prepare(part, topic, records, now_ms)
        return part

    def hold(self, parts: Sequence[ProducePart]) -> None:
        """Keep the batches of parts until those of them with a walk are checked."""
        for part in parts:
            if part.walk is None:
                self.own(part)
        self.held = parts
        self.has_waited = True

    def own(self, part: ProducePart) -> None:
        """Take a batch out of the buffer that the next read needs."""
        if part.error is None and not self._is_kept:
            part.records = memoryview(bytearray(part.records))

    def parts(self) -> list[ProducePart]:
        """All of them, in the order of the request."""
        return [part for _, parts in self.topics for part in parts]

    def append(self, now_ms: int, done: Callable[[], object]) -> "PendingAppend":
        """Append every batch that is not refused."""
        self.held = ()
        if self.has_waited:
            batches = [part for topic, parts in self.topics for part in parts if self.may_append(topic, part)]
        else:
            batches = [part for _, parts in self.topics for part in parts if part.error is None]
        return self.append_some(batches, now_ms, done)

    def append_some(self, batches: Sequence[ProducePart], now_ms: int, done: Callable[[], object]) -> "PendingAppend":
        """Append batches that passed `may_append`."""
        return self._broker.replicas.append(batches, self.acks, now_ms, done, timeout_ms=self.timeout_ms)

    def may_append(self, topic: bytes, part: ProducePart) -> bool:
        """Whether a batch may be appended, now that what it waited for has ended; otherwise it has an error."""
        if part.error is None:
            try:
                self._check(topic, part)
            except PeerError as error:
                part.error = error.with_traceback(None)  # whose frames refer to the part
        return part.error is None

    def first_batches(self) -> "BatchAdmission | None":
        """What lets first batches of transactions into the only partition of the request; None if the coordinator has to be asked."""
        return None

    @property
    def first_error(self) -> str | None:
        """Why the first batch failed that has; None if none has."""
        for topic, parts in self.topics:
            for part in parts:
                error = part.error
                if error is not None:
                    return str(error) if isinstance(error, StorageError) else f"{_name(topic)}-{part.index}: {error.message}"
        return None

    def counted_results(self) -> TopicResults:
        """What the response says of each batch; its errors are counted."""
        found = [(topic, [part.result() for part in parts]) for topic, parts in self.topics]
        for topic, results in found:
            self.count_errors(topic, results)
        return found

    def with_leaders(self, topics: TopicResults) -> "tuple[Sequence[Results], Sequence[LeaderEndpoint]]":
        """Results that name the leaders of what other brokers lead, and their addresses."""
        if self.version < PRODUCE_FIRST:
            return topics, ()
        return named(self._broker, self._channel, topics, by_id=self._by_id)

    def count_errors(self, topic: bytes, results: Sequence[ProducePartitionResult]) -> None:
        """Count the errors among results for a topic."""
        if any(result.error_code for result in results):
            self._broker.counters.refused(self._broker.partitions.traffic_of(topic, by_id=self._by_id), results)

    def _prepare(self, part: ProducePart, topic: bytes, records: memoryview | None, now_ms: int) -> None:
        broker, acks = self._broker, self.acks
        try:
            if acks not in (ACKS_LEADER, ACKS_ALL, ACKS_NONE):
                raise PeerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}: neither 0 nor 1 nor -1 (all)")
            partition = broker.partitions_of(topic, by_id=self._by_id).get(part.index)
            if partition is None:
                self._authorize_missing(topic)
                self._note_missing(topic, part.index, records, now_ms)
                raise broker.missing_partition(topic, part.index, by_id=self._by_id)
            self._authorize(partition.topic_partition.topic)
            part.partition = partition
            try:
                partition.machine.check_acks(acks)
            except PeerError as error:
                if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                    self._note_refused(partition, records, now_ms)
                raise
            self._accept(part, records, now_ms)
        except PeerError as error:
            part.error = error.with_traceback(None)  # whose frames refer to the part

    def _accept(self, part: ProducePart, records: memoryview | None, now_ms: int) -> None:
        """Check the batch for a partition that takes appends. PeerError."""
        part.records, part.header, part.walk = prepare(
            self._broker.batch_walks,
            part.partition,
            records,
            self.version,
            now_ms,
            transactional=self.transactional_id is not None,
            is_kept=self._is_kept,
        )

    def _note_early(self, topic: bytes, index: int, header: "BatchHeader | None", now_ms: int) -> None:
        """The partition is not led here, as yet or any more."""
        if header is not None and len(topic) <= LENGTH_MAX:
            self._broker.replicas.early_batches.note(topic, index, header, now_ms)

    def _note_missing(self, topic: bytes, index: int, records: memoryview | None, now_ms: int) -> None:
        self._note_early(topic, index, header_of_refused(records, self._broker.config.int("message.max.bytes")), now_ms)

    def _note_refused(self, partition: "HostedPartition", records: memoryview | None, now_ms: int) -> None:
        """Too few replicas are in sync."""
        header = header_of_refused(records, partition.limits.max_message_bytes)
        if header is not None:
            partition.log.note_refused(header.producer_id, header.producer_epoch, header.base_sequence, now_ms)

    def _authorize(self, topic: str) -> None:
        if not self._broker.pipeline.authorizer.allows(self._channel, Operation.WRITE, topic):
            raise PeerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{self._channel.principal} may not write to topic '{topic}'")

    def _authorize_missing(self, topic: bytes) -> None:
        """Refuse who may not write to a partition that is not led here, as far as its topic is known."""
        if not self._by_id:
            self._authorize(topic.decode())
            return
        info = self._broker.metadata.find(topic, by_id=True)
        if info is not None:
            self._authorize(info.name)

    def _check(self, topic: bytes, part: ProducePart) -> None:
        """A batch may be appended now. PeerError."""
        if not part.partition.is_led:
            self._note_early(topic, part.index, part.header, self._broker.clock.time_ms())
            raise self._broker.missing_partition(topic, part.index, by_id=self._by_id)
        check_no_mirror(part.partition)
        check_segment(part.partition, len(part.records))


def _name(topic: bytes) -> str:
    """A topic for a person: its name, or its id in hexadecimal."""
    return topic.hex() if len(topic) == 16 and not topic.isascii() else topic.decode()
