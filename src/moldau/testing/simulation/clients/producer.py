"""A producer as Kafka's clients have it: batches in the order of sending, five in flight, sequence numbers, retries, epochs.

**Order.** A partition's batches get their sequence numbers when they are made and are sent in that order. When one fails in a way that may
pass, those after it fail too (their sequence is not the next one); once nothing of the partition is in flight, all are sent again in order.
Without idempotence each failed batch is sent again at once, so that retries double and reorder records.

**Giving up.** A batch that may have been stored and is not sent again leaves a gap in the sequence. Then a partition continues with the
next epoch and sequence 0, which keeps a late copy of the batch out (KIP-360); a transaction has to be aborted.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from moldau.client.failures import SendError
from moldau.client.message import Delivered, Message
from moldau.client.partitioning import partition_of
from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.compression import Compression
from moldau.protocol.versions import VersionRange
from moldau.testing.simulation.clients.cause import Cause
from moldau.testing.simulation.clients.context import ClientContext
from moldau.wire.brokers import BACKOFF_S, REQUEST_TIMEOUT_S, Brokers, check, may_pass
from moldau.wire.connection import Address, RequestLostError

IN_FLIGHT_MAX = 5
RECORDS_MAX = 16
"""Of a batch."""
NO_PRODUCER_ID = -1
BY_NAME = VersionRange(3, 12)
_MAYBE_STORED = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # of a leader that was one, and whose followers may have the batch
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
_OUT_OF_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

Delivery = asyncio.Future[Delivered]


@dataclass(slots=True, eq=False)
class Outgoing:
    """A record that waits for a batch."""

    message: Message
    timestamp_ms: int
    delivery: Delivery
    deadline: float


@dataclass(slots=True, eq=False)
class Batch:
    """Records under one sequence number."""

    records: list[Outgoing]
    sequence: int
    maybe_stored: bool = False
    """An attempt was sent and not refused for certain."""


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """What is on its way to one partition."""

    partition: TopicPartition
    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    sequence: int = 0
    waiting: deque[Outgoing] = field(default_factory=deque)
    again: deque[Batch] = field(default_factory=deque)
    """Batches to be sent next, before new ones are made."""
    in_flight: list[Batch] = field(default_factory=list)
    failed: list[Batch] = field(default_factory=list)
    """Those that failed while others were in flight."""
    is_held: bool = False
    """It waits before it tries again."""
    has_gap: bool = False
    """A batch was given up: the next one begins a new epoch."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way."""
        return not (self.waiting or self.again or self.in_flight or self.failed)


class SimulatedProducer:
    """See the module. With the methods of `moldau.client.AsyncProducer`; idempotent, unless `acks` is 0 or 1.

    `delivery_timeout_s` bounds a delivery; without idempotence nothing else does.
    """

    def __init__(
        self,
        context: ClientContext,
        *,
        acks: int = -1,
        idempotent: bool | None = None,
        delivery_timeout_s: float = 60.0,
        compression: Compression = Compression.NONE,
    ) -> None:
        self.context = context
        self.brokers = Brokers(context)
        self.is_idempotent = acks == -1 if idempotent is None else idempotent
        self._loop = asyncio.get_running_loop()
        self._acks = acks
        self._delivery_timeout_s = delivery_timeout_s
        self._compression = compression
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._turn = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False
        self._sent = self._failed = 0
        self._identity: tuple[int, int] | None = None
        self.transactional_id: str | None = None
        self.produce_versions = BY_NAME
        self._sender = asyncio.ensure_future(self._run())

    # What users call

    async def send(
        self, topic: str, value: bytes | str | Message | None, *, key: bytes | str | None = None, partition: int | None = None
    ) -> Delivery:
        """Send a record; ``await`` what this returns for where it stands, or SendError."""
        message = value if isinstance(value, Message) else Message(value, key)
        if partition is None:
            count = await self.partitions_for(topic)
            name = _bytes(message.key)
            partition = self.context.random.randrange(count) if name is None else partition_of(name, count)
        return self.send_nowait(TopicPartition(topic, partition), message)

    async def send_and_wait(
        self, topic: str, value: bytes | str | Message | None, *, key: bytes | str | None = None, partition: int | None = None
    ) -> Delivered:
        """Send a record, and wait until it stands in the log. SendError."""
        return await (await self.send(topic, value, key=key, partition=partition))

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has. PeerError if it does not exist for so long as a delivery may take."""
        found = await self.brokers.insist(lambda: self.brokers.topic(topic), self._delivery_timeout_s)
        return len(found.leaders)

    async def flush(self) -> None:
        """Wait until every record sent so far has ended."""
        self._check_idle()
        await self._idle.wait()

    def statistics(self) -> dict[str, int]:
        """Records so far: `sent`, and `failed`."""
        return {"sent": self._sent, "failed": self._failed}

    async def close(self) -> None:
        """Wait for every record, and disconnect."""
        await self.flush()
        self._stop()
        await asyncio.wait([self._sender])
        self.brokers.close()

    def crash(self) -> None:
        """Disconnect at once, as a process that is killed; what is on its way stays unknown."""
        self._stop()
        self.brokers.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    def _stop(self) -> None:
        self._is_closed = True
        self._sender.cancel()

    # Queues

    def send_nowait(self, partition: TopicPartition, message: Message) -> Delivery:
        """Send a record to a partition."""
        assert not self._is_closed, "the producer is closed"
        now = self._loop.time()
        timestamp_ms = self.context.clock.time_ms() if message.timestamp is None else message.timestamp
        delivery: Delivery = self._loop.create_future()
        self._queue(partition).waiting.append(Outgoing(message, timestamp_ms, delivery, now + self._delivery_timeout_s))
        self._sent += 1
        self._idle.clear()
        self._wake.set()
        return delivery

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def _check_idle(self) -> None:
        if all(queue.is_idle for queue in self._queues.values()):
            self._idle.set()

    async def _run(self) -> None:
        """Send what may be sent, again and again."""
        while True:
            ready = [queue for queue in self._queues.values() if self._may_send(queue)]
            if not ready:
                self._check_idle()
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._send_some(ready)
            except (PeerError, WorldError) as error:
                self._expire(ready, error)
                for queue in ready:
                    self.brokers.forget_topic(queue.partition.topic)
                await self.brokers.back_off()

    def _may_send(self, queue: PartitionQueue) -> bool:
        if queue.is_held or queue.failed or len(queue.in_flight) >= IN_FLIGHT_MAX:
            return False
        if queue.has_gap and queue.in_flight:
            return False
        return bool(queue.again or queue.waiting)

    def _expire(self, queues: Iterable[PartitionQueue], error: PeerError | WorldError) -> None:
        """Give up records whose time is over, and all of them where the error does not pass."""
        now = self._loop.time()
        passes = may_pass(error)
        code = error.code if isinstance(error, PeerError) else ErrorCode.NETWORK_EXCEPTION
        for queue in queues:
            while queue.again and (not passes or queue.again[0].records[0].deadline <= now):
                self._give_up(queue, queue.again.popleft(), code)
            while queue.waiting and (not passes or queue.waiting[0].deadline <= now):
                self._fail_record(queue, queue.waiting.popleft(), code, maybe_stored=False)

    async def _send_some(self, ready: list[PartitionQueue]) -> None:
        """One request: the next batches of some partitions that one broker leads."""
        await self.prepare([queue.partition for queue in ready])
        self._turn += 1
        first = ready[self._turn % len(ready)]
        address = await self.brokers.leader(first.partition)
        together = [queue for queue in ready if queue is first or self.context.random.random() < 0.5]
        together = [queue for queue in together if await self.brokers.leader(queue.partition) == address]
        connection = await self.brokers.connection(address)
        if not self.is_prepared([queue.partition for queue in together]):
            return
        sent = [(queue, batch) for queue in together if (batch := self._next_batch(queue)) is not None]
        if not sent:
            return
        request = ProduceRequest(self.transactional_id, self._acks, int(REQUEST_TIMEOUT_S * 1000), [])
        for queue, batch in sent:
            records = self._encoded(queue, batch)
            request.topic_data.append(
                TopicProduceData(queue.partition.topic, partition_data=[PartitionProduceData(queue.partition.partition, records)])
            )
            queue.in_flight.append(batch)
        try:
            future = connection.send(
                ApiKey.PRODUCE, request, timeout_s=REQUEST_TIMEOUT_S * 2, version=self.produce_versions, answered=self._acks != 0
            )
        except (PeerError, WorldError):
            for queue, batch in sent:
                queue.in_flight.remove(batch)
                queue.again.appendleft(batch)
            raise
        future.add_done_callback(lambda done: self._answered(sent, address, done))

    def _next_batch(self, queue: PartitionQueue) -> Batch | None:
        if not self._may_send(queue):
            return None
        if queue.has_gap:
            self._begin_epoch(queue)
        now = self._loop.time()
        while queue.again:
            batch = queue.again.popleft()
            if batch.records[0].deadline > now:
                return batch
            self._give_up(queue, batch, ErrorCode.REQUEST_TIMED_OUT)
            if queue.has_gap:
                return None
        count = min(len(queue.waiting), self.context.random.randint(1, RECORDS_MAX))
        if not count:
            return None
        if queue.producer_id == NO_PRODUCER_ID and self.is_idempotent:
            queue.producer_id, queue.epoch = self.identity()
        batch = Batch([queue.waiting.popleft() for _ in range(count)], queue.sequence)
        queue.sequence += count
        return batch

    def _begin_epoch(self, queue: PartitionQueue) -> None:
        """After a gap: the next epoch, with sequences from 0. Batches that were never stored are numbered again."""
        again, queue.again = queue.again, deque()
        for batch in again:
            if batch.maybe_stored:
                self._give_up(queue, batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            else:
                queue.again.append(batch)
        queue.has_gap = False
        queue.epoch += 1
        queue.sequence = 0
        for batch in queue.again:
            batch.sequence = queue.sequence
            queue.sequence += len(batch.records)

    def _encoded(self, queue: PartitionQueue, batch: Batch) -> bytes:
        fields: dict[str, Any] = {}
        if self.is_idempotent:
            fields = {"producer_id": queue.producer_id, "producer_epoch": queue.epoch, "base_sequence": batch.sequence}
        builder = RecordBatchBuilder(compression=self._compression, transactional=self.transactional_id is not None, **fields)
        for record in batch.records:
            headers = record.message.headers or ()
            pairs = headers.items() if hasattr(headers, "items") else headers
            builder.append(record.timestamp_ms, _bytes(record.message.key), _bytes(record.message.value), list(pairs))
        return builder.build()

    # Answers

    def _answered(self, sent: list[tuple[PartitionQueue, Batch]], address: Address, done: "asyncio.Future[Any]") -> None:
        """The response to a request, or what ended it."""
        error = done.exception()
        results: dict[TopicPartition, tuple[int, int]] = {}
        if error is None and done.result() is not None:
            for topic in done.result().responses:
                for each in topic.partition_responses:
                    results[TopicPartition(topic.name, each.index)] = each.error_code, each.base_offset
        for queue, batch in sent:
            queue.in_flight.remove(batch)
            if error is not None:
                batch.maybe_stored |= not isinstance(error, RequestLostError) or error.was_sent
                self._retry(queue, batch)
            elif done.result() is None:
                self._deliver(queue, batch, -1)
            elif queue.partition in results:
                self._take_result(queue, batch, *results[queue.partition])
            else:
                self._retry(queue, batch)
        for queue, _ in sent:
            self._settle(queue)
        if error is not None:
            for queue, _ in sent:
                self.brokers.forget_topic(queue.partition.topic)
        self._check_idle()
        self._wake.set()

    def _take_result(self, queue: PartitionQueue, batch: Batch, code: int, base_offset: int) -> None:
        known = known_error(code)
        match known:
            case ErrorCode.NONE | ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._deliver(queue, batch, base_offset)
            case _ if known in _OUT_OF_SEQUENCE and self._follows_failed(queue, batch):
                self._retry(queue, batch)
            case _ if known.retriable and known not in _OUT_OF_SEQUENCE:
                batch.maybe_stored |= known in _MAYBE_STORED
                self.brokers.forget_topic(queue.partition.topic)
                self._retry(queue, batch)
            case _:
                if known in _FENCED:
                    self.fenced(known)
                batch.maybe_stored |= known in _MAYBE_STORED
                self._give_up(queue, batch, known)

    def _follows_failed(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Whether an earlier batch of the partition failed, so that this one was out of sequence."""
        return queue.has_gap or any(each.sequence < batch.sequence for each in (*queue.failed, *queue.in_flight))

    def _retry(self, queue: PartitionQueue, batch: Batch) -> None:
        if not self.is_idempotent:
            queue.again.append(batch)
        else:
            queue.failed.append(batch)
        if not queue.is_held:
            queue.is_held = True
            self._loop.call_later(BACKOFF_S * self.context.random.uniform(0.5, 1.5), self._release, queue)

    def _release(self, queue: PartitionQueue) -> None:
        queue.is_held = False
        self._wake.set()

    def _settle(self, queue: PartitionQueue) -> None:
        """Once nothing of the partition is in flight, what failed is sent again in order; or, after a gap, given up if it may be stored."""
        if queue.in_flight or not queue.failed:
            return
        failed, queue.failed = sorted(queue.failed, key=lambda batch: batch.sequence), []
        if queue.has_gap:
            for batch in failed:
                if batch.maybe_stored:
                    self._give_up(queue, batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            failed = [batch for batch in failed if not batch.maybe_stored]
        queue.again.extendleft(reversed(failed))

    def _deliver(self, queue: PartitionQueue, batch: Batch, base_offset: int) -> None:
        for index, record in enumerate(batch.records):
            offset = base_offset + index if base_offset >= 0 else None
            if not record.delivery.done():
                record.delivery.set_result(Delivered(*queue.partition, offset, record.timestamp_ms))

    def _give_up(self, queue: PartitionQueue, batch: Batch, code: ErrorCode) -> None:
        queue.has_gap = self.is_idempotent
        for record in batch.records:
            self._fail_record(queue, record, code, maybe_stored=batch.maybe_stored)

    def _fail_record(self, queue: PartitionQueue, record: Outgoing, code: ErrorCode, *, maybe_stored: bool) -> None:
        self._failed += 1
        if not record.delivery.done():
            cause = Cause(code, took_effect_perhaps=maybe_stored)
            record.delivery.set_exception(SendError(*queue.partition, cause))
            record.delivery.exception()
        self.record_failed(code)

    # What transactions change

    async def prepare(self, partitions: list[TopicPartition]) -> None:
        """What comes before the first batch to these partitions: a producer id."""
        if self.is_idempotent and self._identity is None:
            response = await self.brokers.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 0))
            check(response.error_code, "producer id")
            self._identity = response.producer_id, response.producer_epoch

    def is_prepared(self, _partitions: list[TopicPartition]) -> bool:
        """Whether that was done, and still counts."""
        return True

    def identity(self) -> tuple[int, int]:
        """Producer id and epoch for new batches."""
        assert self._identity is not None
        return self._identity

    def fenced(self, code: ErrorCode) -> None:
        """A partition has seen a newer epoch of this producer."""

    def record_failed(self, code: ErrorCode) -> None:
        """A record was given up."""


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
