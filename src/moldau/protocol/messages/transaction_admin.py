"""Transactions, seen and ended from outside.

* DescribeTransactions (key 65): tells the state of transactions.
* ListTransactions (key 66): lists the transactions that a broker coordinates. Version 1 filters by how long they have been running, 2 by
  a pattern of the transactional id.
* DescribeProducers (key 61): tells which producers a partition knows.
* WriteTxnMarkers (key 27): the transaction coordinator has leaders write the end of transactions.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, int64, message, string


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
class DescribedTransaction:
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
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction, "0+")


@message
class ListTransactionsRequest:
    """The filters; empty for all."""

    API: ClassVar = ApiKey.LIST_TRANSACTIONS

    state_filters: list[str] = array(string, "0+")
    producer_id_filters: list[int] = array(int64, "0+")
    duration_filter: int = int64("1+", -1)
    transactional_id_pattern: str | None = string("2+", nullable="2+")


@message
class ListedTransactionState:
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
    transaction_states: list[ListedTransactionState] = array(ListedTransactionState, "0+")


@message
class TopicRequest:
    """Partitions of one topic."""

    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


@message
class DescribeProducersRequest:
    """Which partitions."""

    API: ClassVar = ApiKey.DESCRIBE_PRODUCERS

    topics: list[TopicRequest] = array(TopicRequest, "0+")


@message
class ProducerState:
    """What the partition remembers of one producer."""

    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", -1)
    last_timestamp: int = int64("0+", -1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", -1)


@message
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState, "0+")


@message
class TopicResponse:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[PartitionResponse] = array(PartitionResponse, "0+")


@message
class DescribeProducersResponse:
    """Producers by partition."""

    API: ClassVar = ApiKey.DESCRIBE_PRODUCERS

    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = array(TopicResponse, "0+")


@message
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


@message
class WritableTxnMarker:
    """One transaction, how it ended, and where to write that."""

    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+", ignorable=True)
    state_partition: int = int32("1+", -1, tag=10000, ignorable=True)
    """The partition of ``__transaction_state`` whose leader sends it, in the leader epoch `coordinator_epoch`; -1 if a client does."""


@message
class WriteTxnMarkersRequest:
    """Markers to write."""

    API: ClassVar = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")
    sender_id: int = int32("1+", -1, tag=10000, ignorable=True)
    """The broker that sends it, if one does."""
    sender_epoch: int = int64("1+", tag=10001, ignorable=True)
    """Of its registration."""
    sequence: int = int64("1+", tag=10002, ignorable=True)
    """Grows with each request of a broker, so that one of a lost connection is not carried out after later ones."""


@message
class WritableTxnMarkerPartitionResult:
    """Whether the marker was written to one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class WritableTxnMarkerTopicResult:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


@message
class WritableTxnMarkerResult:
    """Answers for one transaction."""

    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


@message
class WriteTxnMarkersResponse:
    """Answers by producer id."""

    API: ClassVar = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")
