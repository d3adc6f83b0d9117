"""Produce: batches to their logs.

A batch is staged when its request is handled and written at the end of the read (see `connection`), so an answer made here counts on a
write that is still to come; `ProduceOutcome.refuse` takes that back. What an acknowledgement means, with one replica:

* acks 0: nothing is sent; an error closes the connection, the only sign that the client can see (as in Kafka).
* acks 1 and all: the batch is in the page cache; with `flush.messages` reached, on disk.

Refused here beyond what `append` refuses: versions 0 to 2, which stand for older batch formats (listed all the same, see
`protocol.versions`), with UNSUPPORTED_VERSION. A request with a transactional id may have to wait for the transaction coordinator; see
`transactional_produce`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.broker.appending import prepare
from moldau.broker.partition import Partition
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.protocol.fast.produce import ProducePartitionResult, decode_produce, encode_produce_response

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.handlers.transactional_produce import TransactionalProduce
    from moldau.protocol.records.header import BatchHeader

FIRST_VERSION = 3
LAST_VERSION = 13
FIRST_WITH_TOPIC_IDS = 13
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1

TopicResults = list[tuple[bytes, list[ProducePartitionResult]]]


class ProduceOutcome:
    """What became of one Produce request.

    `appended` has, for each result, its place (topic, partition) in `topics` and the partition that holds its batch. `unflushed` has
    partition and last offset of each batch whose acknowledgement waits for the disk.
    """

    __slots__ = ("acks", "appended", "correlation_id", "first_error", "topics", "transactional_id", "unflushed", "version")

    def __init__(self, version: int, correlation_id: int, acks: int, transactional_id: str | None = None) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self.transactional_id = transactional_id
        self.topics: TopicResults = []
        self.appended: list[tuple[int, int, Partition]] = []
        self.unflushed: list[tuple[Partition, int]] = []
        self.first_error: str | None = None

    def encode(self) -> bytes:
        """The answer as a frame."""
        return encode_produce_response(self.version, self.correlation_id, self.topics)

    def refused(self, topic: bytes, index: int, error: PeerError) -> ProducePartitionResult:
        """The result for a batch that was not taken."""
        self.first_error = self.first_error or f"{_name(topic)}-{index}: {error.message}"
        return _refused(index, error.code, error.message)

    def not_stored(self, index: int, error: StorageError) -> ProducePartitionResult:
        """The result for a batch that the disk did not take."""
        self.first_error = self.first_error or str(error)
        return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def refuse(self, correlation_id: int, failures: Mapping[Partition, StorageError], said: object) -> bytes | None:
        """The answer after taking back what was not written after all, instead of what was `said`; None if that was right."""
        return self.encode() if self.fail(failures, but_written=True) else None

    def fail(self, failures: Mapping[Partition, StorageError], *, but_written: bool = False) -> bool:
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
    asked first. ProtocolError.
    """
    request = decode_produce(frame, position, version, broker.decoded_bytes_max, broker.decoded_elements_max)
    if request.transactional_id is not None:
        from moldau.broker.handlers.transactional_produce import TransactionalProduce

        transactional = TransactionalProduce(broker, request, version, correlation_id, now_ms)
        return transactional if transactional.has_to_ask else transactional.outcome(now_ms)
    acks = request.acks
    outcome = ProduceOutcome(version, correlation_id, acks)
    refusal = refusal_of(acks)
    for topic, partitions in request.topics:
        led = broker.partitions_of(topic, by_id=version >= FIRST_WITH_TOPIC_IDS)
        results: list[ProducePartitionResult] = []
        for index, records in partitions:
            try:
                if refusal is not None:
                    raise refusal
                partition = led.get(index)
                if partition is None:
                    raise broker.missing_partition(topic, index, by_id=version >= FIRST_WITH_TOPIC_IDS)
                check_replicas(partition, acks)
                batch, header = prepare(partition, records, version, now_ms)
                result = append(broker, partition, batch, header, now_ms, outcome)
                outcome.appended.append((len(outcome.topics), len(results), partition))
            except PeerError as error:
                result = outcome.refused(topic, index, error)
            except StorageError as error:
                assert partition is not None, "only a log raises it"
                broker.storage_failed(partition, error)
                result = outcome.not_stored(index, error)
            results.append(result)
        outcome.topics.append((topic, results))
    return outcome


def append(
    broker: "Broker", partition: Partition, batch: memoryview, header: "BatchHeader", now_ms: int, outcome: ProduceOutcome
) -> ProducePartitionResult:
    """Stage a batch that was prepared. PeerError, StorageError."""
    log = partition.log
    appended = log.append(batch, header, now_ms)
    if not appended.duplicate:
        broker.staged_writes.add(partition, len(batch))
    if appended.last_offset >= log.flushed_offset and log.end_offset - log.flushed_offset >= log.config.flush_messages:
        outcome.unflushed.append((partition, appended.last_offset))
    return ProducePartitionResult(partition.index, 0, appended.base_offset, appended.log_append_time_ms, log.start_offset)


def check_replicas(partition: Partition, acks: int) -> None:
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
