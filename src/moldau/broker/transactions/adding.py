"""Adding partitions to a transaction, and asking whether they are in it. Values in, values out."""

from collections.abc import Iterable

from moldau.broker.transactions.events import Add
from moldau.broker.transactions.partitions import Partitions
from moldau.broker.transactions.states import State
from moldau.broker.transactions.transaction import Transaction
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition

VALUE_BYTES_MAX = 900_000
"""Most bytes that the names and numbers of a transaction's partitions may take where it is stored: what ends the transaction holds them
once more and has to fit into a batch of the internal topic (`max.message.bytes`, 1,048,588 unless set otherwise).
"""


def partitions_with(current: Transaction, wanted: Add) -> Partitions:
    """Those that the transaction then has; the same object as now if it has them all."""
    return current.partitions | wanted.partitions if current.state is State.ONGOING else wanted.partitions


def added(current: Transaction, wanted: Add, partitions_max: int, now_ms: int) -> Transaction | ErrorCode:
    """What to store for the request, or the answer: NONE when all partitions are in the transaction already.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; POLICY_VIOLATION for more partitions than a transaction may have.
    """
    if wanted.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if wanted.epoch != current.epoch:
        return ErrorCode.PRODUCER_FENCED
    is_open = current.state is State.ONGOING
    partitions = partitions_with(current, wanted)
    if is_open and partitions is current.partitions:
        return ErrorCode.NONE
    if len(partitions) > partitions_max or partitions.encoded_bytes > VALUE_BYTES_MAX:
        return ErrorCode.POLICY_VIOLATION
    return current._replace(
        previous_producer_id=current.producer_id,
        state=State.ONGOING,
        partitions=partitions,
        start_ms=current.start_ms if is_open else now_ms,
        updated_ms=now_ms,
        client_version=wanted.client_version,
    )


def verified(
    current: Transaction, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode] | ErrorCode:
    """For each partition NONE or TRANSACTION_ABORTABLE (it is not in the transaction), or one error for all of them (KIP-890)."""
    if current.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    if current.state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    codes = dict.fromkeys(partitions, ErrorCode.NONE)
    codes.update(dict.fromkeys(current.partitions.missing(codes), ErrorCode.TRANSACTION_ABORTABLE))
    return codes
