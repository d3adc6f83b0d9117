"""AddOffsetsToTxn (key 25): takes the offsets of a group into a transaction."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import int16, int32, int64, message, string


@message
class AddOffsetsToTxnRequest:
    """Which group, which transaction."""

    API: ClassVar = ApiKey.ADD_OFFSETS_TO_TXN

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@message
class AddOffsetsToTxnResponse:
    """Whether it is done."""

    API: ClassVar = ApiKey.ADD_OFFSETS_TO_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
