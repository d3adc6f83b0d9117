"""Fetch (key 1): reads record batches of partitions.

Version 7 brings fetch sessions, 10 zstd, 11 the rack, 12 is the first flexible one, 13 names topics by id only, 15 moves the
replica into a tagged field.
"""

from typing import ClassVar

from moldau.ports.filesystem import Bytes
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, int64, message, record_bytes, string, struct, uuid


@message
class ReplicaState:
    """Which follower asks."""

    replica_id: int = int32("15+", -1)
    replica_epoch: int = int64("15+", -1)


@message
class FetchPartition:
    """One partition and where to start reading."""

    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", -1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", -1, ignorable=True)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: bytes = uuid("17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", 9223372036854775807, tag=1, ignorable=True)


@message
class FetchTopic:
    """Partitions of one topic to read."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


@message
class ForgottenTopic:
    """Partitions to take out of the fetch session."""

    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = array(int32, "7+")


@message
class FetchRequest:
    """What to read, how much, and how long to wait for it."""

    API: ClassVar = ApiKey.FETCH

    cluster_id: str | None = string("12+", nullable="12+", tag=0, ignorable=True)
    replica_id: int = int32("0-14", -1)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", 2147483647, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", -1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


@message
class EpochEndOffset:
    """Where the leader's log ends for the epoch at which the reader's log differs."""

    epoch: int = int32("12+", -1)
    end_offset: int = int64("12+", -1)


@message
class LeaderIdAndEpoch:
    """Who leads the partition now, sent with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH."""

    leader_id: int = int32("12+", -1)
    leader_epoch: int = int32("12+", -1)


@message
class SnapshotId:
    """A snapshot to read instead; only for KRaft's own log."""

    end_offset: int = int64("0+", -1)
    epoch: int = int32("0+", -1)


@message
class AbortedTransaction:
    """A transaction whose records a reader of committed records leaves out."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@message
class PartitionData:
    """Batches and offsets of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", -1, ignorable=True)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, "4+", nullable="4+", ignorable=True)
    preferred_read_replica: int = int32("11+", -1)
    records: Bytes | None = record_bytes("0+", nullable="0+")


@message
class FetchableTopicResponse:
    """Answers for partitions of one topic."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


@message
class NodeEndpoint:
    """Where a new leader is reached."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+")


@message
class FetchResponse:
    """The batches read, by partition."""

    API: ClassVar = ApiKey.FETCH

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
