"""SyncGroup: the leader hands out the assignment, every member asks for its part and is answered when it is there."""

from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import Sync, Synced
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

FIRST_WITH_PROTOCOL = 5


def handle(broker: "Broker", request: SyncGroupRequest, context: Request, reply: Reply) -> None:
    """The rules are in :mod:`moldau.broker.groups.membership_syncing`.

    Beside their errors: INCONSISTENT_GROUP_PROTOCOL for a request that should name its protocol and does not (KIP-559), INVALID_GROUP_ID,
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, and UNKNOWN_MEMBER_ID for a member of a group that is not there.
    """

    def answer(synced: Synced) -> None:
        reply(SyncGroupResponse(0, synced.error, synced.protocol_type, synced.protocol, synced.assignment))

    unnamed = request.protocol_type is None or request.protocol_name is None
    if unnamed and context.api_version >= FIRST_WITH_PROTOCOL:
        answer(Synced(None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    try:
        group = broker.groups.group_for(request.group_id)
    except PeerError as error:
        answer(Synced(None, error.code))
        return
    if group is None or group.membership is None:
        answer(Synced(None, ErrorCode.UNKNOWN_MEMBER_ID))
        return
    broker.groups.take(
        group,
        Sync(
            answer,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {given.member_id: given.assignment for given in request.assignments},
        ),
    )


HANDLERS = {ApiKey.SYNC_GROUP: handle}
