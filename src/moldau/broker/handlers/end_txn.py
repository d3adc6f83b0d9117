"""EndTxn: commits or aborts. From version 5 on the producer is given the epoch of its next transaction (KIP-890)."""

from typing import TYPE_CHECKING

from moldau.broker.request import Reply, Request
from moldau.broker.transactions.events import End
from moldau.broker.transactions.transaction import EPOCH_PER_TRANSACTION, OLD_PROTOCOL
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

FIRST_WITH_FENCED = 2
"""Clients before know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""
FIRST_WITH_EPOCHS = 5


def handle(broker: "Broker", request: EndTxnRequest, context: Request, reply: Reply) -> None:
    """Answered when the outcome stands in all partitions, or else stands for sure."""

    def answer(code: ErrorCode, producer_id: int, epoch: int) -> None:
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        reply(EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

    protocol = EPOCH_PER_TRANSACTION if context.api_version >= FIRST_WITH_EPOCHS else OLD_PROTOCOL
    wanted = End(answer, request.producer_id, request.producer_epoch, request.committed, protocol, context.channel.number)
    broker.transactions.end(request.transactional_id, wanted)


HANDLERS = {ApiKey.END_TXN: handle}
