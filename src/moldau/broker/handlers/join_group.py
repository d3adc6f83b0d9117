"""JoinGroup: a member joins a group, and is answered when all others have or time is over."""

from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import NO_MEMBER, Join, Joined, Protocols
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.groups.group import Group

FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_WITH_KNOWN_ID = 4
FIRST_WITHOUT_PROTOCOL = 7
"""From here on an answer may be without a protocol; before, its name is the empty string then."""
FIRST_SKIPPING_ASSIGNMENT = 9
REASON_MAX = 255
"""Characters of a member's reason that are kept, as in Kafka's own clients (KIP-800)."""


def handle(broker: "Broker", request: JoinGroupRequest, context: Request, reply: Reply) -> None:
    """The rules are in :mod:`moldau.broker.groups.membership_joining`.

    Beside their errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_MEMBER_ID for a
    member of a group that is not there, and POLICY_VIOLATION for a new group where there are too many, or no room for it.
    """
    version = context.api_version

    def answer(joined: Joined) -> None:
        reply(_response(joined, version))

    try:
        group = _group_for(broker, request, context.client_id)
    except PeerError as error:
        answer(Joined(None, error.code, request.member_id))
        return
    new_member_id = NO_MEMBER
    if request.member_id == NO_MEMBER:
        new_member_id = broker.groups.new_member_id(request.group_instance_id or context.client_id or "")
    broker.groups.take(
        group,
        Join(
            answer,
            request.member_id,
            request.group_instance_id,
            context.client_id or "",
            f"/{context.channel.peer[0]}",
            request.session_timeout_ms,
            request.rebalance_timeout_ms if version >= FIRST_WITH_REBALANCE_TIMEOUT else request.session_timeout_ms,
            request.protocol_type,
            _protocols(request),
            new_member_id,
            version >= FIRST_WITH_KNOWN_ID,
            version >= FIRST_SKIPPING_ASSIGNMENT,
            (request.reason or "not given")[:REASON_MAX],
        ),
    )


def _group_for(broker: "Broker", request: JoinGroupRequest, client_id: str | None) -> "Group":
    """The group, which is made for a new member; it may have members."""
    timeout_ms, config = request.session_timeout_ms, broker.config
    shortest_ms, longest_ms = config.int("group.min.session.timeout.ms"), config.int("group.max.session.timeout.ms")
    if request.group_id and not shortest_ms <= timeout_ms <= longest_ms:
        raise PeerError(ErrorCode.INVALID_SESSION_TIMEOUT, f"a session timeout of {timeout_ms} ms is not in [{shortest_ms}, {longest_ms}]")
    group = broker.groups.group_for(request.group_id, create=request.member_id == NO_MEMBER)
    if group is None:
        raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group '{request.group_id}'")
    broker.groups.start_membership(group, f"JoinGroup of client '{client_id or ''}' in group '{request.group_id}'")
    return group


def _protocols(request: JoinGroupRequest) -> Protocols:
    """What the member supports, its favourite first; of a protocol that it names twice the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def _response(joined: Joined, version: int) -> JoinGroupResponse:
    protocol = joined.protocol
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name="" if protocol is None and version < FIRST_WITHOUT_PROTOCOL else protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[JoinGroupResponseMember(*member) for member in joined.members],
    )


HANDLERS = {ApiKey.JOIN_GROUP: handle}
