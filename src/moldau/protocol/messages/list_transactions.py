"""ListTransactions (key 66): lists the transactions that a broker coordinates.

Version 1 filters by how long they have been running, 2 by a pattern of the transactional id.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string


@message
class ListTransactionsRequest:
    """The filters; empty for all."""

    API: ClassVar = ApiKey.LIST_TRANSACTIONS

    state_filters: list[str] = array(string, "0+")
    producer_id_filters: list[int] = array(int64, "0+")
    duration_filter: int = int64("1+", -1)
    transactional_id_pattern: str | None = string("2+", nullable="2+")


@message
class TransactionState:
    """One transaction."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


@message
class ListTransactionsResponse:
    """The transactions, and which filters were not understood."""

    API: ClassVar = ApiKey.LIST_TRANSACTIONS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(string, "0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")
