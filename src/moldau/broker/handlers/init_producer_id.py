"""InitProducerId: an id and an epoch for a producer, idempotent or transactional."""

import logging
from typing import TYPE_CHECKING

from moldau.broker.request import Reply, Request
from moldau.model.errors import CoordinationError, ErrorCode
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

_LOG = logging.getLogger(__name__)

FIRST_WITH_FENCED = 4
"""Clients before know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""


def handle(broker: "Broker", request: InitProducerIdRequest, context: Request, reply: Reply) -> Steps | None:
    """Without a transactional id a new id with epoch 0, also for a producer that had one: it has nothing to carry on.

    With one see :meth:`moldau.broker.transactions.coordinator.TransactionCoordinator.init_producer_id`. INVALID_REQUEST also for an id
    without its epoch, or the reverse.

    Where a block of ids is needed while the store of metadata is busy, the steps wait for it.
    """
    if broker.producer_ids.is_ready:
        _handle(broker, request, context, reply)
        return None
    return _handle_when_ready(broker, request, context, reply)


def _handle_when_ready(broker: "Broker", request: InitProducerIdRequest, context: Request, reply: Reply) -> Steps:
    yield from broker.producer_ids.ready()
    _handle(broker, request, context, reply)


def _handle(broker: "Broker", request: InitProducerIdRequest, context: Request, reply: Reply) -> None:
    def answer(code: ErrorCode, producer_id: int, epoch: int) -> None:
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        reply(InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

    if (request.producer_id == -1) != (request.producer_epoch == -1):
        answer(ErrorCode.INVALID_REQUEST, -1, -1)
    elif request.transactional_id is None:
        _without_transactions(broker, reply)
    else:
        from moldau.broker.transactions.events import Init

        wanted = Init(answer, request.transaction_timeout_ms, request.producer_id, request.producer_epoch)
        broker.transactions.init_producer_id(request.transactional_id, wanted)


def _without_transactions(broker: "Broker", reply: Reply) -> None:
    try:
        producer_id = broker.producer_ids.next()
    except CoordinationError as error:
        _LOG.error("no producer id: error=%s", error)
        reply(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


HANDLERS = {ApiKey.INIT_PRODUCER_ID: handle}
