"""Metadata (key 3): lists brokers, topics, leaders, and may create topics.

In version 0 an empty list asks for all topics, later null does. Topic ids come with version 10.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, message, string, uuid


@message
class MetadataRequestTopic:
    """A topic by name, from version 12 also by id."""

    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


@message
class MetadataRequest:
    """Which topics are wanted, and what else to tell."""

    API: ClassVar = ApiKey.METADATA

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@message
class MetadataResponseBroker:
    """One broker and where it is reached."""

    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", ignorable=True)


@message
class MetadataResponsePartition:
    """One partition: its leader and its replicas."""

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", -1, ignorable=True)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    offline_replicas: list[int] = array(int32, "5+", ignorable=True)


@message
class MetadataResponseTopic:
    """One topic and its partitions."""

    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", -2147483648)


@message
class MetadataResponse:
    """The cluster as this broker knows it."""

    API: ClassVar = ApiKey.METADATA

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", ignorable=True)
    controller_id: int = int32("1+", -1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", -2147483648)
    error_code: int = int16("13+", ignorable=True)
