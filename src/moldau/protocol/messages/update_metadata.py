"""UpdateMetadata (key 6): the controller tells every broker what the cluster looks like.

Versions as of Kafka 3.9. Version 5 groups partitions by topic, 6 is the first flexible one, 7 brings topic ids.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, int64, message, string, uuid


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


@message
class UpdateMetadataResponse:
    """Whether it was taken."""

    API: ClassVar = ApiKey.UPDATE_METADATA

    error_code: int = int16("0+")
