"""What the controller sends to brokers, and is asked by them. Versions as of Kafka 3.9.

* LeaderAndIsr (key 4): the controller makes a broker leader or follower of partitions. Version 2 groups partitions by topic, 4 is the
  first flexible one, 5 brings topic ids.
* StopReplica (key 5): the controller makes a broker give up partitions. Version 1 groups partitions by topic, 2 is the first flexible
  one, 3 adds the leader epoch.
* UpdateMetadata (key 6): the controller tells every broker what the cluster looks like. Version 5 groups partitions by topic, 6 is the
  first flexible one, 7 brings topic ids.
* ControlledShutdown (key 7): a broker asks the controller to move its leaderships away. Version 0 comes with a request header that has no
  client id.

Tagged fields from number 10000 on are ours, and skipped by any other reader: what Kafka's messages cannot say.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, int64, message, string, struct, uuid


@message
class LogCut:
    """Ours: no record of this epoch or an earlier one is in the log at that offset or after it."""

    epoch: int = int32("0+", -1)
    offset: int = int64("0+", -1)


@message
class LeaderAndIsrPartitionState:
    """One partition: leader, epochs, replicas. Before version 2 it names its topic itself."""

    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(int32, "0+")
    partition_epoch: int = int32("0+")
    replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "3+", ignorable=True)
    removing_replicas: list[int] = array(int32, "3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")
    elr: list[int] = array(int32, "4+", tag=10000, ignorable=True)
    """Eligible leader replicas (KIP-966)."""
    last_known_elr: list[int] = array(int32, "4+", tag=10001, ignorable=True)
    is_mirror: bool = boolean("4+", tag=10002, ignorable=True)
    cut: LogCut | None = struct(LogCut, "4+", tag=10003, ignorable=True)
    """What the log must not have; null for nothing."""


@message
class LeaderAndIsrTopicState:
    """Partitions of one topic."""

    topic_name: str = string("2+")
    topic_id: bytes = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


@message
class LeaderAndIsrLiveLeader:
    """A broker that leads one of these partitions, and where it is reached."""

    broker_id: int = int32("0+")
    host_name: str = string("0+")
    port: int = int32("0+")


@message
class LeaderAndIsrRequest:
    """What the receiver leads and follows from now on, fenced by the controller's epoch."""

    API: ClassVar = ApiKey.LEADER_AND_ISR

    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("2+", -1, ignorable=True)
    type: int = int8("5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1")
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader, "0+")
    sequence: int = int64("4+", tag=10000, ignorable=True)
    """Grows with each request of a controller to a broker, so that one of a lost connection is not applied after later ones."""


@message
class LeaderAndIsrPartitionError:
    """What became of one partition."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class LeaderAndIsrTopicError:
    """Errors by partition of one topic."""

    topic_id: bytes = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


@message
class LeaderAndIsrFloor:
    """A partition whose log knows a later leader epoch than was sent."""

    topic_name: str = string("4+")
    partition_index: int = int32("4+")
    leader_epoch: int = int32("4+")


@message
class LeaderAndIsrResponse:
    """One error for all, and one for each partition."""

    API: ClassVar = ApiKey.LEADER_AND_ISR

    error_code: int = int16("0+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")
    floors: list[LeaderAndIsrFloor] = array(LeaderAndIsrFloor, "4+", tag=10000, ignorable=True)


@message
class StopReplicaPartitionV0:
    """One partition, in version 0."""

    topic_name: str = string("0")
    partition_index: int = int32("0")


@message
class StopReplicaTopicV1:
    """Partitions of one topic, in versions 1 and 2."""

    name: str = string("1-2")
    partition_indexes: list[int] = array(int32, "1-2")


@message
class StopReplicaPartitionState:
    """One partition, its epoch, and whether its log goes too."""

    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", -1)
    delete_partition: bool = boolean("3+")


@message
class StopReplicaTopicState:
    """Partitions of one topic, from version 3."""

    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")
    topic_id: bytes = uuid("3+", tag=10000, ignorable=True)
    partitions_total: int = int32("3+", -1, tag=10001, ignorable=True)
    """How many partitions the topic has, where only some of them are meant; else -1."""


@message
class StopReplicaRequest:
    """Replicas to stop, fenced by the controller's epoch."""

    API: ClassVar = ApiKey.STOP_REPLICA

    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("1+", -1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")
    deletes_topics: bool = boolean("3+", tag=10000, ignorable=True)
    """Also of topics without partitions, of which nothing but the name is known."""
    sequence: int = int64("3+", tag=10001, ignorable=True)
    """As in LeaderAndIsr."""


@message
class StopReplicaPartitionError:
    """What became of one partition."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class StopReplicaResponse:
    """One error for all, and one for each partition."""

    API: ClassVar = ApiKey.STOP_REPLICA

    error_code: int = int16("0+")
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError, "0+")


@message
class UpdateMetadataPartitionState:
    """One partition: leader, epochs, replicas. Before version 5 it names its topic itself."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(int32, "0+")
    zk_version: int = int32("0+")
    replicas: list[int] = array(int32, "0+")
    offline_replicas: list[int] = array(int32, "4+", ignorable=True)
    elr: list[int] = array(int32, "6+", tag=10000, ignorable=True)
    """Eligible leader replicas (KIP-966)."""
    last_known_elr: list[int] = array(int32, "6+", tag=10001, ignorable=True)
    is_mirror: bool = boolean("6+", tag=10002, ignorable=True)
    cut: LogCut | None = struct(LogCut, "6+", tag=10003, ignorable=True)


@message
class UpdateMetadataTopicState:
    """Partitions of one topic."""

    topic_name: str = string("5+")
    topic_id: bytes = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


@message
class UpdateMetadataEndpoint:
    """One listener of a broker."""

    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


@message
class UpdateMetadataBroker:
    """A live broker and where it is reached; version 0 knows one address only."""

    id: int = int32("0+")
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="2+", ignorable=True)


@message
class UpdateMetadataAssignedTopic:
    """Ours: a topic that exists, and partitions of which the receiver has a replica."""

    topic_id: bytes = uuid("6+")
    partitions: list[int] = array(int32, "6+")


@message
class UpdateMetadataRequest:
    """Partitions that changed, and all live brokers."""

    API: ClassVar = ApiKey.UPDATE_METADATA

    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("5+", -1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "0-4")
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker, "0+")
    deleted_topics: list[str] = array(string, "6+", tag=10000, ignorable=True)
    sequence: int = int64("6+", tag=10001, ignorable=True)
    """As in LeaderAndIsr."""
    assigned_topics: list[UpdateMetadataAssignedTopic] = array(UpdateMetadataAssignedTopic, "6+", tag=10002, ignorable=True)
    """All topics that exist, where `type` says that this is all."""


@message
class UpdateMetadataResponse:
    """Whether it was taken."""

    API: ClassVar = ApiKey.UPDATE_METADATA

    error_code: int = int16("0+")


@message
class ControlledShutdownRequest:
    """The broker that is about to stop; or, where another broker reports it, that one does not get what it fetches there."""

    API: ClassVar = ApiKey.CONTROLLED_SHUTDOWN

    broker_id: int = int32("0+")
    broker_epoch: int = int64("2+", -1, ignorable=True)
    reporter_id: int = int32("3+", -1, tag=10000)
    reporter_epoch: int = int64("3+", tag=10001)


@message
class RemainingPartition:
    """A partition that could not be moved."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@message
class ControlledShutdownResponse:
    """What the broker still leads; it may stop when that is nothing."""

    API: ClassVar = ApiKey.CONTROLLED_SHUTDOWN

    error_code: int = int16("0+")
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition, "0+")
