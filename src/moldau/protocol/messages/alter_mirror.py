"""AlterMirror (key 10000), ours: partitions become those of a mirror, or are promoted. The controller takes it."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, int64, message, string


@message
class AlterMirrorPartition:
    """What one partition is to be."""

    partition_index: int = int32("0+")
    is_mirror: bool = boolean("0+")
    cut_epoch: int = int32("0+", -1)
    """The partition's leader epoch becomes later than this, also without a cut."""
    cut_offset: int = int64("0+", -1)
    """The log must have no record of that epoch or an earlier one at this offset or after it; -1 for no cut."""


@message
class AlterMirrorTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    source: str = string("0+")
    """`mirror.source`, where partitions become a mirror's; empty: as it is."""
    partitions: list[AlterMirrorPartition] = array(AlterMirrorPartition, "0+")


@message
class AlterMirrorRequest:
    """The changes."""

    API: ClassVar = ApiKey.ALTER_MIRROR

    timeout_ms: int = int32("0+", 60000)
    topics: list[AlterMirrorTopic] = array(AlterMirrorTopic, "0+")


@message
class AlterMirrorPartitionResult:
    """What became of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class AlterMirrorTopicResult:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[AlterMirrorPartitionResult] = array(AlterMirrorPartitionResult, "0+")


@message
class AlterMirrorResponse:
    """One error for all, and one for each partition."""

    API: ClassVar = ApiKey.ALTER_MIRROR

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[AlterMirrorTopicResult] = array(AlterMirrorTopicResult, "0+")
