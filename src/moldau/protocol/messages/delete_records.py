"""DeleteRecords (key 21): deletes the records before an offset."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string


@message
class DeleteRecordsPartition:
    """One partition and its new first offset; -1 stands for the high watermark."""

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
