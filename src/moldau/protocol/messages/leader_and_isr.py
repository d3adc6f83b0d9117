"""LeaderAndIsr (key 4): the controller makes a broker leader or follower of partitions.

Versions as of Kafka 3.9. Version 2 groups partitions by topic, 4 is the first flexible one, 5 brings topic ids.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, int64, message, string, uuid


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
class LeaderAndIsrResponse:
    """One error for all, and one for each partition."""

    API: ClassVar = ApiKey.LEADER_AND_ISR

    error_code: int = int16("0+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")
