"""OffsetForLeaderEpoch (key 23): tells where a leader epoch ends in the log."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string


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
