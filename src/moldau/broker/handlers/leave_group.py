"""LeaveGroup: a member leaves, or an administrator puts several out."""

from typing import TYPE_CHECKING

from moldau.broker.groups.membership_events import Leave, Leaver, Left
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

FIRST_WITH_SEVERAL = 3
REASON_MAX = 255
AT_ONCE_MAX = 20
"""Members that leave in one step."""


def handle(broker: "Broker", request: LeaveGroupRequest, context: Request, reply: Reply) -> Steps:
    """The rules are in :mod:`moldau.broker.groups.membership_leaving`.

    Beside their errors: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, and UNKNOWN_MEMBER_ID for each member of a group
    that is not there.
    """
    version = context.api_version

    def answer(left: Left) -> None:
        reply(_response(left, version))

    if version >= FIRST_WITH_SEVERAL:
        leavers = [Leaver(each.member_id, each.group_instance_id, (each.reason or "not given")[:REASON_MAX]) for each in request.members]
    else:
        leavers = [Leaver(request.member_id, None, "not given")]
    gone: list[tuple[Leaver, ErrorCode]] = []
    errors: list[ErrorCode] = []

    def have_left(left: Left) -> None:
        gone.extend(left.members)
        errors.append(left.error)
        if len(gone) == len(leavers) or left.error is not ErrorCode.NONE:
            answer(left._replace(members=gone))

    for start in range(0, max(len(leavers), 1), AT_ONCE_MAX):
        some = leavers[start : start + AT_ONCE_MAX]
        try:
            group = broker.groups.group_for(request.group_id)
        except PeerError as error:
            answer(Left(None, error.code))
            return
        if group is None or group.membership is None:
            have_left(Left(None, ErrorCode.NONE, [(leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in some]))
        else:
            broker.groups.take(group, Leave(have_left, some))
        if errors and errors[-1] is not ErrorCode.NONE:
            return
        yield None


def _response(left: Left, version: int) -> LeaveGroupResponse:
    """Before version 3 there is one member, whose error is that of the answer."""
    if version >= FIRST_WITH_SEVERAL:
        members = [MemberResponse(leaver.member_id, leaver.group_instance_id, code) for leaver, code in left.members]
        return LeaveGroupResponse(0, left.error, members)
    code = left.error
    if code is ErrorCode.NONE and left.members:
        code = left.members[0][1]
    return LeaveGroupResponse(0, code)


HANDLERS = {ApiKey.LEAVE_GROUP: handle}
