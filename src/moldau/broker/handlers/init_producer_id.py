"""InitProducerId: an id for an idempotent producer. With a transactional id: COORDINATOR_NOT_AVAILABLE, for there is none yet."""

import logging
from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.broker.dispatch import Reply
from moldau.model.errors import CoordinationError, ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

_LOG = logging.getLogger(__name__)


def handle(broker: "Broker", request: InitProducerIdRequest, context: RequestContext, reply: Reply) -> None:
    """A new id with epoch 0, also for a producer that had one: an id without a transactional id has nothing to carry on."""
    if request.transactional_id is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
        reply(InitProducerIdResponse(error_code=code))
        return
    try:
        producer_id = broker.producer_ids.next()
    except CoordinationError as error:
        _LOG.error("no producer id: error=%s", error)
        reply(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


HANDLERS = {ApiKey.INIT_PRODUCER_ID: handle}
