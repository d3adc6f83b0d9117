"""ControlledShutdown (key 7): a broker asks the controller to move its leaderships away.

Versions as of Kafka 3.9. Version 0 comes with a request header that has no client id.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string


@message
class ControlledShutdownRequest:
    """The broker that is about to stop."""

    API: ClassVar = ApiKey.CONTROLLED_SHUTDOWN

    broker_id: int = int32("0+")
    broker_epoch: int = int64("2+", -1, ignorable=True)


@message
class RemainingPartition:
    """A partition that could not be moved."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@message
class ControlledShutdownResponse:
    """What the broker still leads; it may stop when that is nothing."""

    API: ClassVar = ApiKey.CONTROLLED_SHUTDOWN

    error_code: int = int16("0+")
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition, "0+")
