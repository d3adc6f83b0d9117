"""Produce: batches to their logs.

A batch is staged when its request is handled and written at the end of the read (see `connection`), so an answer made here counts on a
write that is still to come; `ProduceOutcome.refuse` takes that back. What an acknowledgement means, with one replica:

* acks 0: nothing is sent; an error closes the connection, the only sign that the client can see (as in Kafka).
* acks 1 and all: the batch is in the page cache; with `flush.messages` reached, on disk.

Refused here beyond what `append` refuses: versions 0 to 2, which stand for older batch formats (listed all the same, see
`protocol.versions`), with UNSUPPORTED_VERSION. A request with a transactional id may have to wait for the transaction coordinator; see
`transactional_produce`. One of many partitions, or of several long batches, is handled in steps, and written by itself: see `long_produce`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.broker.appending import check_segment, prepare
from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.errors import ErrorCode, PeerError, RejectedRecordsError, StorageError
from moldau.model.steps import drain
from moldau.protocol.fast.produce import LongProduceError, ProducePartitionResult, decode_produce, encode_produce_response

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.handlers.transactional_produce import TransactionalProduce
    from moldau.broker.walked_batches import Walk
    from moldau.protocol.records.header import BatchHeader

FIRST_VERSION = 3
LAST_VERSION = 13
FIRST_WITH_TOPIC_IDS = 13
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1

BYTES_AT_ONCE = 4 * 1024 * 1024
"""Bytes of several batches that are written in one go: one to ten milliseconds."""

TopicResults = list[tuple[bytes, list[ProducePartitionResult]]]


class HeldBatch:
    """A copy of a batch that waits until it, or one before it in its request, was checked. `topic` and `place`: where its result is."""

    __slots__ = ("batch", "header", "partition", "place", "refusal", "topic", "walk")

    def __init__(
        self, topic: int, place: int, partition: HostedPartition, batch: memoryview, header: "BatchHeader", walk: "Walk | None"
    ) -> None:
        self.topic = topic
        self.place = place
        self.partition = partition
        self.batch = batch if walk is not None else memoryview(bytearray(batch))
        self.header = header
        self.refusal: PeerError | None = None
        self.walk = walk


class ProduceOutcome:
    """What became of one Produce request.

    `appended` has, for each result, its place (topic, partition) in `topics` and the partition that holds its batch. `unflushed` has
    partition and last offset of each batch whose acknowledgement waits for the disk. `held` has the batches that have to be checked
    on another thread (`walked_batches`), and those after them; their results exist only after `finish`.
    """

    __slots__ = ("acks", "appended", "correlation_id", "first_error", "held", "topics", "transactional_id", "unflushed", "version")

    def __init__(self, version: int, correlation_id: int, acks: int, transactional_id: str | None = None) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self.transactional_id = transactional_id
        self.topics: TopicResults = []
        self.appended: list[tuple[int, int, HostedPartition]] = []
        self.unflushed: list[tuple[HostedPartition, int]] = []
        self.first_error: str | None = None
        self.held: list[HeldBatch] = []

    def finish(self, broker: "Broker", now_ms: int) -> None:
        """Stage the batches that were held, now that they were checked."""
        held, self.held = self.held, []
        for each in held:
            topic, results = self.topics[each.topic]
            partition = each.partition
            try:
                if each.refusal is not None:
                    raise each.refusal
                if not partition.is_led:
                    raise broker.missing_partition(topic, partition.index, by_id=self.version >= FIRST_WITH_TOPIC_IDS)
                check_segment(partition, len(each.batch))
                results[each.place] = append(broker, partition, each.batch, each.header, now_ms, self)
                self.appended.append((each.topic, each.place, partition))
            except PeerError as error:
                results[each.place] = self.refused(topic, partition.index, error, partition)
            except StorageError as error:
                broker.storage_failed(partition, error)
                results[each.place] = self.not_stored(partition.index, error)

    def encode(self) -> bytes:
        """The answer as a frame."""
        return encode_produce_response(self.version, self.correlation_id, self.topics)

    def refused(self, topic: bytes, index: int, error: PeerError, partition: HostedPartition | None = None) -> ProducePartitionResult:
        """The result for a batch that was not taken."""
        self.first_error = self.first_error or f"{_name(topic)}-{index}: {error.message}"
        if isinstance(error, RejectedRecordsError) and partition is not None:
            return ProducePartitionResult(
                index,
                error.code,
                log_start_offset=partition.log.start_offset,
                error_message=error.message,
                record_errors=error.record_errors,
            )
        return _refused(index, error.code, error.message)

    def not_stored(self, index: int, error: StorageError) -> ProducePartitionResult:
        """The result for a batch that the disk did not take."""
        self.first_error = self.first_error or str(error)
        return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def refuse(self, correlation_id: int, failures: Mapping[HostedPartition, StorageError], said: object) -> bytes | None:
        """The answer after taking back what was not written after all, instead of what was `said`; None if that was right."""
        return self.encode() if self.fail(failures, but_written=True) else None

    def fail(self, failures: Mapping[HostedPartition, StorageError], *, but_written: bool = False) -> bool:
        """Take back what did not reach the disk, or with `but_written` its log; whether anything was."""
        failed = False
        for topic, place, partition in self.appended:
            error = failures.get(partition)
            if error is not None:
                results = self.topics[topic][1]
                if but_written and partition.has_written(results[place].base_offset):
                    continue
                results[place] = _refused(results[place].partition, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                self.first_error = self.first_error or str(error)
                failed = True
        return failed


def handle_produce(
    broker: "Broker", frame: memoryview, position: int, version: int, correlation_id: int, now_ms: int
) -> "ProduceOutcome | TransactionalProduce":
    """Stage every batch of the request whose body starts at `position` that can be taken; or say that the transaction coordinator has to be
    asked first. With some `held`, these have to be checked before. ProtocolError; LongProduceError, before anything is done, for a
    request of many partitions or of several long batches: see `long_produce`.
    """
    request = decode_produce(
        frame, position, version, broker.admission.limits.decoded_bytes_max, broker.admission.limits.decoded_elements_max
    )
    if len(frame) > BYTES_AT_ONCE and sum(len(partitions) for _, partitions in request.topics) > 1:
        raise LongProduceError
    if request.transactional_id is not None:
        from moldau.broker.handlers.transactional_produce import TransactionalProduce

        transactional = TransactionalProduce(broker, request, version, correlation_id)
        drain(transactional.prepare(now_ms))
        if not transactional.held:
            drain(transactional.begin(now_ms))
        return transactional if transactional.held or transactional.has_to_ask else transactional.outcome(now_ms)
    outcome = ProduceOutcome(version, correlation_id, request.acks)
    for topic, partitions in request.topics:
        outcome.topics.append((topic, []))
        stage(broker, outcome, partitions, now_ms)
    return outcome


def stage(broker: "Broker", outcome: ProduceOutcome, partitions: "Sequence[tuple[int, memoryview | None]]", now_ms: int) -> None:
    """Stage batches of the last of the outcome's topics."""
    topic, results = outcome.topics[-1]
    place, version, acks = len(outcome.topics) - 1, outcome.version, outcome.acks
    led = broker.partitions_of(topic, by_id=version >= FIRST_WITH_TOPIC_IDS)
    refusal = refusal_of(acks)
    for index, records in partitions:
        partition = None
        try:
            if refusal is not None:
                raise refusal
            partition = led.get(index)
            if partition is None:
                raise broker.missing_partition(topic, index, by_id=version >= FIRST_WITH_TOPIC_IDS)
            check_replicas(partition, acks)
            batch, header, walk = prepare(broker.batch_walks, partition, records, version, now_ms)
            if walk is None and not outcome.held:
                result = append(broker, partition, batch, header, now_ms, outcome)
                outcome.appended.append((place, len(results), partition))
            else:
                outcome.held.append(HeldBatch(place, len(results), partition, batch, header, walk))
                result = ProducePartitionResult(index)
        except PeerError as error:
            result = outcome.refused(topic, index, error, partition)
        except StorageError as error:
            assert partition is not None, "only a log raises it"
            broker.storage_failed(partition, error)
            result = outcome.not_stored(index, error)
        results.append(result)


def append(
    broker: "Broker", partition: HostedPartition, batch: memoryview, header: "BatchHeader", now_ms: int, outcome: ProduceOutcome
) -> ProducePartitionResult:
    """Stage a batch that was prepared. PeerError, StorageError."""
    log = partition.log
    appended = log.append_as_leader(batch, header, now_ms)
    if not appended.duplicate:
        broker.replicas.appends.note_staged(partition, len(batch))
    if appended.last_offset >= log.flushed_offset and log.staged_end_offset - log.flushed_offset >= log.config.flush_messages:
        outcome.unflushed.append((partition, appended.last_offset))
    return ProducePartitionResult(partition.index, 0, appended.base_offset, appended.log_append_time_ms, log.start_offset)


def check_replicas(partition: HostedPartition, acks: int) -> None:
    """There are as many in sync as the acknowledgement asks for. PeerError NOT_ENOUGH_REPLICAS."""
    minimum = partition.rules.min_insync_replicas
    if acks == ACKS_ALL and minimum > 1:
        raise PeerError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{partition.topic_partition}: 1 replica in sync, min.insync.replicas is {minimum}")


def refusal_of(acks: int) -> PeerError | None:
    """Why no batch of a request can be taken, if that is so."""
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return PeerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}: neither 0 nor 1 nor -1 (all)")
    return None


def _refused(index: int, code: ErrorCode, message: str) -> ProducePartitionResult:
    return ProducePartitionResult(index, code, error_message=message)


def _name(topic: bytes) -> str:
    """A topic for a person: its name, or its id in hexadecimal."""
    return topic.hex() if len(topic) == 16 and not topic.isascii() else topic.decode()
