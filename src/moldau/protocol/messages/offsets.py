"""Offsets that groups store.

* OffsetCommit (key 8): a group stores how far it has read. Version 9 also serves members of the newer group protocol (KIP-848), 10 names
  topics by id.
* OffsetFetch (key 9): reads the offsets that a group stored. From version 2 null instead of topics asks for all, 7 waits for transactions
  that are still open, 8 asks for several groups at once, 10 names topics by id.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, int64, message, string, uuid


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


@message
class OffsetFetchRequestTopic:
    """Partitions of one topic, before version 8."""

    name: str = string("0-7")
    partition_indexes: list[int] = array(int32, "0-7")


@message
class OffsetFetchRequestTopics:
    """Partitions of one topic."""

    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(int32, "8+")


@message
class OffsetFetchRequestGroup:
    """One group and what is wanted of it."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", ignorable=True)
    member_epoch: int = int32("9+", -1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@message
class OffsetFetchRequest:
    """Whose offsets are wanted."""

    API: ClassVar = ApiKey.OFFSET_FETCH

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@message
class OffsetFetchResponsePartition:
    """The offset stored for one partition, before version 8."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", -1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@message
class OffsetFetchResponseTopic:
    """Offsets in partitions of one topic, before version 8."""

    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@message
class OffsetFetchResponsePartitions:
    """The offset stored for one partition; -1 for none."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", -1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponseTopics:
    """Offsets in partitions of one topic."""

    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@message
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponse:
    """Offsets by group, topic and partition."""

    API: ClassVar = ApiKey.OFFSET_FETCH

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
