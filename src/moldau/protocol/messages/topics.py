"""Topics, as clients change them.

* CreateTopics (key 19): creates topics. From version 4 counts of -1 mean the broker's defaults, 5 answers with the configs, 7 with
  the topic id.
* DeleteTopics (key 20): deletes topics. Version 6 names them by id as well.
* CreatePartitions (key 37): adds partitions to topics.
* DeleteRecords (key 21): deletes the records before an offset.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, int64, message, string, uuid


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


@message
class DeleteTopicState:
    """A topic by name or by id."""

    name: str | None = string("6+", nullable="6+")
    topic_id: bytes = uuid("6+")


@message
class DeleteTopicsRequest:
    """Which topics."""

    API: ClassVar = ApiKey.DELETE_TOPICS

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


@message
class DeletableTopicResult:
    """What became of one topic."""

    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", ignorable=True)


@message
class DeleteTopicsResponse:
    """One answer for each topic."""

    API: ClassVar = ApiKey.DELETE_TOPICS

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")


@message
class CreatePartitionsAssignment:
    """Brokers chosen by hand for one new partition."""

    broker_ids: list[int] = array(int32, "0+")


@message
class CreatePartitionsTopic:
    """One topic and how many partitions it shall have."""

    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


@message
class CreatePartitionsRequest:
    """The topics, and whether to only check them."""

    API: ClassVar = ApiKey.CREATE_PARTITIONS

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@message
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class CreatePartitionsResponse:
    """One answer for each topic."""

    API: ClassVar = ApiKey.CREATE_PARTITIONS

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")


@message
class DeleteRecordsPartition:
    """One partition and its new first offset; -1 means the high watermark."""

    partition_index: int = int32("0+")
    offset: int = int64("0+")


@message
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


@message
class DeleteRecordsRequest:
    """What to delete."""

    API: ClassVar = ApiKey.DELETE_RECORDS

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


@message
class DeleteRecordsPartitionResult:
    """The first offset left in one partition."""

    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


@message
class DeleteRecordsTopicResult:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


@message
class DeleteRecordsResponse:
    """First offsets by partition."""

    API: ClassVar = ApiKey.DELETE_RECORDS

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
