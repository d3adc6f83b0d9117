"""A transactional producer, in both protocols: partitions added by request (`protocol` 1), and by producing to them (2, KIP-890).

Once a record or an offset could not be stored, the transaction can only be aborted; once a newer producer has the transactional id, or the
coordinator does not know this one, the producer is of no more use.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Never, Self

from moldau.client.failures import ClientError, FencedError, TransactionAbortedError, TransactionError
from moldau.client.message import Message
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.versions import VersionRange
from moldau.testing.simulation.clients.cause import Cause
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.producer import NO_PRODUCER_ID, Delivery, PartitionQueue, SimulatedProducer
from moldau.wire.brokers import CoordinatorType
from moldau.wire.group import GroupMetadata

if TYPE_CHECKING:
    from moldau.testing.simulation.clients.consumer import SimulatedConsumer

INSIST_S = 60.0
"""How long a request to a coordinator is repeated."""
_VERSIONS = {
    1: {ApiKey.PRODUCE: VersionRange(3, 11), ApiKey.END_TXN: VersionRange(0, 4), ApiKey.TXN_OFFSET_COMMIT: VersionRange(3, 4)},
    2: {ApiKey.PRODUCE: VersionRange(12, 12), ApiKey.END_TXN: VersionRange(5, 5), ApiKey.TXN_OFFSET_COMMIT: VersionRange(5, 5)},
}
_BY_CLIENTS = VersionRange(0, 3)
"""Of AddPartitionsToTxn: later versions are for brokers."""
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_FATAL = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
)


class SimulatedTransactionalProducer(SimulatedProducer):
    """See the module. `init_transactions` comes first; then `transaction()`, or `begin` and `commit` or `abort`, again and again."""

    def __init__(
        self, context: ClientContext, transactional_id: str, *, protocol: int = 2, timeout_s: float = 10.0, delivery_timeout_s: float = 8.0
    ) -> None:
        super().__init__(context, delivery_timeout_s=delivery_timeout_s)
        self.transactional_id: str = transactional_id
        self.produce_versions = _VERSIONS[protocol][ApiKey.PRODUCE]
        self._protocol = protocol
        self._timeout_ms = int(timeout_s * 1000)
        self._is_open = False
        self._is_begun = False
        """Whether the coordinator may know of the transaction."""
        self._added: dict[TopicPartition, None] = {}
        self._failure: ErrorCode | None = None
        self._fatal: TransactionError | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether this producer is of no more use."""
        return self._fatal is not None

    # What users call

    async def init_transactions(self, timeout: float = INSIST_S) -> None:
        """Take over the transactional id: what an older producer has open is aborted, and it may do nothing any more. TransactionError."""
        await self._init(NO_PRODUCER_ID, -1, timeout)

    def transaction(self, *consumers: "SimulatedConsumer") -> "SimulatedTransaction":
        """All of it or nothing: ``async with producer.transaction():``; consumers are committed with it, and rewound after an abort."""
        return SimulatedTransaction(self, consumers)

    async def begin(self) -> None:
        """Begin; records from now on are part of the transaction."""
        self._check_alive()
        assert not self._is_open, "one transaction at a time"
        self._is_open, self._is_begun, self._failure = True, False, None

    async def commit_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction. TransactionAbortedError, FencedError, TransactionError."""
        self._check_alive()
        self._check_sound()
        self._is_begun = True
        if self._protocol == 1:
            request = AddOffsetsToTxnRequest(self.transactional_id, *self.identity(), member.group_id)
            await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, request)
        await self._insist(lambda: self._commit_offsets(offsets, member))

    async def commit(self) -> None:
        """Wait for every record, then commit. TransactionAbortedError: it has to be aborted instead; FencedError, TransactionError."""
        await self.flush()
        self._check_alive()
        self._check_sound()
        await self._end(committed=True)

    async def abort(self) -> None:
        """Give up what was not sent, wait for what was, then abort. FencedError, TransactionError."""
        self._give_up_unsent(self._failure or ErrorCode.OPERATION_NOT_ATTEMPTED)
        await self.flush()
        self._check_alive()
        await self._end(committed=False)

    # Towards the coordinator

    async def _init(self, producer_id: int, epoch: int, limit_s: float = INSIST_S) -> None:
        request = InitProducerIdRequest(self.transactional_id, self._timeout_ms, producer_id, epoch)
        response = await self._ask(ApiKey.INIT_PRODUCER_ID, request, limit_s=limit_s)
        self._take_identity(response.producer_id, response.producer_epoch)

    async def _end(self, *, committed: bool) -> None:
        if self._is_begun:
            request = EndTxnRequest(self.transactional_id, *self.identity(), committed)
            response = await self._ask(ApiKey.END_TXN, request, version=_VERSIONS[self._protocol][ApiKey.END_TXN])
            if self._protocol == 2:
                self._take_identity(response.producer_id, response.producer_epoch)
            elif any(queue.has_gap for queue in self._queues.values()):
                await self._init(*self.identity())
        self._is_open = self._is_begun = False
        self._added.clear()
        self._failure = None

    def _take_identity(self, producer_id: int, epoch: int) -> None:
        self._identity = producer_id, epoch
        for queue in self._queues.values():
            queue.producer_id, queue.epoch, queue.sequence, queue.has_gap = NO_PRODUCER_ID, -1, 0, False

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMetadata) -> None:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(partition.topic, TxnOffsetCommitRequestTopic(partition.topic))
            topic.partitions.append(TxnOffsetCommitRequestPartition(partition.partition, offset, committed_metadata=""))
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            member.group_id,
            *self.identity(),
            member.generation_id,
            member.member_id,
            member.instance_id,
            list(topics.values()),
        )
        versions = _VERSIONS[self._protocol][ApiKey.TXN_OFFSET_COMMIT]
        kind = CoordinatorType.GROUP
        response = await self.brokers.ask_coordinator(kind, member.group_id, ApiKey.TXN_OFFSET_COMMIT, request, version=versions)
        for topic in response.topics:
            for each in topic.partitions:
                self.brokers.check_coordinator(kind, member.group_id, each.error_code)

    async def _ask(self, api_key: ApiKey, request: Any, *, version: VersionRange | None = None, limit_s: float = INSIST_S) -> Any:
        async def ask() -> Any:
            kind, key = CoordinatorType.TRANSACTION, self.transactional_id
            response = await self.brokers.ask_coordinator(kind, key, api_key, request, version=version)
            self.brokers.check_coordinator(kind, key, response.error_code)
            return response

        return await self._insist(ask, limit_s)

    async def _insist(self, act: Any, limit_s: float = INSIST_S) -> Any:
        """Repeat a request; its failure as an error of `moldau.client`. Without any answer in time the producer is of no more use."""
        try:
            return await self.brokers.insist(act, limit_s)
        except PeerError as error:
            self._refused(error.code, error)
        except WorldError as error:
            cause = Cause(ErrorCode.NETWORK_EXCEPTION, str(error), took_effect_perhaps=True, is_fatal=True)
            self._fatal = TransactionError(self.transactional_id, cause)
            raise self._fatal from error

    def _refused(self, code: ErrorCode, error: PeerError) -> Never:
        if code in _FENCED:
            self.fenced(code)
        elif code in _FATAL:
            self._fatal = TransactionError(self.transactional_id, Cause(code, is_fatal=True))
        else:
            self._failure = code
        self._check_alive()
        raise TransactionAbortedError(self.transactional_id, Cause(code, str(error)))

    def _check_alive(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    def _check_sound(self) -> None:
        if self._failure is not None:
            raise TransactionAbortedError(self.transactional_id, Cause(self._failure))

    # Of the producer

    def send_nowait(self, partition: TopicPartition, message: Message) -> Delivery:
        """Send a record as part of the transaction. TransactionAbortedError, FencedError, TransactionError."""
        self._check_alive()
        self._check_sound()
        assert self._is_open, "no transaction is open"
        return super().send_nowait(partition, message)

    async def prepare(self, partitions: list[TopicPartition]) -> None:
        """Take partitions into the transaction."""
        self._is_begun = True
        new = [partition for partition in partitions if partition not in self._added]
        if self._protocol == 2 or not new:
            return
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for partition in new:
            topics.setdefault(partition.topic, AddPartitionsToTxnTopic(partition.topic)).partitions.append(partition.partition)
        producer_id, epoch = self.identity()
        request = AddPartitionsToTxnRequest([], self.transactional_id, producer_id, epoch, list(topics.values()))
        kind, key = CoordinatorType.TRANSACTION, self.transactional_id
        response = await self.brokers.ask_coordinator(kind, key, ApiKey.ADD_PARTITIONS_TO_TXN, request, version=_BY_CLIENTS)
        for topic in response.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                if each.partition_error_code in _FENCED:
                    self.fenced(ErrorCode(each.partition_error_code))
                self.brokers.check_coordinator(kind, key, each.partition_error_code)
        self._added.update(dict.fromkeys(new))

    def is_prepared(self, partitions: list[TopicPartition]) -> bool:
        """Another transaction may have begun meanwhile."""
        return self._is_begun and (self._protocol == 2 or all(partition in self._added for partition in partitions))

    def fenced(self, code: ErrorCode) -> None:
        """A newer producer has the transactional id, or the coordinator has aborted the transaction at its time-out."""
        if self._fatal is None:
            self._fatal = FencedError(self.transactional_id, Cause(code, is_fatal=True))
            self._give_up_unsent(code)

    def record_failed(self, code: ErrorCode) -> None:
        """The transaction can only be aborted."""
        if self._failure is None:
            self._failure = code
            self._give_up_unsent(code)

    def _give_up_unsent(self, code: ErrorCode) -> None:
        self._failure = code
        for queue in self._queues.values():
            self._empty(queue, code)
        self._check_idle()

    def _empty(self, queue: PartitionQueue, code: ErrorCode) -> None:
        while queue.again:
            self._give_up(queue, queue.again.popleft(), code)
        while queue.waiting:
            self._fail_record(queue, queue.waiting.popleft(), code, maybe_stored=False)

    def _may_send(self, queue: PartitionQueue) -> bool:
        return self._failure is None and self._fatal is None and super()._may_send(queue)

    def _settle(self, queue: PartitionQueue) -> None:
        super()._settle(queue)
        if self._failure is not None:
            self._empty(queue, self._failure)


class SimulatedTransaction:
    """One transaction of a block: it commits at the end, and aborts where an exception leaves it."""

    def __init__(self, producer: SimulatedTransactionalProducer, consumers: tuple["SimulatedConsumer", ...]) -> None:
        self._producer = producer
        self._consumers = list(consumers)
        self._committed: list[SimulatedConsumer] = []

    async def commit_offsets(self, consumer: "SimulatedConsumer", offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit with the transaction where the consumer's group reads next."""
        if consumer not in self._consumers:
            self._consumers.append(consumer)
        self._committed.append(consumer)
        await self._producer.commit_offsets(consumer.positions() if offsets is None else offsets, consumer.group_metadata())

    async def __aenter__(self) -> Self:
        await self._producer.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                for consumer in self._consumers:
                    if consumer not in self._committed:
                        await self.commit_offsets(consumer)
                await self._producer.commit()
            except TransactionAbortedError:
                await self._abort()
                raise
        elif not (isinstance(error, ClientError) and error.fatal):
            await self._abort()

    async def _abort(self) -> None:
        await self._producer.abort()
        for consumer in self._consumers:
            await consumer.rewind()
