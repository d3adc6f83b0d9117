"""Produce with a transactional id: batches that may begin a transaction in their partition wait for the coordinator's leave (KIP-890).

The coordinator is asked only for partitions in which the producer's transaction is not ongoing yet, so once for each partition of a
transaction. Clients up to version 11 have added the partition themselves, and it is looked up; from version 12 on it is added here.
The coordinator answers at once, or later when its own log has to reach the disk first; then the batches are copied, for they lie in memory
that is needed for the next read, and the connection takes no further request until the answer is there.

Errors of the coordinator as producers know them, after Kafka's `ReplicaManager` and `AddPartitionsToTxnManager`:

* NOT_ENOUGH_REPLICAS where it is not there, or busy with the last transaction: producers send the batch again, as they should, and not
  even older ones look for another leader of the partition. From version 12 on CONCURRENT_TRANSACTIONS stays as it is.
* INVALID_TXN_STATE for TRANSACTION_ABORTABLE up to version 10, which do not know that.
* INVALID_PRODUCER_EPOCH for PRODUCER_FENCED, which is the coordinator's word for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.handlers.produce.operation import ProduceOperation, ProducePart
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import UNFINISHED, Steps

if TYPE_CHECKING:
    from moldau.broker.handlers.produce.operation import Services
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.security import Channel
    from moldau.broker.transactions.coordinator import TransactionCoordinator
    from moldau.log.open_transactions import Verification
    from moldau.log.partition_log import AppendResult
    from moldau.model.identity import TopicPartition
    from moldau.protocol.fast.produce import ProduceFrame
    from moldau.protocol.records.header import BatchHeader

FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ADDS = 12
_AWAY = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The batch may be taken at a later attempt."""


class TransactionalPart(ProducePart):
    """With the verification of its transaction by the coordinator."""

    __slots__ = ("verification",)

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.verification: Verification | None = None

    def stage(self, now_ms: int) -> "AppendResult":
        """Stage it, if its transaction may begin or is still ongoing. PeerError, StorageError."""
        log, header, verification = self.partition.log, self.header, self.verification
        if header.is_transactional:
            if verification is not None:
                log.check_first(header, verification)
            elif not log.has_ongoing_transaction(header.producer_id, header.producer_epoch):
                raise PeerError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"{self.partition.topic_partition}: the transaction of producer {header.producer_id} has ended while its batch was"
                    " waiting",
                )
        return super().stage(now_ms)


class FirstBatches:
    """Lets the first batches of a producer's transactions into one partition, without a `TransactionalProduce` for each."""

    __slots__ = ("_partition", "_transactional_id", "_transactions")

    def __init__(self, transactions: "TransactionCoordinator", transactional_id: str, partition: "HostedPartition") -> None:
        self._transactions = transactions
        self._transactional_id = transactional_id
        self._partition = partition

    def admit(self, header: "BatchHeader", now_ms: int) -> bool:
        """Whether a batch may begin a transaction; False if a `TransactionalProduce` has to find out why not. PeerError."""
        partition = self._partition
        verification = partition.log.begin_verification(header, now_ms, bumps_epoch=False)
        if verification is not None:
            producer_id, epoch = header.producer_id, header.producer_epoch
            if not self._transactions.is_verified(self._transactional_id, producer_id, epoch, partition.topic_partition):
                return False
            partition.log.check_first(header, verification)
        return True


class TransactionalProduce(ProduceOperation):
    """One request. The caller prepares it, has the `held` batches checked, then calls `begin`. If it `has_to_ask` then, the caller asks
    the coordinator, and appends after the answer.
    """

    def __init__(
        self, broker: "Services", channel: "Channel", request: "ProduceFrame", version: int, correlation_id: int, *, is_kept: bool = False
    ) -> None:
        super().__init__(broker, channel, request, version, correlation_id, is_kept=is_kept)
        self.has_waited = True
        self._codes: dict[TopicPartition, ErrorCode] | None = None
        self._waiting: list[TransactionalPart] = []

    def prepare_part(self, topic: bytes, index: int, records: memoryview | None, now_ms: int) -> ProducePart:
        """Check one batch."""
        part = TransactionalPart(index)
        self._prepare(part, topic, records, now_ms)
        return part

    def begin(self, now_ms: int) -> Steps:
        """Find out whether the coordinator has to be asked, in steps. Nothing is held any more."""
        self.held = ()
        self._refuse_two_producers()
        for part in self.parts():
            assert isinstance(part, TransactionalPart)
            if part.error is None and self._begin(part, now_ms):
                self._waiting.append(part)
            yield UNFINISHED

    @property
    def has_to_ask(self) -> bool:
        """Whether a batch may begin a transaction in its partition."""
        return bool(self._waiting)

    @property
    def batch_bytes(self) -> int:
        """Memory that the batches take."""
        return sum(len(part.records) for part in self.parts() if part.error is None)

    def ask(self, answered_later: Callable[[], object]) -> bool:
        """Ask the coordinator; whether it has answered at once. If not, the batches are copied, and `answered_later` is called then."""
        at_once = True

        def done(codes: "dict[TopicPartition, ErrorCode]") -> None:
            self._codes = codes
            if not at_once:
                answered_later()

        transactions, header = self._broker.transactions, self._waiting[0].header
        ask = transactions.add_partitions_for_produce if self.version >= FIRST_THAT_ADDS else transactions.verify
        wanted = dict.fromkeys(part.partition.topic_partition for part in self._waiting)
        assert self.transactional_id is not None
        ask(self.transactional_id, header.producer_id, header.producer_epoch, wanted, done)
        at_once = False
        if self._codes is not None:
            return True
        for part in self.parts():
            self.own(part)
        return False

    def first_batches(self) -> "FirstBatches | None":
        """What lets first batches of transactions into the only partition of the request; None if the coordinator has to be asked."""
        if self.version >= FIRST_THAT_ADDS:
            return None
        ((_, (part,)),) = self.topics
        assert self.transactional_id is not None
        return FirstBatches(self._broker.transactions, self.transactional_id, part.partition)

    # Before the question

    def _refuse_two_producers(self) -> None:
        """A request has batches of one producer only."""
        parts = [part for part in self.parts() if part.error is None and part.header.is_transactional]
        producers = {(part.header.producer_id, part.header.producer_epoch) for part in parts}
        if len(producers) > 1:
            refusal = PeerError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {self.transactional_id!r}: batches of producers {sorted(producers)} in one request",
            )
            for part in self.parts():
                part.error = part.error or refusal

    def _begin(self, part: TransactionalPart, now_ms: int) -> bool:
        """Whether the coordinator has to be asked for this batch."""
        if not part.header.is_transactional:
            return False
        try:
            bumps_epoch = self.version >= FIRST_THAT_ADDS
            part.verification = part.partition.log.begin_verification(part.header, now_ms, bumps_epoch=bumps_epoch)
        except PeerError as error:
            part.error = error.with_traceback(None)  # whose frames refer to the part
        return part.verification is not None

    # After the answer

    def _check(self, topic: bytes, part: ProducePart) -> None:
        """A batch may be appended now, as far as the coordinator is concerned. PeerError."""
        super()._check(topic, part)
        assert isinstance(part, TransactionalPart)
        if part.verification is not None:
            assert self._codes is not None, "the coordinator was asked"
            code = self._codes.get(part.partition.topic_partition, ErrorCode.NONE)
            if code is not ErrorCode.NONE:
                raise self._refusal(part, code)

    def _refusal(self, part: ProducePart, code: ErrorCode) -> PeerError:
        if code not in _AWAY and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            part.partition.log.end_verification(part.header.producer_id)
        return PeerError(
            self._answered(code),
            f"{part.partition.topic_partition}: the coordinator of transactional id {self.transactional_id!r} said {code.name}"
            f" to producer {part.header.producer_id} of epoch {part.header.producer_epoch}",
        )

    def _answered(self, code: ErrorCode) -> ErrorCode:
        """The code for the producer."""
        if code in _AWAY or (code is ErrorCode.CONCURRENT_TRANSACTIONS and self.version < FIRST_THAT_ADDS):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if code is ErrorCode.TRANSACTION_ABORTABLE and self.version < FIRST_WITH_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return code
