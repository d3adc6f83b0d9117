"""FindCoordinator: there is no coordinator for groups or transactions yet, and the answer says that trying again may help."""

from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.dispatch import Reply

FIRST_WITH_KEYS = 4
NOBODY = -1
KEY_TYPES = (0, 1)
"""Groups, transactions."""
MESSAGES = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator is available yet",
    ErrorCode.INVALID_REQUEST: "coordinators look after groups (0) and transactional ids (1)",
}


def handle(broker: "Broker", request: FindCoordinatorRequest, context: RequestContext, reply: "Reply") -> None:
    """COORDINATOR_NOT_AVAILABLE for each key, INVALID_REQUEST for a key of another kind."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.key_type in KEY_TYPES else ErrorCode.INVALID_REQUEST
    message = MESSAGES[code]
    if context.api_version < FIRST_WITH_KEYS:
        reply(FindCoordinatorResponse(error_code=code, error_message=message, node_id=NOBODY, port=NOBODY))
        return
    reply(FindCoordinatorResponse(coordinators=[Coordinator(key, NOBODY, "", NOBODY, code, message) for key in request.coordinator_keys]))


HANDLERS = {ApiKey.FIND_COORDINATOR: handle}
