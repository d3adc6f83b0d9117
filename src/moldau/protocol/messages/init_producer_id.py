"""InitProducerId (key 22): gives an idempotent or transactional producer its id and epoch.

Version 3 also raises the epoch of an id that the producer has.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import int16, int32, int64, message, string


@message
class InitProducerIdRequest:
    """The transactional id, if there is one."""

    API: ClassVar = ApiKey.INIT_PRODUCER_ID

    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", -1)
    producer_epoch: int = int16("3+", -1)


@message
class InitProducerIdResponse:
    """The producer's id and epoch."""

    API: ClassVar = ApiKey.INIT_PRODUCER_ID

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", -1)
    producer_epoch: int = int16("0+")
