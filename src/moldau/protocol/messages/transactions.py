"""Requests of a transactional producer: AddPartitionsToTxn (key 24), AddOffsetsToTxn (25), EndTxn (26) and TxnOffsetCommit (28).

AddPartitionsToTxn: versions from 4 are for brokers, several transactions at once, and verifying instead of adding. EndTxn: version 5 raises
the producer's epoch and returns it (KIP-890). TxnOffsetCommit: version 3 fences members of the group (KIP-447), 5 takes the group into the
transaction implicitly.
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


@message
class AddOffsetsToTxnRequest:
    """Which group, which transaction."""

    API: ClassVar = ApiKey.ADD_OFFSETS_TO_TXN

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@message
class AddOffsetsToTxnResponse:
    """Whether it is done."""

    API: ClassVar = ApiKey.ADD_OFFSETS_TO_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@message
class EndTxnRequest:
    """Which transaction, and how it ends."""

    API: ClassVar = ApiKey.END_TXN

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@message
class EndTxnResponse:
    """Whether it is done."""

    API: ClassVar = ApiKey.END_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", -1, ignorable=True)
    producer_epoch: int = int16("5+", -1, ignorable=True)


@message
class TxnOffsetCommitRequestPartition:
    """The offset to read next in one partition, with text of the member's own."""

    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", -1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@message
class TxnOffsetCommitRequestTopic:
    """Offsets in partitions of one topic."""

    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")


@message
class TxnOffsetCommitRequest:
    """What a transactional producer commits for a group."""

    API: ClassVar = ApiKey.TXN_OFFSET_COMMIT

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", -1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


@message
class TxnOffsetCommitResponsePartition:
    """Whether one offset was stored."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class TxnOffsetCommitResponseTopic:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, "0+")


@message
class TxnOffsetCommitResponse:
    """Errors by partition."""

    API: ClassVar = ApiKey.TXN_OFFSET_COMMIT

    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")
