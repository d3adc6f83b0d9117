"""What happens to a transactional id, and what the machine then wants done. A `token` is whom to answer; the machine only hands it on."""

from typing import Any, NamedTuple

from moldau.broker.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Partitions, TransactionMetadata
from moldau.model.errors import ErrorCode


class InitProducer(NamedTuple):
    """InitProducerId: a producer begins, or continues after an error; then it names the id and epoch that it had (KIP-360)."""

    token: Any
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class AddPartitions(NamedTuple):
    """Partitions come into the transaction, which may begin with them."""

    token: Any
    producer_id: int
    epoch: int
    partitions: Partitions
    client_version: int


class EndTransaction(NamedTuple):
    """EndTxn: commit or abort. `connection`: the number of the connection that it came over; later ones have higher numbers."""

    token: Any
    producer_id: int
    epoch: int
    committed: bool
    client_version: int
    connection: int = 0


class TimeoutCheck(NamedTuple):
    """It is time to look whether the transaction is late."""


class IdExpiry(NamedTuple):
    """The id has not been used for so long that it is to be forgotten."""


class TransactionLoaded(NamedTuple):
    """The coordinator has begun, with the state as it was stored."""


class TransactionStored(NamedTuple):
    """The last `StoreTransaction` is done, or `error` says why it is not."""

    error: ErrorCode = ErrorCode.NONE


class MarkersWritten(NamedTuple):
    """Every partition has the marker of the last `WriteMarkers`."""


class EffectDelayed(NamedTuple):
    """The last `WriteMarkers` or `RetryStore` will take a while: the request that waits is answered now."""


Event = (
    InitProducer
    | AddPartitions
    | EndTransaction
    | TimeoutCheck
    | IdExpiry
    | TransactionLoaded
    | TransactionStored
    | MarkersWritten
    | EffectDelayed
)


class AnswerRequest(NamedTuple):
    """Answer a request. Id and epoch are -1 where the answer has none."""

    token: Any
    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class StoreTransaction(NamedTuple):
    """Append the value, None for a tombstone; then `TransactionStored`."""

    value: TransactionMetadata | None


class RetryStore(NamedTuple):
    """As `StoreTransaction`, after a while: what is decided has to get there."""

    value: TransactionMetadata


class WriteMarkers(NamedTuple):
    """Write the outcome to every partition, however often it takes; then `MarkersWritten`. `EffectDelayed` at the first failure."""

    transaction: TransactionMetadata


class ForgetTransaction(NamedTuple):
    """The machine is done with: nothing is stored under its id."""


Effect = AnswerRequest | StoreTransaction | RetryStore | WriteMarkers | ForgetTransaction
