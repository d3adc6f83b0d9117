"""Heartbeat: a member says that it lives and learns whether it has to join again."""

from typing import TYPE_CHECKING

from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker


def handle(broker: "Broker", request: HeartbeatRequest, context: Request, reply: Reply) -> None:
    """As `Membership.heartbeat`; INVALID_GROUP_ID, NOT_COORDINATOR, and UNKNOWN_MEMBER_ID in a group that is not there.

    While groups are loaded every member is told that all is well: its session has not begun anew yet.
    """
    try:
        group = broker.groups.group_for(request.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            code = broker.groups.heartbeat(group, request.member_id, request.group_instance_id, request.generation_id)
    except PeerError as error:
        code = ErrorCode.NONE if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
    reply(HeartbeatResponse(0, code))


HANDLERS = {ApiKey.HEARTBEAT: handle}
