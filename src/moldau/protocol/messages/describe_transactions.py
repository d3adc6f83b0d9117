"""DescribeTransactions (key 65): tells the state of transactions."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string


@message
class DescribeTransactionsRequest:
    """Which transactional ids."""

    API: ClassVar = ApiKey.DESCRIBE_TRANSACTIONS

    transactional_ids: list[str] = array(string, "0+")


@message
class TopicData:
    """Partitions of one topic in a transaction."""

    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message
class TransactionState:
    """One transactional id and its present transaction."""

    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")


@message
class DescribeTransactionsResponse:
    """One answer for each transactional id."""

    API: ClassVar = ApiKey.DESCRIBE_TRANSACTIONS

    throttle_time_ms: int = int32("0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")
