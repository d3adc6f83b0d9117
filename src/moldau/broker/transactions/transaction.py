"""What is kept of a transactional id: a value, replaced as a whole by each step once the new one is stored."""

from typing import NamedTuple

from moldau.broker.transactions.partitions import NO_PARTITIONS, Partitions
from moldau.broker.transactions.states import State

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
"""Stands only in markers and in decided transactions: no producer ever holds it, so there is always one more to fence with."""
LAST_EPOCH = EPOCH_MAX - 1
"""The last epoch that a producer is given."""
UNTIMED_MS = 2**31 - 1
"""The timeout of a transaction that another system decides (KIP-939); it is never aborted for being late."""

OLD_PROTOCOL = 0
"""The producer's epoch stays the same from one transaction to the next."""
EPOCH_PER_TRANSACTION = 2
"""``transaction.version`` 2: each end of a transaction raises the epoch (KIP-890)."""


class Transaction(NamedTuple):
    """A transactional id as it is stored. Times are in milliseconds since 1970, -1 for none.

    * `producer_id`, `epoch`: who speaks for the id now. `epoch` is -1 while a new id has not been stored.
    * `previous_producer_id`: that of the value before this one.
    * `next_producer_id`: of a decided transaction with the last epoch, the id that its producer goes on with; else -1.
    * `last_epoch`: the epoch that the same producer had before; -1 when another producer has taken over.
    * `client_version`: `EPOCH_PER_TRANSACTION` or `OLD_PROTOCOL`, of the request that led here.
    """

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    state: State
    partitions: Partitions
    start_ms: int
    updated_ms: int
    client_version: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give to a producer."""
        return self.epoch >= LAST_EPOCH

    @property
    def is_committed(self) -> bool:
        """Whether the decision is to commit."""
        return self.state is State.PREPARE_COMMIT

    def is_late(self, now_ms: int) -> bool:
        """Whether it is a transaction that has been open for longer than its producer asked for."""
        return self.state is State.ONGOING and self.timeout_ms != UNTIMED_MS and self.start_ms + self.timeout_ms < now_ms


def new_transaction(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id that is not stored yet."""
    return Transaction(
        producer_id, NO_PRODUCER_ID, NO_PRODUCER_ID, NO_EPOCH, NO_EPOCH, timeout_ms, State.EMPTY, NO_PARTITIONS, -1, now_ms, OLD_PROTOCOL
    )
