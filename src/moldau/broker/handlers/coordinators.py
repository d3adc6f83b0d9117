"""FindCoordinator: there is no coordinator for groups or transactions, and the answer says that trying again may help.

Clients do try again, for ever and without a word. So the reason goes into the answer, where the version has room for it, and into our
log: one line a minute for each client id and kind of key.
"""

import logging
from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.dispatch import Reply

_LOG = logging.getLogger(__name__)

FIRST_WITH_KEYS = 4
NOBODY = -1
SHOWN_MAX = 100
"""Characters of a peer's text that a line of the log shows."""
KINDS = {
    0: ("group", "consumer groups are not available in this version; assign partitions instead"),
    1: ("transaction", "transactions are not available in this version; produce without a transactional id"),
}
"""By type of key: what it is for, and why there is no coordinator."""
NOT_A_KIND = "coordinators look after groups (0) and transactional ids (1)"


def handle(broker: "Broker", request: FindCoordinatorRequest, context: RequestContext, reply: "Reply") -> None:
    """COORDINATOR_NOT_AVAILABLE for each key, INVALID_REQUEST for a key of another kind."""
    many = context.api_version >= FIRST_WITH_KEYS
    keys = request.coordinator_keys if many else [request.key]
    code, message = ErrorCode.INVALID_REQUEST, NOT_A_KIND
    if request.key_type in KINDS:
        kind, message = KINDS[request.key_type]
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if keys and broker.coordinators_asked_for.due((context.client_id, kind), broker.clock.monotonic()):
            client, key = _shown(context.client_id or ""), _shown(keys[0])
            _LOG.warning("%s coordinator asked for: client=%s key=%s reason=%s", kind, client, key, message)
    if many:
        reply(FindCoordinatorResponse(coordinators=[Coordinator(key, NOBODY, "", NOBODY, code, message) for key in keys]))
    else:
        reply(FindCoordinatorResponse(error_code=code, error_message=message, node_id=NOBODY, port=NOBODY))


def _shown(text: str) -> str:
    """A peer's text on one line of the log, and no longer than is useful."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:SHOWN_MAX])


HANDLERS = {ApiKey.FIND_COORDINATOR: handle}
