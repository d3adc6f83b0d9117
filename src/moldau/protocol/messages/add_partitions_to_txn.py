"""AddPartitionsToTxn (key 24): takes partitions into a transaction.

Versions from 4 are for brokers: several transactions at once, and verifying instead of adding.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, int64, message, string


@message
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message
class AddPartitionsToTxnTransaction:
    """What to add to, or to verify in, one transaction."""

    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


@message
class AddPartitionsToTxnRequest:
    """One transaction up to version 3, any number later."""

    API: ClassVar = ApiKey.ADD_PARTITIONS_TO_TXN

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@message
class AddPartitionsToTxnPartitionResult:
    """What became of one partition."""

    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


@message
class AddPartitionsToTxnTopicResult:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult, "0+")


@message
class AddPartitionsToTxnResult:
    """Answers for one transaction."""

    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


@message
class AddPartitionsToTxnResponse:
    """Answers by topic up to version 3, by transaction later."""

    API: ClassVar = ApiKey.ADD_PARTITIONS_TO_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")
