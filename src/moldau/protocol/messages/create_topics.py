"""CreateTopics (key 19): creates topics.

From version 4 counts of -1 stand for the broker's defaults, 5 answers with the configs, 7 with the topic id.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string, uuid


@message
class CreatableReplicaAssignment:
    """Brokers chosen by hand for one partition."""

    partition_index: int = int32("0+")
    broker_ids: list[int] = array(int32, "0+")


@message
class CreatableTopicConfig:
    """A config that differs from the default."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@message
class CreatableTopic:
    """One topic to create."""

    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


@message
class CreateTopicsRequest:
    """The topics, and whether to only check them."""

    API: ClassVar = ApiKey.CREATE_TOPICS

    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", 60000)
    validate_only: bool = boolean("1+")


@message
class CreatableTopicConfigs:
    """One config of the new topic."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", -1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@message
class CreatableTopicResult:
    """What became of one topic."""

    name: str = string("0+")
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="1+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", -1, ignorable=True)
    replication_factor: int = int16("5+", -1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+", ignorable=True)


@message
class CreateTopicsResponse:
    """One answer for each topic."""

    API: ClassVar = ApiKey.CREATE_TOPICS

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")
