"""OffsetDelete (key 47): deletes offsets that a group stored; never flexible."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string


@message
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = int32("0+")


@message
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


@message
class OffsetDeleteRequest:
    """Which offsets of which group."""

    API: ClassVar = ApiKey.OFFSET_DELETE

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


@message
class OffsetDeleteResponsePartition:
    """What became of one offset."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetDeleteResponseTopic:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


@message
class OffsetDeleteResponse:
    """Answers by partition."""

    API: ClassVar = ApiKey.OFFSET_DELETE

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")
