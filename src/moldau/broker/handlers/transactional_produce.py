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

from typing import TYPE_CHECKING

from moldau.broker.appending import check_segment, prepare
from moldau.broker.handlers.produce import FIRST_WITH_TOPIC_IDS, ProduceOutcome, append, check_replicas, refusal_of
from moldau.model.errors import ErrorCode, PeerError, RejectedRecordsError, StorageError
from moldau.model.steps import UNFINISHED, Steps, drain

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.broker.broker import Broker
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.walked_batches import Walk
    from moldau.log.open_transactions import Verification
    from moldau.model.identity import TopicPartition
    from moldau.protocol.fast.produce import ProduceFrame, ProducePartitionResult
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
_NOTHING = memoryview(b"")


class _Part:
    """One partition of the request: why it is refused, or its batch with what stands for the question to the coordinator."""

    __slots__ = ("batch", "header", "index", "partition", "refusal", "verification", "walk")

    def __init__(self, index: int) -> None:
        self.index = index
        self.refusal: PeerError | None = None
        self.partition: HostedPartition
        self.batch = _NOTHING
        self.header: BatchHeader
        self.verification: Verification | None = None
        self.walk: Walk | None = None


class TransactionalProduce:
    """One request. The caller prepares it, has the `held` batches checked, then calls `begin`. If it `has_to_ask` then, the caller asks
    the coordinator; after that there is an outcome.
    """

    def __init__(self, broker: "Broker", request: "ProduceFrame", version: int, correlation_id: int, *, is_kept: bool = False) -> None:
        """`is_kept`: whether the memory of the batches is the request's own."""
        assert request.transactional_id is not None
        self.correlation_id = correlation_id
        self._broker = broker
        self._request = request
        self._is_kept = is_kept
        self._transactional_id = request.transactional_id
        self.acks = request.acks
        self._version = version
        self._codes: dict[TopicPartition, ErrorCode] | None = None
        self._topics: list[tuple[bytes, list[_Part]]] = []
        self._waiting: list[_Part] = []
        self.held: list[_Part] = []
        """Parts of which some have to be checked on another thread."""

    def prepare(self, now_ms: int) -> Steps:
        """Check every batch, in steps."""
        for topic, partitions in self._request.topics:
            parts: list[_Part] = []
            self._topics.append((topic, parts))
            for each in partitions:
                parts.append(self._prepare(topic, *each, now_ms))
                yield UNFINISHED
        parts = [part for _, parts in self._topics for part in parts]
        self.held = parts if any(part.walk is not None for part in parts) else []
        if self.held:
            for part in parts:
                if part.walk is None:
                    self._own(part)

    def begin(self, now_ms: int) -> Steps:
        """Find out whether the coordinator has to be asked, in steps. Nothing is held any more."""
        self.held = []
        self._refuse_two_producers()
        for _, parts in self._topics:
            for part in parts:
                if part.refusal is None and self._begin(part, now_ms):
                    self._waiting.append(part)
                yield UNFINISHED

    @property
    def has_to_ask(self) -> bool:
        """Whether a batch may begin a transaction in its partition."""
        return bool(self._waiting)

    @property
    def batch_bytes(self) -> int:
        """Memory that the batches take."""
        return sum(len(part.batch) for _, parts in self._topics for part in parts)

    def ask(self, answered_later: "Callable[[], object]") -> bool:
        """Ask the coordinator; whether it has answered at once. If not, the batches are copied, and `answered_later` is called then."""
        at_once = True

        def done(codes: "dict[TopicPartition, ErrorCode]") -> None:
            self._codes = codes
            if not at_once:
                answered_later()

        transactions, header = self._broker.transactions, self._waiting[0].header
        ask = transactions.add_partitions_for_produce if self._version >= FIRST_THAT_ADDS else transactions.verify
        wanted = dict.fromkeys(part.partition.topic_partition for part in self._waiting)
        ask(self._transactional_id, header.producer_id, header.producer_epoch, wanted, done)
        at_once = False
        if self._codes is not None:
            return True
        for _, parts in self._topics:
            for part in parts:
                self._own(part)
        return False

    def outcome(self, now_ms: int) -> ProduceOutcome:
        """Stage every batch that can be taken."""
        outcome = ProduceOutcome(self._version, self.correlation_id, self.acks, self._transactional_id)
        drain(self.stage(outcome, now_ms))
        return outcome

    def stage(self, outcome: ProduceOutcome, now_ms: int) -> Steps:
        """As `outcome`, in steps after each of which all that is staged may be written."""
        for topic, parts in self._topics:
            results: list[ProducePartitionResult] = []
            outcome.topics.append((topic, results))
            for part in parts:
                try:
                    if part.refusal is not None:
                        raise part.refusal
                    self._check(topic, part)
                    result = append(self._broker, part.partition, part.batch, part.header, now_ms, outcome)
                    outcome.appended.append((len(outcome.topics) - 1, len(results), part.partition))
                except PeerError as error:
                    named = isinstance(error, RejectedRecordsError)  # so it has a partition
                    result = outcome.refused(topic, part.index, error, part.partition if named else None)
                except StorageError as error:
                    self._broker.storage_failed(part.partition, error)
                    result = outcome.not_stored(part.index, error)
                results.append(result)
                yield UNFINISHED

    # Before the question

    def _prepare(self, topic: bytes, index: int, records: memoryview | None, now_ms: int) -> _Part:
        part, by_id = _Part(index), self._version >= FIRST_WITH_TOPIC_IDS
        try:
            refusal = refusal_of(self.acks)
            if refusal is not None:
                raise refusal
            partition = self._broker.partitions_of(topic, by_id=by_id).get(index)
            if partition is None:
                raise self._broker.missing_partition(topic, index, by_id=by_id)
            check_replicas(partition, self.acks)
            part.partition = partition
            part.batch, part.header, part.walk = prepare(
                self._broker.batch_walks, partition, records, self._version, now_ms, transactional=True, is_kept=self._is_kept
            )
        except PeerError as error:
            part.refusal = error
        return part

    def _own(self, part: _Part) -> None:
        """Take its batch out of the buffer that the next read needs."""
        if part.refusal is None and not self._is_kept:
            part.batch = memoryview(bytearray(part.batch))

    def _refuse_two_producers(self) -> None:
        """A request speaks for one producer."""
        parts = [part for _, parts in self._topics for part in parts if part.refusal is None and part.header.is_transactional]
        producers = {(part.header.producer_id, part.header.producer_epoch) for part in parts}
        if len(producers) > 1:
            refusal = PeerError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {self._transactional_id!r}: batches of producers {sorted(producers)} in one request",
            )
            for _, each in self._topics:
                for part in each:
                    part.refusal = part.refusal or refusal

    def _begin(self, part: _Part, now_ms: int) -> bool:
        """Whether the coordinator has to be asked for this batch."""
        if not part.header.is_transactional:
            return False
        try:
            bumps_epoch = self._version >= FIRST_THAT_ADDS
            part.verification = part.partition.log.begin_verification(part.header, now_ms, bumps_epoch=bumps_epoch)
        except PeerError as error:
            part.refusal = error
        return part.verification is not None

    # After the answer

    def _check(self, topic: bytes, part: _Part) -> None:
        """The batch may be appended now. PeerError."""
        partition, header = part.partition, part.header
        check_segment(partition, len(part.batch))
        if not partition.is_led:
            raise self._broker.missing_partition(topic, part.index, by_id=self._version >= FIRST_WITH_TOPIC_IDS)
        if not header.is_transactional:
            return
        if part.verification is not None:
            assert self._codes is not None, "the coordinator was asked"
            code = self._codes.get(partition.topic_partition, ErrorCode.NONE)
            if code is not ErrorCode.NONE:
                raise self._refusal(part, code)
            partition.log.check_first(header, part.verification)
        elif not partition.log.has_ongoing_transaction(header.producer_id, header.producer_epoch):
            raise PeerError(
                ErrorCode.INVALID_TXN_STATE,
                f"{partition.topic_partition}: the transaction of producer {header.producer_id} has ended while its batch was waiting",
            )

    def _refusal(self, part: _Part, code: ErrorCode) -> PeerError:
        told = self._told(code)
        if code not in _AWAY and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            part.partition.log.end_verification(part.header.producer_id)
        return PeerError(
            told,
            f"{part.partition.topic_partition}: the coordinator of transactional id {self._transactional_id!r} said {code.name}"
            f" to producer {part.header.producer_id} of epoch {part.header.producer_epoch}",
        )

    def _told(self, code: ErrorCode) -> ErrorCode:
        """What the producer is told."""
        if code in _AWAY or (code is ErrorCode.CONCURRENT_TRANSACTIONS and self._version < FIRST_THAT_ADDS):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if code is ErrorCode.TRANSACTION_ABORTABLE and self._version < FIRST_WITH_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return code
