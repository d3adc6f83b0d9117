"""EndTxn (key 26): commits or aborts a transaction.

Version 5 raises the producer's epoch and answers with it (KIP-890).
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import boolean, int16, int32, int64, message, string


@message
class EndTxnRequest:
    """Which transaction, and how it ends."""

    API: ClassVar = ApiKey.END_TXN

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@message
class EndTxnResponse:
    """Whether it is done."""

    API: ClassVar = ApiKey.END_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", -1, ignorable=True)
    producer_epoch: int = int16("5+", -1, ignorable=True)
