"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the members of consumer groups. The rules are in `moldau.broker.groups`."""

from typing import TYPE_CHECKING, Protocol

from moldau.broker.groups.states import NO_MEMBER, Join, JoinResult, Leave, LeaveResult, LeavingMember, Protocols, Sync, SyncResult
from moldau.broker.handlers.services import ConfigServices, GroupServices
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.group_members import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from moldau.broker.groups.group import Group


class Services(ConfigServices, GroupServices, Protocol):
    """What these handlers use of the broker."""


FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_WITH_KNOWN_ID = 4
FIRST_WITHOUT_PROTOCOL = 7
"""From here on an answer may be without a protocol; before, its name is the empty string then."""
FIRST_SKIPPING_ASSIGNMENT = 9
REASON_MAX = 255
"""Characters of a member's reason that are kept, as in Kafka's own clients (KIP-800)."""


def join_group(services: Services, message: JoinGroupRequest, request: Request, reply: Reply) -> None:
    """The rules are in :mod:`moldau.broker.groups.joining`.

    Beside their errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_MEMBER_ID for a
    member of a group that is not there, and POLICY_VIOLATION for a new group where there are too many, or no room for it.
    """
    version = request.api_version

    def answer(joined: JoinResult) -> None:
        reply(_joined(joined, version))

    try:
        group = _group_for(services, message, request.client_id)
    except PeerError as error:
        answer(JoinResult(None, error.code, message.member_id))
        return
    new_member_id = NO_MEMBER
    if message.member_id == NO_MEMBER:
        new_member_id = services.groups.new_member_id(message.group_instance_id or request.client_id or "")
    services.groups.take(
        group,
        Join(
            answer,
            message.member_id,
            message.group_instance_id,
            request.client_id or "",
            f"/{request.channel.peer[0]}",
            message.session_timeout_ms,
            message.rebalance_timeout_ms if version >= FIRST_WITH_REBALANCE_TIMEOUT else message.session_timeout_ms,
            message.protocol_type,
            _protocols(message),
            new_member_id,
            version >= FIRST_WITH_KNOWN_ID,
            version >= FIRST_SKIPPING_ASSIGNMENT,
            (message.reason or "not given")[:REASON_MAX],
        ),
    )


def _group_for(services: Services, message: JoinGroupRequest, client_id: str | None) -> "Group":
    """The group, which is made for a new member; it may have members."""
    timeout_ms, config = message.session_timeout_ms, services.config
    shortest_ms, longest_ms = config.int("group.min.session.timeout.ms"), config.int("group.max.session.timeout.ms")
    if message.group_id and not shortest_ms <= timeout_ms <= longest_ms:
        raise PeerError(ErrorCode.INVALID_SESSION_TIMEOUT, f"a session timeout of {timeout_ms} ms is not in [{shortest_ms}, {longest_ms}]")
    group = services.groups.group_for(message.group_id, create=message.member_id == NO_MEMBER)
    if group is None:
        raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group '{message.group_id}'")
    services.groups.start_membership(group, f"JoinGroup of client '{client_id or ''}' in group '{message.group_id}'")
    return group


def _protocols(message: JoinGroupRequest) -> Protocols:
    """What the member supports, its favourite first; of a protocol that it names twice the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in message.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def _joined(joined: JoinResult, version: int) -> JoinGroupResponse:
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


FIRST_WITH_PROTOCOL = 5


def sync_group(services: Services, message: SyncGroupRequest, request: Request, reply: Reply) -> None:
    """The rules are in :mod:`moldau.broker.groups.rebalance`.

    Beside their errors: INCONSISTENT_GROUP_PROTOCOL for a request that should name its protocol and does not (KIP-559), INVALID_GROUP_ID,
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, and UNKNOWN_MEMBER_ID for a member of a group that is not there.
    """

    def answer(synced: SyncResult) -> None:
        reply(SyncGroupResponse(0, synced.error, synced.protocol_type, synced.protocol, synced.assignment))

    unnamed = message.protocol_type is None or message.protocol_name is None
    if unnamed and request.api_version >= FIRST_WITH_PROTOCOL:
        answer(SyncResult(None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    try:
        group = services.groups.group_for(message.group_id)
    except PeerError as error:
        answer(SyncResult(None, error.code))
        return
    if group is None or group.membership is None:
        answer(SyncResult(None, ErrorCode.UNKNOWN_MEMBER_ID))
        return
    services.groups.take(
        group,
        Sync(
            answer,
            message.member_id,
            message.group_instance_id,
            message.generation_id,
            message.protocol_type,
            message.protocol_name,
            {given.member_id: given.assignment for given in message.assignments},
        ),
    )


def heartbeat(services: Services, message: HeartbeatRequest, request: Request, reply: Reply) -> None:
    """As `Membership.heartbeat`; INVALID_GROUP_ID, NOT_COORDINATOR, and UNKNOWN_MEMBER_ID in a group that is not there.

    While groups are loaded no member receives an error: its session has not been renewed yet.
    """
    try:
        groups = services.groups
        group = groups.group_for(message.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            code = groups.heartbeat(group, message.member_id, message.group_instance_id, message.generation_id)
    except PeerError as error:
        code = ErrorCode.NONE if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
    reply(HeartbeatResponse(0, code))


FIRST_WITH_SEVERAL = 3
AT_ONCE_MAX = 20
"""Members that leave in one step."""


def leave_group(services: Services, message: LeaveGroupRequest, request: Request, reply: Reply) -> Steps:
    """The rules are in :mod:`moldau.broker.groups.membership`.

    Beside their errors: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, and UNKNOWN_MEMBER_ID for each member of a group
    that is not there.
    """
    version = request.api_version

    def answer(left: LeaveResult) -> None:
        reply(_left(left, version))

    if version >= FIRST_WITH_SEVERAL:
        leavers = [
            LeavingMember(each.member_id, each.group_instance_id, (each.reason or "not given")[:REASON_MAX]) for each in message.members
        ]
    else:
        leavers = [LeavingMember(message.member_id, None, "not given")]
    gone: list[tuple[LeavingMember, ErrorCode]] = []
    errors: list[ErrorCode] = []

    def have_left(left: LeaveResult) -> None:
        gone.extend(left.members)
        errors.append(left.error)
        if len(gone) == len(leavers) or left.error is not ErrorCode.NONE:
            answer(left._replace(members=gone))

    for start in range(0, max(len(leavers), 1), AT_ONCE_MAX):
        some = leavers[start : start + AT_ONCE_MAX]
        try:
            group = services.groups.group_for(message.group_id)
        except PeerError as error:
            answer(LeaveResult(None, error.code))
            return
        if group is None or group.membership is None:
            have_left(LeaveResult(None, ErrorCode.NONE, [(leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in some]))
        else:
            services.groups.take(group, Leave(have_left, some))
        if errors and errors[-1] is not ErrorCode.NONE:
            return
        yield None


def _left(left: LeaveResult, version: int) -> LeaveGroupResponse:
    """Before version 3 there is one member, whose error is that of the answer."""
    if version >= FIRST_WITH_SEVERAL:
        members = [MemberResponse(leaver.member_id, leaver.group_instance_id, code) for leaver, code in left.members]
        return LeaveGroupResponse(0, left.error, members)
    code = left.error
    if code is ErrorCode.NONE and left.members:
        code = left.members[0][1]
    return LeaveGroupResponse(0, code)


HANDLERS = {
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
}
