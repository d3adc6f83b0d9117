"""StopReplica (key 5): the controller makes a broker give up partitions.

Versions as of Kafka 3.9. Version 1 groups partitions by topic, 2 is the first flexible one, 3 adds the leader epoch.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, int64, message, string


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
