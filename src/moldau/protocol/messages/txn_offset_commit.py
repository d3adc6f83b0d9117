"""TxnOffsetCommit (key 28): stores offsets of a group as part of a transaction.

Version 3 fences members of the group (KIP-447), 5 takes the group into the transaction implicitly.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string


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
