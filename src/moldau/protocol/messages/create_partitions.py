"""CreatePartitions (key 37): adds partitions to topics."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, message, string


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
