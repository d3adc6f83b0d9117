"""InitProducerId: an id and an epoch for a producer, idempotent or transactional."""

import logging
from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.services import TransactionServices
from moldau.broker.request import Reply, Request
from moldau.model.errors import CoordinationError, ErrorCode
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from moldau.cluster.producer_ids import ProducerIds


class Services(TransactionServices, Protocol):
    """What these handlers use of the broker."""

    @property
    def producer_ids(self) -> "ProducerIds":
        """Where new ids come from."""


_LOG = logging.getLogger(__name__)

FIRST_WITH_FENCED = 4
"""Clients before know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""


def init_producer_id(services: Services, message: InitProducerIdRequest, request: Request, reply: Reply) -> Steps | None:
    """Without a transactional id a new id with epoch 0, also for a producer that had one: it has nothing to carry on.

    With one see :meth:`moldau.broker.transactions.coordinator.TransactionCoordinator.init_producer_id`. INVALID_REQUEST also for an id
    without its epoch, or the reverse.

    Where a block of ids has to be fetched first, the steps wait for it.
    """
    if services.producer_ids.is_ready:
        _handle(services, message, request, reply)
        return None
    return _handle_when_ready(services, message, request, reply)


def _handle_when_ready(services: Services, message: InitProducerIdRequest, request: Request, reply: Reply) -> Steps:
    yield from services.producer_ids.ready()
    _handle(services, message, request, reply)


def _handle(services: Services, message: InitProducerIdRequest, request: Request, reply: Reply) -> None:
    def answer(code: ErrorCode, producer_id: int, epoch: int) -> None:
        if code is ErrorCode.PRODUCER_FENCED and request.api_version < FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        reply(InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

    if (message.producer_id == -1) != (message.producer_epoch == -1):
        answer(ErrorCode.INVALID_REQUEST, -1, -1)
    elif message.transactional_id is None:
        _without_transactions(services, reply)
    else:
        from moldau.broker.transactions.events import InitProducer

        wanted = InitProducer(answer, message.transaction_timeout_ms, message.producer_id, message.producer_epoch)
        services.transactions.init_producer_id(message.transactional_id, wanted)


def _without_transactions(services: Services, reply: Reply) -> None:
    try:
        producer_id = services.producer_ids.next()
    except CoordinationError as error:
        _LOG.error("no producer id: error=%s", error)
        reply(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


HANDLERS = {
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
}
