"""OffsetCommit (key 8): a group stores how far it has read.

Version 9 also serves members of the newer group protocol (KIP-848), 10 names topics by id.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string, uuid


@message
class OffsetCommitRequestPartition:
    """The offset to read next in one partition, with text of the member's own."""

    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", -1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@message
class OffsetCommitRequestTopic:
    """Offsets in partitions of one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


@message
class OffsetCommitRequest:
    """What a member of a group commits."""

    API: ClassVar = ApiKey.OFFSET_COMMIT

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", -1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+")
    retention_time_ms: int = int64("2-4", -1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


@message
class OffsetCommitResponsePartition:
    """Whether one offset was stored."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetCommitResponseTopic:
    """Answers for partitions of one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


@message
class OffsetCommitResponse:
    """Errors by partition."""

    API: ClassVar = ApiKey.OFFSET_COMMIT

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")
