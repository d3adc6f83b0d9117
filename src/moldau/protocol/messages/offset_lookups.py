"""Offsets of a log, looked up.

* ListOffsets (key 2): looks up offsets by time or by name. Timestamps below zero are names: -1 latest, -2 earliest, -3 with the largest
  timestamp (from version 7), -4 earliest local (8), -5 latest tiered (9), -6 earliest pending upload (11).
* OffsetForLeaderEpoch (key 23): tells where a leader epoch ends in the log.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, int64, message, string


@message
class ListOffsetsPartition:
    """One partition and the time or name to look up."""

    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", -1, ignorable=True)
    timestamp: int = int64("0+")


@message
class ListOffsetsTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


@message
class ListOffsetsRequest:
    """Which offsets are wanted."""

    API: ClassVar = ApiKey.LIST_OFFSETS

    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


@message
class ListOffsetsPartitionResponse:
    """The offset found in one partition and its timestamp; -1 for none."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", -1)
    offset: int = int64("1+", -1)
    leader_epoch: int = int32("4+", -1)


@message
class ListOffsetsTopicResponse:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


@message
class ListOffsetsResponse:
    """Offsets by partition."""

    API: ClassVar = ApiKey.LIST_OFFSETS

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")


@message
class OffsetForLeaderPartition:
    """One partition and the epoch asked for."""

    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", -1, ignorable=True)
    leader_epoch: int = int32("0+")


@message
class OffsetForLeaderTopic:
    """Partitions of one topic."""

    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


@message
class OffsetForLeaderEpochRequest:
    """Which epochs; `replica_id` -1 is a consumer, -2 a tool."""

    API: ClassVar = ApiKey.OFFSET_FOR_LEADER_EPOCH

    replica_id: int = int32("3+", -2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


@message
class EpochEndOffset:
    """The largest epoch up to the one asked for, and the offset after its last record."""

    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", -1, ignorable=True)
    end_offset: int = int64("0+", -1)


@message
class OffsetForLeaderTopicResult:
    """Answers for partitions of one topic."""

    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


@message
class OffsetForLeaderEpochResponse:
    """End offsets by partition."""

    API: ClassVar = ApiKey.OFFSET_FOR_LEADER_EPOCH

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
